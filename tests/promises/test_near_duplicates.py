"""Promise 4, of near-duplicates: what stays is what plain Python finds, and every removed document has its evidence."""

from __future__ import annotations

import datetime
import json
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError, PenstockError
from penstock.shards.origins import ORIGIN
from tests.promises import near_making, near_reference, text_making, workshop
from tests.promises.near_making import MARK, SURE, Corpus, in_files, run
from tests.promises.near_reference import Near

SEEDS = range(12 if workshop.THOROUGH else 3)


# Against plain Python.


@pytest.mark.core
def test_planted_copies_are_removed_and_nothing_else(tmp_path):
    """All defaults."""
    run(tmp_path, in_files(near_making.planted(1)), {}, slice_size="40kB")


@pytest.mark.thorough
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("keep", ["first", "longest", {"column": "quality", "order": "asc"}], ids=str)
def test_planted_copies_are_removed_whichever_of_them_stays(tmp_path, seed, keep):
    texts = near_making.planted(seed + 10)
    quality = pa.array([random.Random(text).randrange(4) for text in texts])
    run(tmp_path, in_files(texts, quality=quality), {"keep": keep}, slice_size="40kB")


@pytest.mark.thorough
@pytest.mark.parametrize("threshold", [0.5, 0.65, 0.8, 1.0])
@pytest.mark.parametrize("seed", SEEDS)
def test_similarities_of_all_sizes_are_held_against_the_threshold(tmp_path, seed, threshold):
    corpus, near = in_files(near_making.graded(seed)), {"threshold": threshold, "words": 2, **SURE}
    output = run(tmp_path, corpus, near)
    counts = near_making.counts_of(output)
    assert counts["similar"] == near_reference.similar_pairs(corpus.texts, near_making.options_of(near))
    assert counts["not_compared"] == 0


FEW_WORDS = st.lists(st.sampled_from("abcd"), max_size=12)
FAMILIES = st.lists(st.lists(st.tuples(FEW_WORDS, st.sampled_from(text_making.SPACES[:-1])), max_size=8), max_size=12)


@pytest.mark.thorough
@settings(max_examples=200 if workshop.THOROUGH else 6, suppress_health_check=list(HealthCheck))
@given(
    families=FAMILIES,
    words=st.integers(1, 4),
    threshold=st.sampled_from([0.5, 0.6, 0.75, 1.0]),
    keep=st.sampled_from(["first", "longest"]),
    chance=st.randoms(use_true_random=False),
)
def test_any_documents_of_few_words_are_judged_as_by_plain_python(
    tmp_path_factory, families, words, threshold, keep, chance
):
    """Eight documents share words, and no others do: so each is compared with all that it may be similar to."""
    texts = [
        space.join(f"{number}{word}" for word in own) for number, family in enumerate(families) for own, space in family
    ]
    chance.shuffle(texts)
    near = {"words": words, "threshold": threshold, "keep": keep, **SURE}
    run(tmp_path_factory.mktemp("any"), in_files(texts or ["alone"], files=2), near, slice_size="300B")


@pytest.mark.thorough
def test_a_similarity_equal_to_the_threshold_is_similar(tmp_path):
    shared = "one two three four five six seven eight"
    texts = [f"{shared} nine", f"{shared} ten"]  # 8 of 10 words
    for threshold, kept in ((0.79, [0]), (0.8, [0]), (0.81, [0, 1])):
        near = {"words": 1, "threshold": threshold, **SURE}
        assert near_making.ids_of(run(tmp_path / f"{threshold}", in_files(texts, 1), near)) == kept


@pytest.mark.thorough
def test_shingles_are_a_set_so_neither_repeats_nor_order_beyond_them_count(tmp_path):
    texts = ["a a a a a", "a a a a a a a a a", "a b a b a b a", "b a b a b a b a b a", "a b c", "c b a"]
    output = run(tmp_path, in_files(texts, 1), {})
    assert near_making.ids_of(output) == [0, 2, 4, 5]
    assert {line[-1] for line in near_making.evidence_of(output)} == {1.0}


# Which of them stays.

CHAIN = [" ".join(f"w{number}" for number in range(start, start + 100)) for start in (0, 10, 20)]  # 0.82, 0.82, 0.67
BY_WORD = {"words": 1, "threshold": 0.8, **SURE}


def test_the_ends_of_a_chain_stay_because_what_removed_its_middle_is_not_like_its_end(tmp_path):
    a, b, c = CHAIN
    assert near_making.ids_of(run(tmp_path / "abc", in_files([a, b, c]), BY_WORD)) == [0, 2]
    assert near_making.ids_of(run(tmp_path / "bac", in_files([b, a, c]), BY_WORD)) == [0]
    assert near_making.ids_of(run(tmp_path / "acb", in_files([a, c, b]), BY_WORD)) == [0, 1]


@pytest.mark.thorough
def test_the_survivor_is_the_first_that_stayed_among_those_that_are_similar(tmp_path):
    a, b, c = CHAIN
    for texts in ([a, c, b], [c, a, b]):
        (line,) = near_making.evidence_of(run(tmp_path / texts[0][:2], in_files(texts, 1), BY_WORD))
        assert line[:6] == (0, "000.parquet", 2, 0, "000.parquet", 0)


def test_a_long_chain_keeps_every_second_document(tmp_path):
    texts = [" ".join(f"w{number}" for number in range(start, start + 100)) for start in range(0, 300, 10)]
    assert near_making.ids_of(run(tmp_path, in_files(texts), BY_WORD)) == list(range(0, 30, 2))


@pytest.mark.thorough
def test_the_longest_is_the_one_of_most_bytes_and_the_first_of_equal_ones(tmp_path):
    text = " ".join(near_making.words(random.Random(1), 200))
    texts = [f"{text} eee", f"{text} éé", f"{text} aaaa", f"{text} 水"]  # 3, 4, 4 and 3 bytes
    assert near_making.ids_of(run(tmp_path, in_files(texts), {"keep": "longest"})) == [1]


DAY = datetime.date(2024, 1, 1)
QUALITIES: dict[str, pa.Array] = {
    "int64": pa.array([3, -(2**63), None, 2**63 - 1, 0, 2**63 - 1, -1, 2**53 + 1], pa.int64()),
    "uint64": pa.array([2**63, 2**64 - 1, 0, 2**63 - 1, None, 2**64 - 1, 2**64 - 2, 1], pa.uint64()),
    "int8": pa.array([None, None, -128, 127, 0, 127, -1, 1], pa.int8()),
    "float64": pa.array([0.0, -0.0, math.nan, math.inf, -math.inf, None, 5e-324, -1.5]),
    "float32": pa.array([math.nan, None, -0.0, 0.0, -0.5, 0.25, 0.25, -math.inf], pa.float32()),
    "bool": pa.array([False, True, None, True, False, False, True, None]),
    "date32": pa.array([DAY + datetime.timedelta(days) for days in (0, 9, -30_000, 9, 1, 2, 3, 4)]),
    "timestamp": pa.array([0, -(2**50), 2**50, None, 2**50, 1, 2, 3], pa.timestamp("us")),
}


def _with_qualities(seed: int, kind: str) -> Corpus:
    """Eight copies of each text, whose values are those of the type in another order each time."""
    chance, texts, values = random.Random(seed), [], []
    for _ in range(6):
        text = " ".join(near_making.words(chance, 300))
        texts += [near_making.with_changes(text, 1, chance) for _ in range(8)]
        values += chance.sample(range(8), 8)
    return in_files(texts, quality=QUALITIES[kind].take(pa.array(values)))


@pytest.mark.thorough
@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize("kind", QUALITIES)
def test_the_best_by_a_column_of_any_type_stays_and_nulls_and_nan_come_last(tmp_path, kind, order):
    corpus = _with_qualities(3, kind)
    output = run(tmp_path, corpus, {"keep": {"column": "quality", "order": order}}, slice_size="40kB")
    kept = corpus.columns["quality"].take(pa.array(near_making.ids_of(output))).to_pylist()
    assert len(kept) == 6
    assert not any(value is None or value != value for value in kept)


@pytest.mark.thorough
def test_the_highest_stays_unless_the_lowest_is_asked_for(tmp_path):
    corpus = _with_qualities(4, "int64")
    outputs = [
        run(tmp_path / f"{number}", corpus, {"keep": {"column": "quality", **order}}, slice_size="40kB")
        for number, order in enumerate(({}, {"order": "desc"}, {"order": "asc"}))
    ]
    default, highest, lowest = (near_making.ids_of(output) for output in outputs)
    assert default == highest != lowest


# Odd documents.

SPACED = [
    "one two three four five six",
    "  one two\tthree\nfour\r\nfive\u00a0six\u3000",
    "one\u2003two three four five\x1csix\x85",
]
ODD: dict[str, list[str | None]] = {
    "all identical": ["the same words again and again " * 20] * 200,
    "none similar": [" ".join(near_making.words(random.Random(seed), 80)) for seed in range(60)],
    "empty and white space only": ["", " ", "\n\t", "\u3000", "x", ""],
    "one word": ["x", "y", "x", "X", " x ", "x x", "y"],
    "fewer words than a shingle": ["a b", "a b", "a b c", "b a", "a b c d", "a b c d e", "a b c d"],
    "white space alone differs": SPACED,
    "case alone differs": ["some words of a document", "Some words of a document", "SOME WORDS OF A DOCUMENT"],
    "punctuation alone differs": ["some words of a document", "some words, of a document", "some words of a document."],
    "no white space": ["one\u200btwo", "one two", "onetwo", "one\ufefftwo", "one\u180etwo", "one\u2060two"],
    "nul bytes": ["a\0b c", "a b c", "a\0b c", "\0", "", "\0\0"],
    "composed and decomposed": ["\u00e9t\u00e9 x", "e\u0301te\u0301 x"],
    "beyond the BMP": ["\U0001f600 " * 9, "\U0001f600 " * 12, "\U0001f601 " * 9, "\U00020000" * 30, "\U00020000" * 40],
    "null texts": [None, "a", None, "a", "b"],
    "one document": ["only one"],
    "one giant word": ["x" * 5000, "x" * 5001, "x" * 5000],
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", ODD)
def test_odd_documents_are_judged_as_by_plain_python(tmp_path, name):
    run(tmp_path, in_files(ODD[name], files=min(2, len(ODD[name]))), {})


@pytest.mark.thorough
def test_documents_that_differ_in_white_space_alone_are_one(tmp_path):
    assert near_making.ids_of(run(tmp_path, in_files(SPACED, 1), {})) == [0]


@pytest.mark.thorough
def test_a_corpus_without_a_document_is_an_empty_dataset(tmp_path):
    run(tmp_path, in_files([], files=2), {})


@pytest.mark.thorough
def test_many_languages_and_lengths_are_judged_as_by_plain_python(tmp_path):
    """Empty ones, exact repeats, repeats but for white space, NULs, and what looks like a special token."""
    run(tmp_path, in_files(text_making.documents(150, 5)), {"words": 3, "characters": 4, **SURE}, slice_size="3kB")


# Scripts.

SCRIPTS = {
    "Han": range(0x4E00, 0x9FA0, 97),
    "kana": [*range(0x3042, 0x3094), *range(0x30A2, 0x30F5)],
    "Thai": [*range(0x0E01, 0x0E3B), *range(0x0E40, 0x0E4E)],  # vowel signs and tone marks are characters, too
    "Lao": [*range(0x0E94, 0x0EA4), *range(0x0EB0, 0x0EBE), *range(0x0EC0, 0x0EC5)],
    "Khmer": range(0x1780, 0x17D4),
    "Myanmar": range(0x1000, 0x1040),
    "Tibetan": [*range(0x0F40, 0x0F48), *range(0x0F49, 0x0F6D)],
}


def _unspaced(chance: random.Random, script: str, count: int = 300) -> str:
    return "".join(chr(chance.choice(SCRIPTS[script])) for _ in range(count))


def _with_another_character(text: str, chance: random.Random) -> str:
    place = chance.randrange(len(text))
    return f"{text[:place]}力{text[place + 1 :]}"


def _in_scripts(seed: int) -> list[str]:
    """Of each script two texts without a space, and of each a copy with another character."""
    chance = random.Random(seed)
    texts = [_unspaced(chance, script) for script in SCRIPTS for _ in range(2)]
    return [*texts, *(_with_another_character(text, chance) for text in texts)]


@pytest.mark.thorough
def test_documents_in_scripts_without_spaces_are_compared_by_characters(tmp_path):
    output = run(tmp_path, in_files(_in_scripts(1)), {})
    assert near_making.ids_of(output) == list(range(2 * len(SCRIPTS)))


@pytest.mark.thorough
def test_both_options_choose_by_script(tmp_path):
    corpus = in_files([*_in_scripts(2), *near_making.planted(2, 20)])
    run(tmp_path, corpus, {"words": 4, "characters": 6}, slice_size="40kB")


@pytest.mark.thorough
def test_words_alone_or_characters_alone_are_for_all_documents(tmp_path):
    scripts, english = _in_scripts(3), near_making.planted(3, 20)
    corpus = in_files([*scripts, *english])
    by_words = near_making.ids_of(run(tmp_path / "words", corpus, {"words": 5}, slice_size="40kB"))
    assert set(range(len(scripts))) <= set(by_words)  # each is one word
    run(tmp_path / "characters", corpus, {"characters": 8}, slice_size="40kB")


@pytest.mark.thorough
def test_white_space_between_characters_counts_once_and_around_them_not_at_all(tmp_path):
    chance = random.Random(4)
    one, other = (_unspaced(chance, "Thai", 40) for _ in range(2))
    texts = [f"{one} {other}", f"\n{one}\u3000\t {other}  ", f"{one}{other}"]
    output = run(tmp_path, in_files(texts, 1), {"threshold": 0.99, **SURE})
    assert near_making.ids_of(output) == [0, 2]


@pytest.mark.thorough
def test_a_document_of_several_scripts_is_compared_as_most_of_it_is(tmp_path):
    chance = random.Random(5)
    english = " ".join(near_making.words(chance, 120))
    mostly_han = f"{_unspaced(chance, 'Han', 400)} {english[:120]}"
    mostly_english = f"{_unspaced(chance, 'Han', 60)} {english}"
    copies = [_with_another_character(text, chance) for text in (mostly_han, mostly_english)]
    near = {"threshold": 0.7, **SURE}
    run(tmp_path, in_files([mostly_han, mostly_english, *copies]), near)


# Evidence, marks, and the account.


@pytest.mark.thorough
def test_every_removed_document_has_one_line_of_evidence_that_leads_to_both_texts(tmp_path):
    """Read as a user would: files of the input, rows of the evidence, similarity by hand."""
    corpus = in_files(near_making.graded(7))
    output = run(tmp_path, corpus, {"threshold": 0.6, "words": 2, **SURE})
    folder, kept = tmp_path / "data" / "source-0", set(near_making.ids_of(output))
    gone = []
    for source, file, row, survivor_source, survivor_file, survivor_row, shared in near_making.evidence_of(output):
        assert (source, survivor_source) == (0, 0)
        document = pq.read_table(folder / file).slice(row, 1).to_pylist()[0]
        survivor = pq.read_table(folder / survivor_file).slice(survivor_row, 1).to_pylist()[0]
        gone.append(document["id"])
        assert survivor["id"] in kept
        one, other = (near_reference.shingles(each["text"], Near(words=2)) for each in (document, survivor))
        assert shared == float(near_reference.similarity(one, other)) >= 0.6
    assert len(gone) == len(set(gone)) > 10
    assert set(gone) | kept == set(range(len(corpus.texts)))
    assert not set(gone) & kept


@pytest.mark.thorough
def test_positions_of_lines_lead_back_to_their_texts(tmp_path):
    """In JSONL with blank lines, whose positions are bytes: those of the evidence are those of origins."""
    texts = near_making.graded(8)
    chance = random.Random(8)
    for number in range(2):
        (tmp_path / "data").mkdir(exist_ok=True)
        lines = ["\n" * chance.randrange(3) + json.dumps({"text": text}) for text in texts[number::2]]
        (tmp_path / "data" / f"{number}.jsonl").write_text("\n".join(lines) + "\n")
    near = {"threshold": 0.6, "words": 2, "act": "mark", **SURE}
    penstock.run(near_making.write_job(tmp_path / "job.yaml", str(tmp_path / "data"), near, slice_size="1kB"))
    origins, records = near_making.origins_of(tmp_path / "out"), text_making.records_of(tmp_path / "out")
    assert len(origins.pieces) > 5
    ordered = [*texts[0::2], *texts[1::2]]
    assert [record["text"] for record in records] == ordered
    places = [tuple(origins.of(record[ORIGIN])) for record in records]
    removed = near_reference.removed(ordered, near_making.options_of(near))
    expected = [(*places[each], *places[removed[each].survivor], removed[each].similarity) for each in sorted(removed)]
    assert near_making.evidence_of(tmp_path / "out") == expected
    marks = [records[removed[each].survivor][ORIGIN] if each in removed else None for each in range(len(records))]
    assert [record[MARK] for record in records] == marks


@pytest.mark.thorough
@pytest.mark.parametrize("keep", ["first", "longest"])
def test_marking_keeps_every_document_and_names_the_survivor(tmp_path, keep):
    corpus = in_files(near_making.graded(9))
    near = {"threshold": 0.6, "words": 2, "keep": keep, **SURE}
    run(tmp_path / "mark", corpus, {**near, "act": "mark"})
    assert penstock.open(tmp_path / "mark" / "out")[:].schema.field(MARK).type == pa.int64()
    run(tmp_path / "remove", corpus, near)
    evidence = [near_making.evidence_of(tmp_path / each / "out") for each in ("mark", "remove")]
    assert evidence[0] == evidence[1]


@pytest.mark.thorough
def test_a_later_stage_reads_the_mark(tmp_path):
    corpus, near = in_files(near_making.graded(10)), {"threshold": 0.6, "words": 2, **SURE}
    stages = [{"near_dedup": {**near, "act": "mark"}}, {"select": ["id", MARK]}]
    penstock.run(near_making.write_job(tmp_path / "job.yaml", corpus.write(tmp_path / "data"), {}, stages=stages))
    marked = {record["id"] for record in text_making.records_of(tmp_path / "out") if record[MARK] is not None}
    assert marked == set(near_making.reference_of(corpus, near))


@pytest.mark.thorough
def test_an_output_without_a_near_duplicate_has_no_line_of_evidence_and_says_so(tmp_path):
    output = run(tmp_path, in_files(ODD["none similar"]), {})
    counts = near_making.counts_of(output)
    assert (counts["removed"], counts["similar"], counts["not_compared"]) == (0, 0, 0)


@pytest.mark.thorough
def test_empty_exact_and_filtered_documents_go_before_and_positions_are_still_those_of_the_input(tmp_path):
    """Behind `clean`, `dedup` and `filter`; in front of `tokenize` and `pack`."""
    texts: list[str | None] = []
    for number, text in enumerate(near_making.planted(11, 40)):
        texts += [text, *([None, "", f" {text}\n"] if number % 3 == 0 else [])]
    corpus = in_files(texts)
    clean, dedup, tokenize, pack = text_making.stages()
    text_making.write_tokenizer(tmp_path / "tokenizer")
    stages = [clean, dedup, {"filter": "id != 1"}, {"filter": "id < 70"}, "near_dedup", tokenize, pack]
    job = near_making.write_job(
        tmp_path / "job.yaml", corpus.write(tmp_path / "data"), {}, stages=stages, slice_size="40kB"
    )
    penstock.run(job)
    seen: set[str] = set()
    left = []
    for number, text in enumerate(texts):
        stripped = (text or "").strip()
        if stripped and stripped not in seen and number != 1 and number < 70:
            left.append(number)
        seen.add(stripped)
    own = [str(texts[number]).strip() for number in left]
    removed = near_reference.removed(own, Near())
    places = [corpus.places[number] for number in left]
    assert near_making.evidence_of(tmp_path / "out") == [
        (*places[each], *places[removed[each].survivor], removed[each].similarity) for each in sorted(removed)
    ]
    stay = [text for number, text in enumerate(own) if number not in removed]
    assert len(removed) > 3
    assert text_making.rows_of(tmp_path / "out") == text_making.wrapped(map(text_making.ids_of, stay))[0]
    steps = text_making.steps_of(tmp_path / "out")
    assert (steps["near_dedup"]["taken"], steps["tokenize"]["taken"]) == (len(own), len(stay))
    assert steps["near_dedup"]["set_aside"] == {"near-duplicate": len(removed)}


@pytest.mark.thorough
def test_splits_share_no_near_duplicates(tmp_path):
    corpus = in_files(near_making.planted(12))
    stages = ["near_dedup", {"split": {"by": "id", "test": 0.4}}]
    data = corpus.write(tmp_path / "data")
    penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {}, stages=stages, slice_size="40kB"))
    found = [near_making.ids_of(tmp_path / "out", split) for split in ("train", "test")]
    assert all(found)
    assert sorted(found[0] + found[1]) == near_reference.stays(corpus.texts, Near())


@pytest.mark.thorough
def test_bad_utf8_is_set_aside_before_and_moves_no_position(tmp_path):
    texts = [text.encode() for text in near_making.planted(13, 30)]
    raw = [*texts[:10], b"bad \xff " * 30, *texts[10:], b"a lone surrogate \xed\xa0\x80"]
    array = pa.array(raw, pa.binary())
    (tmp_path / "data").mkdir()
    table = pa.table({"text": pa.Array.from_buffers(pa.string(), len(array), array.buffers())})
    pq.write_table(table, tmp_path / "data" / "0.parquet", row_group_size=7)
    keys = {"on_bad_input": "set_aside", "slice_size": "40kB"}
    penstock.run(near_making.write_job(tmp_path / "job.yaml", str(tmp_path / "data"), {}, **keys))
    removed = near_reference.removed([text.decode() for text in texts], Near())
    rows = [row for row in range(len(raw)) if row not in (10, 31)]
    assert [(line[2], line[5]) for line in near_making.evidence_of(tmp_path / "out")] == [
        (rows[each], rows[removed[each].survivor]) for each in sorted(removed)
    ]
    assert len(removed) > 3


@pytest.mark.thorough
def test_documents_of_an_earlier_dataset_are_marked_by_their_origins_here(tmp_path):
    corpus = in_files(near_making.graded(14))
    usual = {"slice_size": "2kB"}
    one = near_making.write_job(
        tmp_path / "one" / "job.yaml", corpus.write(tmp_path / "data"), {}, **usual, stages=["clean"]
    )
    penstock.run(one)
    near = {"threshold": 0.6, "words": 2, "act": "mark", **SURE}
    penstock.run(near_making.write_job(tmp_path / "two" / "job.yaml", str(tmp_path / "one" / "out"), near, **usual))
    records = text_making.records_of(tmp_path / "two" / "out")
    removed = near_reference.removed([record["text"] for record in records], near_making.options_of(near))
    assert [record[MARK] for record in records] == [
        records[removed[each].survivor][ORIGIN] if each in removed else None for each in range(len(records))
    ]


# Several inputs.


def _two_sources(copied: int = 12) -> Corpus:
    """Documents of the second are copies of those of the first, most of them."""
    chance = random.Random(6)
    first = [" ".join(near_making.words(chance, 300)) for _ in range(20)]
    second = [near_making.with_changes(text, 1, chance) for text in first[:copied]]
    second += [" ".join(near_making.words(chance, 300)) for _ in range(16 - copied)]
    return Corpus([[first[:10], first[10:]], [second]])


@pytest.mark.thorough
def test_removals_are_counted_for_each_source(tmp_path):
    output = run(tmp_path, _two_sources(), {}, slice_size="20kB")
    assert near_making.counts_of(output)["sources"] == [
        {"source": 0, "documents": 20, "removed": 0},
        {"source": 1, "documents": 16, "removed": 12},
    ]


@pytest.mark.thorough
def test_marks_and_evidence_reach_across_sources(tmp_path):
    run(tmp_path, _two_sources(), {"act": "mark", "keep": "longest"}, slice_size="20kB")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("warn_above", "warned"), [({}, True), ({"warn_above": "80%"}, False), ({"warn_above": "74%"}, True)], ids=str
)
def test_a_source_that_loses_more_than_warn_above_is_named_on_the_screen(tmp_path, warn_above, warned):
    """75% of the second."""
    data = _two_sources().write(tmp_path / "data")
    job = near_making.write_job(tmp_path / "job.yaml", data, warn_above, slice_size="20kB")
    done = workshop.on_screen(job, "run")
    said = done.stdout + done.stderr
    warnings = [line for line in said.splitlines() if "75% of its documents" in line]
    assert bool(warnings) == warned, said
    if warned:
        assert "source-1" in said or "source 1" in said, said
        assert "12" in said


@pytest.mark.thorough
def test_no_source_is_named_where_little_is_lost(tmp_path):
    data = _two_sources(2).write(tmp_path / "data")
    done = workshop.on_screen(near_making.write_job(tmp_path / "job.yaml", data, {}, slice_size="20kB"), "run")
    assert "12.5%" not in done.stdout + done.stderr


# Many documents that are alike.


@pytest.mark.thorough
def test_of_thousands_that_differ_in_one_number_one_stays_and_the_pairs_not_compared_are_counted(tmp_path):
    """2 million pairs are similar. Each document is compared with the first eight of a band, not with all."""
    count = 2000
    filler = " ".join(f"word{number}" for number in range(60))
    texts = [f"Page {number} of the catalogue: {filler}" for number in range(count)]
    texts.insert(700, "something else " + " ".join(reversed(filler.split())))
    data = in_files(texts).write(tmp_path / "data", group=500)
    penstock.run(near_making.write_job(tmp_path / "job.yaml", data, SURE, slice_size="100kB"))
    assert near_making.ids_of(tmp_path / "out") == [0, 700]
    evidence = near_making.evidence_of(tmp_path / "out")
    assert len(evidence) == count - 1
    assert {line[3:6] for line in evidence} == {(0, "000.parquet", 0)}
    counts = near_making.counts_of(tmp_path / "out")
    assert count - 1 <= counts["similar"] <= counts["candidates"] <= SURE["bands"] * 8 * count
    assert counts["not_compared"] > 0


@pytest.mark.thorough
def test_identical_documents_without_number_cost_no_more_than_eight_comparisons_each(tmp_path):
    texts = ["again and again and again"] * 3000
    data = in_files(texts).write(tmp_path / "data", group=500)
    penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {}, slice_size="20kB"))
    assert near_making.ids_of(tmp_path / "out") == [0]
    assert near_making.counts_of(tmp_path / "out")["candidates"] <= 8 * len(texts)


@pytest.mark.thorough
def test_many_slices_with_many_documents_each_are_compared_like_few(tmp_path):
    """So many that a block of bands of each slice is more than what is sorted at a time."""
    chance = random.Random(20)
    texts = [" ".join(near_making.words(chance, 9)) for _ in range(80 * 260)]
    for number in range(0, len(texts), 100):
        texts[number] = f" {texts[number // 2]}"
    data = in_files(texts, files=80).write(tmp_path / "data", group=1000)
    penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {}, slice_size="10kB"))
    first: dict[str, int] = {}
    removed = {number for number, text in enumerate(texts) if first.setdefault(text.strip(), number) != number}
    assert near_making.ids_of(tmp_path / "out") == [each for each in range(len(texts)) if each not in removed]


# Refusals.

REFUSED: dict[str, tuple[dict[str, Any], list[str]]] = {
    "threshold of 0": ({"threshold": 0}, ["threshold", "0"]),
    "threshold above 1": ({"threshold": 1.5}, ["threshold", "1.5"]),
    "threshold below 0": ({"threshold": -0.5}, ["threshold", "-0.5"]),
    "threshold that is none": ({"threshold": "high"}, ["threshold", "high"]),
    "a boolean as threshold": ({"threshold": True}, ["threshold", "expected a number", "true"]),
    "a fraction of a word": ({"words": 5.5}, ["words", "an integer", "5.5"]),
    "no words": ({"words": 0}, ["words", "0"]),
    "negative words": ({"words": -1}, ["words", "-1"]),
    "no characters": ({"characters": 0}, ["characters", "0"]),
    "no bands": ({"bands": 0}, ["bands", "0"]),
    "no rows": ({"rows": 0}, ["rows", "0"]),
    "another act": ({"act": "delete"}, ["act", "delete", "remove", "mark"]),
    "another keep": ({"keep": "last"}, ["keep", "last", "first", "longest"]),
    "keep as other stages have it": ({"keep": True}, ["keep: True", "which document stays", "duplicates/"]),
    "a column without its mapping": ({"keep": "quality"}, ["quality", "{column: quality, order: desc}"]),
    "an unknown key of keep": ({"keep": {"column": "id", "desc": True}}, ["desc", "order: desc"]),
    "a column that is a number": ({"keep": {"column": 5}}, ["5", "{column: quality"]),
    "too many places": ({"bands": 300, "rows": 10}, ["bands", "300", "rows", "10", "2,048"]),
    "another order": ({"keep": {"column": "id", "order": "up"}}, ["order", "up"]),
    "a share above 1": ({"warn_above": "150%"}, ["warn_above", "150%"]),
    "a misspelt option": ({"treshold": 0.9}, ["treshold", "threshold"]),
    "an unknown column": ({"column": "body"}, ["body", "text"]),
    "a column that is no text": ({"column": "id"}, ["id", "int64"]),
    "an unknown column to keep by": ({"keep": {"column": "qualty"}}, ["qualty", "id"]),
    "a text column to keep by": ({"keep": {"column": "text"}}, ["text"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_options_are_refused_by_name_before_anything_is_written(tmp_path, name):
    near, words = REFUSED[name]
    data = in_files(["a b c", "d e f"]).write(tmp_path / "data")
    with pytest.raises(ConfigError) as caught:
        penstock.run(near_making.write_job(tmp_path / "job.yaml", data, near))
    _assert_says(caught.value, "near_dedup", *words)
    assert not (tmp_path / "out").exists()


def _assert_says(error: PenstockError, *words: str) -> None:
    said = str(error)
    assert all(word in said for word in words), said


PLACES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "without provenance": ({"stages": ["near_dedup"], "provenance": False}, ["provenance"]),
    "twice": ({"stages": ["near_dedup", {"near_dedup": {"threshold": 0.9}}]}, ["near_dedup"]),
    "behind group": ({"stages": [{"group": {"by": "text", "order": "id"}}, "near_dedup"]}, ["near_dedup", "group"]),
    "before group": (
        {"stages": ["near_dedup", {"group": {"by": "text", "order": "id"}}], "provenance": True},
        ["near_dedup", "group", "second"],
    ),
    "before group, without provenance": (
        {"stages": ["near_dedup", {"group": {"by": "text", "order": "id"}}], "provenance": False},
        ["near_dedup", "group", "second"],
    ),
    "in samples": ({"stages": ["near_dedup"], "format": "npz"}, ["near_dedup", "npz"]),
    "in arrays": ({"stages": ["near_dedup"], "format": "arrays"}, ["near_dedup", "arrays"]),
    "behind tokenize": (
        {"stages": [{"tokenize": {"tokenizer": "tokenizer", "engine": "hf"}}, "near_dedup"]},
        ["near_dedup", "text"],
    ),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_where_it_cannot_stand_are_refused(tmp_path, name):
    keys, words = PLACES[name]
    text_making.write_tokenizer(tmp_path / "tokenizer")
    data = in_files(["a b c", "d e f"]).write(tmp_path / "data")
    with pytest.raises(ConfigError) as caught:
        penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {}, **keys))
    _assert_says(caught.value, *words)
    assert not (tmp_path / "out").exists()


def test_a_column_that_has_the_name_of_the_mark_is_refused(tmp_path):
    data = in_files(["a b c", "d e f"], near_duplicate_of=pa.array([1, 2])).write(tmp_path / "data")
    with pytest.raises(ConfigError, match=MARK):
        penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {"act": "mark"}))


@pytest.mark.thorough
def test_the_name_alone_takes_all_defaults(tmp_path):
    data = in_files(near_making.planted(15, 20)).write(tmp_path / "data")
    options = {"threshold": 0.8, "words": 5, "characters": 8, "bands": 20, "rows": 6, "keep": "first"}
    options |= {"column": "text", "act": "remove", "warn_above": "50%"}
    written = []
    for name, stage in (("plain", "near_dedup"), ("options", {"near_dedup": options})):
        job = near_making.write_job(tmp_path / name / "job.yaml", data, {}, stages=[stage], slice_size="40kB")
        penstock.run(job)
        manifest = json.loads((job.parent / "out" / "manifest.json").read_text())
        written.append([manifest["splits"], near_making.evidence_of(job.parent / "out")])
    assert written[0] == written[1]


@pytest.mark.thorough
def test_another_column_is_compared_where_asked(tmp_path):
    texts = near_making.planted(16, 30)
    corpus = in_files([f"document {number}" for number in range(30)], body=pa.array(texts))
    data = corpus.write(tmp_path / "data")
    penstock.run(near_making.write_job(tmp_path / "job.yaml", data, {"column": "body"}, slice_size="40kB"))
    assert near_making.ids_of(tmp_path / "out") == near_reference.stays(texts, Near())


@pytest.mark.thorough
def test_text_of_any_type_is_compared_like_any_other(tmp_path):
    texts = near_making.planted(17, 30)
    for name, array in {"large": pa.array(texts, pa.large_string()), "view": pa.array(texts, pa.string_view())}.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"id": range(30), "text": array}), tmp_path / name / "0.parquet", row_group_size=7)
        job = near_making.write_job(
            tmp_path / name / "job.yaml", str(tmp_path / name / "0.parquet"), {}, slice_size="40kB"
        )
        penstock.run(job)
        assert near_making.ids_of(job.parent / "out") == near_reference.stays(texts, Near()), name


@pytest.mark.thorough
def test_evidence_is_there_whatever_the_format_of_the_output(tmp_path):
    corpus = in_files(near_making.planted(18, 30))
    data = corpus.write(tmp_path / "data")
    expected = near_making.expected_evidence(corpus, near_making.reference_of(corpus, {}))
    for format_name in ("safetensors", "npy"):
        keys: dict[str, Any] = {"format": format_name, "slice_size": "40kB"}
        job = near_making.write_job(tmp_path / format_name / "job.yaml", data, {}, **keys)
        penstock.run(job)
        assert near_making.evidence_of(Path(job.parent / "out")) == expected, format_name


def test_marks_that_would_be_lost_or_wrong_in_silence_are_refused(tmp_path):
    data = in_files(near_making.planted(15, 20)).write(tmp_path / "data")
    marked = near_making.write_job(tmp_path / "marked" / "job.yaml", data, {"act": "mark"})
    penstock.run(marked)
    again = {"input": str(marked.parent / "out"), "output": str(tmp_path / "again"), "stages": ["clean"]}
    with pytest.raises(penstock.ConfigError, match="near_duplicate_of"):
        penstock.run(again)
    penstock.run({**again, "stages": [{"select": ["text"]}, "clean"]})
    packed = ["near_dedup", {"tokenize": {"tokenizer": "tokenizer.json"}}, {"pack": 64}]
    with pytest.raises(penstock.ConfigError, match="`pack` keeps no such column"):
        penstock.plan({**again, "input": data, "stages": [{"near_dedup": {"act": "mark"}}, *packed[1:]]})
