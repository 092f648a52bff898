"""What run, plan and inspect show of a text job: tokens accounted for, passes in words, rows decoded."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from tokenizers import Tokenizer, decoders, models

import penstock
from penstock.cli import main
from penstock.show.contents.decoded import Decoder, row_tables, speller, visible
from penstock.show.doctor import doctor_facts
from tests.show.desk import document

TOKENIZER = Path(__file__).parents[3] / "examples" / "text" / "tokenizer"
DOCUMENTS = [
    "The ferry to Small Aster leaves at seven.",
    "  The ferry to Small Aster leaves at seven.",
    "Fog.",
    "Café Renée opens when the ferry is seen, 灯台, and closes after it.",
    "One\0two\x1b[31m three\u202e four, and the lamp turns once in twelve seconds.",
    "Bread on Small Aster is baked twice a week.\nThe oven is older than the church.",
]
STAGES: list[Any] = [
    "clean",
    {"filter": "characters(text) >= 10"},
    "dedup",
    {"tokenize": {"tokenizer": str(TOKENIZER), "engine": "hf"}},
    {"filter": "length(tokens) >= 8"},
]


def make_text_job(folder: Path, pack: Any, documents: list[str] | None = None) -> Path:
    folder.mkdir(parents=True)
    lines = [json.dumps({"text": each}) + "\n" for each in (DOCUMENTS if documents is None else documents)]
    (folder / "a.jsonl").write_text("".join(lines))
    (folder / "b.jsonl").write_text(json.dumps({"text": "There are forty goats and one dog."}) + "\n")
    job = {
        "input": ["a.jsonl", "b.jsonl"],
        "output": "out",
        "stages": [*STAGES, {"pack": pack}],
        "workers": 0,
        "memory": "1GB",
    }
    (folder / "job.yaml").write_text(json.dumps(job))
    return folder / "job.yaml"


@pytest.fixture(scope="module")
def job(tmp_path_factory) -> Path:
    path = make_text_job(tmp_path_factory.mktemp("text") / "job", 24)
    penstock.run(path)
    return path


@pytest.fixture
def dataset(job) -> str:
    return str(job.parent / "out")


@pytest.fixture(autouse=True)
def _wide(monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")


def looked(capfd: Any, *arguments: str) -> Any:
    capfd.readouterr()
    assert main(["inspect", *arguments, "--json"]) == 0
    return document(capfd.readouterr().out)


def printed(capfd: Any, *arguments: str) -> str:
    capfd.readouterr()
    assert main(list(arguments)) == 0
    return str(capfd.readouterr().out)


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines()]


def tokens_of(steps: list[Any]) -> list[tuple[str, int, int, dict[str, int]]]:
    return [(step["step"], step["taken"], step["given"], step["set_aside"]) for step in steps]


@pytest.mark.proof
def test_a_run_accounts_for_tokens_beside_documents(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", {"length": 16, "method": "best_fit", "overflow": "truncate"})
    assert main(["run", str(path), "--json"]) == 0
    told = capfd.readouterr()
    facts = document(told.out)
    made, short, packed = tokens_of(facts["tokens"])
    assert made[0] == "tokenize"
    assert made[1] == made[2] == short[1]
    assert packed == ("pack", short[2], packed[2], {"truncated": short[2] - packed[2]})
    assert all(step["balances"] for step in facts["tokens"])
    assert "penstock: tokenize: Hugging Face tokenizers" in told.err

    lines = words(printed(capfd, "run", str(path)))
    assert ["tokenize", "tokens", f"{made[1]}", f"{made[2]}", "0"] in lines
    assert ["pack", "tokens", str(packed[1]), str(packed[2]), str(packed[1] - packed[2]), "truncated"] in lines


def test_a_plan_says_what_each_pass_of_a_text_job_reads_and_leaves(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = make_text_job(tmp_path / "job", 24)
    shown = printed(capfd, "plan", str(path))
    lines = {line.split("  ")[0]: re.split(r"\s{2,}", line) for line in shown.splitlines()}
    assert lines["pass"][1:] == ["0 hash", "1 match", "2 map", "3 pack"]
    assert lines["stages"][1:] == ["clean, filter, dedup", "dedup", "clean, filter, dedup, tokenize, filter", "pack"]
    assert lines["reads"][1:] == [
        "1 slice of the input",
        "the keys of pass 0",
        "1 slice of the input",
        "the tokens of pass 2",
    ]
    assert [each.partition(" of ")[2] for each in lines["writes"][1:]] == [
        "keys",
        "duplicate marks",
        "tokens",
        "output",
    ]
    assert "documents, in 1 slice" in lines["input"][1]
    assert lines["note"][1].startswith("tokenize: Hugging Face tokenizers")
    assert "pass 0 hashes them" in shown
    assert not (tmp_path / "job" / "out").exists()


def test_a_plan_as_json_has_threads_beside_workers(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", 24)
    facts = document(printed(capfd, "plan", str(path), "--json"))
    assert facts["input"]["unit"] == "documents"
    assert [each["threads"] >= 1 for each in facts["passes"]] == [True] * 4
    assert facts["settings"]["threads"] == max(each["threads"] for each in facts["passes"])


def test_inspect_tells_what_became_of_documents_and_tokens(dataset, capfd):
    facts = looked(capfd, dataset)
    text = facts["text"]
    assert text["documents"] == {
        "in": 7,
        "out": 5,
        "set_aside": {"characters(text) >= 10": 1, "duplicate": 1},
    }
    assert text["tokens"]["in"] == text["tokens"]["out"] + text["tokens"]["set_aside"]["tail"]
    assert text["rows"] == {"count": facts["splits"]["train"]["records"], "length": 24, "method": "wrapped", "fill": 1}
    assert [(each["name"], each["documents"]) for each in text["sources"]] == [("a.jsonl", 4), ("b.jsonl", 1)]
    assert sum(each["share"] for each in text["sources"]) == pytest.approx(1)
    assert sum(each["documents"] for each in text["lengths"]) == 5
    assert text["lengths"][0] == {"least": 8, "most": 15, "documents": 2}
    assert all(each["most"] == 2 * each["least"] - 1 for each in text["lengths"])

    shown = printed(capfd, "inspect", dataset)
    assert "7 in = 5 out + 1 (characters(text) >= 10) + 1 (duplicate)" in shown
    assert ["8", "to", "15", "2", "█" * 30] in words(shown)


def test_how_full_rows_are_is_told_of_documents_that_stay_whole(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", {"length": 64, "method": "best_fit"}))
    facts = looked(capfd, str(tmp_path / "job" / "out"))["text"]
    assert facts["rows"]["fill"] == facts["tokens"]["out"] / (64 * facts["rows"]["count"])
    assert 0 < facts["rows"]["fill"] < 1


def test_every_token_of_a_row_is_shown_with_its_text(dataset, capfd):
    facts = looked(capfd, dataset, "--records", "99")["records"]
    tokenizer = Tokenizer.from_file(str(TOKENIZER / "tokenizer.json"))
    assert facts["decoded_by"] == "artifacts/tokenizer.json"
    assert facts["documents"][0][0]["begins_here"]
    assert [each["begins_here"] for each in facts["documents"][1]] == [False, True]
    for record, documents in zip(facts["first"], facts["documents"], strict=True):
        pieces = [piece for each in documents for piece in each["pieces"]]
        assert [token for piece in pieces for token in piece["tokens"]] == record["tokens"]
        assert {each["start"] for each in documents} == {0, *record["documents"]}
        whole = tokenizer.decode(record["tokens"], skip_special_tokens=False)
        assert "".join(piece["text"] for piece in pieces).replace("\ufffd", "") == whole.replace("\ufffd", "")
    assert {piece["text"] for each in facts["documents"] for one in each for piece in one["pieces"]} >= {"灯", "é"}


def test_nothing_that_stands_in_a_text_moves_the_cursor(dataset, capfd):
    shown = printed(capfd, "inspect", dataset, "--records", "99")
    assert "␀" in shown
    assert "␛" in shown
    assert "\\u202e" in shown
    assert not set(shown) & {"\0", "\x1b", "\u202e"}
    assert visible("a\tb\r\n\x7f") == "a␉b␍␊\n\\u007f"


def drawn(row: Any, width: int = 80, **options: Any) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, **options)
    for part in row_tables("train[0]", [row]):
        console.print(part)
    return out.getvalue()


def test_tokens_alternate_in_colour_on_a_terminal_and_stand_between_bars_elsewhere():
    decoder = Decoder(decode=lambda ids: "".join(f"<{each}>" for each in ids), special=frozenset({9}))
    row = {"start": 0, "begins_here": True, "tokens": [1, 2, 9], "pieces": decoder.pieces([1, 2, 9])}

    colours = drawn(row, force_terminal=True, color_system="standard", no_color=False)
    assert "\x1b[30;46m<1>\x1b[0m\x1b[30;43m<2>\x1b[0m\x1b[1;37;41m<9>\x1b[0m" in colours
    assert "│<1>│<2>│<9>│" in drawn(row)


def test_a_line_ends_between_two_tokens_and_no_blank_is_lost():
    words = ["The", " ferry", " ", " to ", "  Small", " Aster\n", " leaves"]
    document = {"start": 0, "begins_here": True, "tokens": list(range(7))}
    document["pieces"] = [{"text": each, "tokens": [number], "special": False} for number, each in enumerate(words)]
    shown = drawn(document, width=12).splitlines()
    assert shown[-5:] == ["│The│ ferry│", " │ to │", "  Small│", " Aster␊", "│ leaves│"]
    document["pieces"][0]["text"] = "a b " * 5
    assert drawn(document, width=12).splitlines()[-7:-4] == ["a b a b a b ", "a b a b │", " ferry│ │"]


def test_bytes_of_a_character_that_a_row_cuts_apart_are_shown_as_bytes(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", 7, ["灯台🐟 \ufffd stands for others"]))
    facts = looked(capfd, str(tmp_path / "job" / "out"), "--records", "2")["records"]
    first, second = (documents[0]["pieces"] for documents in facts["documents"])
    assert [(each["text"], each.get("bytes")) for each in first] == [("灯", None), ("台", None), ("\ufffd", "f0")]
    assert [(each["text"], each.get("bytes")) for each in second[:3]] == [
        ("\ufffd", byte) for byte in ("9f", "90", "9f")
    ]
    shown = printed(capfd, "inspect", str(tmp_path / "job" / "out"), "--records", "9")
    assert "│灯│台│\\xf0│" in shown
    assert "│\\x9f│\\x90│\\x9f│ │\ufffd│" in shown


def test_bytes_are_dim_and_those_of_a_vocabulary_with_a_few_are_known():
    tokenizer = Tokenizer(models.BPE({"▁lamp": 0, "<0xE7>": 1, "<0x81>": 2, "<0xAF>": 3}, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.decoder = decoders.Sequence(steps)
    pieces = Decoder(tokenizer.decode, frozenset(), speller(tokenizer)).pieces([1, 2, 3, 0, 1, 2, 0, 3])
    assert [(each["text"], len(each["tokens"])) for each in pieces] == [
        ("灯", 3),
        (" lamp", 1),
        ("\ufffd", 2),
        (" lamp", 1),
        ("\ufffd", 1),
    ]
    row = {"start": 0, "begins_here": True, "tokens": [0] * 8, "pieces": pieces}
    assert "│灯│ lamp│\\xe7\\x81│ lamp│\\xaf│" in drawn(row)
    assert "\x1b[2;30;46m\\xe7\\x81\x1b[0m" in drawn(row, force_terminal=True, color_system="standard", no_color=False)


def test_a_long_row_is_shown_as_far_as_a_screen_goes_and_the_rest_counted(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", 400, [" ".join(map(str, range(300)))]))
    assert "\n... and 144 tokens more; --json has all" in printed(capfd, "inspect", str(tmp_path / "job" / "out"))


def test_a_word_keeps_the_blank_that_a_decoder_cuts_off_by_itself():
    tokenizer = Tokenizer(models.WordLevel({"▁the": 0, "▁lamp": 1, "s": 2}, "s"))
    tokenizer.decoder = decoders.Metaspace()
    pieces = Decoder(tokenizer.decode, frozenset()).pieces([0, 1, 2, 0])
    assert [each["text"] for each in pieces] == ["the", " lamp", "s", " the"]


def test_without_the_library_tokens_are_numbers(dataset, capfd, monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    facts = looked(capfd, dataset, "--records", "1")["records"]
    assert facts["decoded_by"] is None
    shown = printed(capfd, "inspect", dataset, "--records", "1")
    assert " ".join(map(str, facts["first"][0]["tokens"][:10])) in shown
    assert "pip install 'penstock[text]'" in shown


@pytest.mark.proof
def test_a_batch_of_packed_rows_is_shown_decoded(dataset, capfd):
    facts = looked(capfd, dataset, "--tokens", "--batch-size", "2", "--rows", "2")
    for row in facts["rows"]:
        for segment in row["segments"]:
            assert [token for piece in segment["pieces"] for token in piece["tokens"]] == segment["tokens"]
    assert "│" in printed(capfd, "inspect", dataset, "--tokens", "--batch-size", "2")


def test_a_tokenizer_that_is_not_the_one_that_was_written_is_not_trusted(tmp_path, capfd):
    penstock.run(make_text_job(tmp_path / "job", 24))
    (tmp_path / "job" / "out" / "artifacts" / "tokenizer.json").write_text("{}")
    assert main(["inspect", str(tmp_path / "job" / "out")]) == 6
    assert "artifacts/tokenizer.json" in capfd.readouterr().err


def test_a_corpus_of_which_nothing_is_left_is_shown_like_any_other(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", {"length": 4000})
    told = " ".join(printed(capfd, "run", str(path)).split())
    facts = looked(capfd, str(tmp_path / "job" / "out"))
    tail = facts["text"]["tokens"]["in"]
    aside = "2 of 7 documents were set aside: 1 (characters(text) >= 10), 1 (duplicate)"
    assert f"empty no record: {aside}; {tail} tokens are the tail, fewer than one row of 4,000 written" in told
    assert facts["text"]["rows"]["fill"] is None
    assert facts["text"]["tokens"]["out"] == 0
    assert "0 rows of 4,000 tokens, wrapped\n" in printed(capfd, "inspect", str(tmp_path / "job" / "out"))


@pytest.mark.proof
def test_a_job_that_sets_every_document_aside_says_for_what(tmp_path, capfd):
    path = make_text_job(tmp_path / "job", 24)
    remember = ["--set", f"stages.2={{dedup: {{remember: '{tmp_path / 'seen'}'}}}}"]
    assert "empty" not in printed(capfd, "run", str(path), *remember)
    told = printed(capfd, "run", str(path), *remember, "--output", str(tmp_path / "again"))
    reasons = "1 (characters(text) >= 10), 1 (duplicate), 5 (seen in an earlier job)"
    assert f"empty no record: all 7 documents were set aside: {reasons} written" in " ".join(told.split())
    split = ["--set", "stages=[clean, {split: {by: text, test: 0.000001}}]", "--output", str(tmp_path / "split")]
    assert "test: no record came into it; more groups or rows" in printed(capfd, "run", str(path), *split)


def test_doctor_says_which_libraries_for_text_are_there():
    (text,) = (check for check in doctor_facts(".")["checks"] if check["name"] == "libraries for text")
    assert re.search(r"tokenizers \d", text["found"])
    assert text["status"] == "ok"


@pytest.mark.proof
def test_the_preset_text_is_the_job_that_its_plan_prints(tmp_path, capfd, monkeypatch):
    make_text_job(tmp_path / "job", 24)
    monkeypatch.chdir(tmp_path)
    options = ["--input", "job/a.jsonl", "--output", "rows", "--workers", "0", "--memory", "1GB"]
    options += ["--set", f"tokenizer={TOKENIZER}", "--set", "length=16", "--set", "min_characters=10"]
    (tmp_path / "kept.yaml").write_text(printed(capfd, "plan", "text", *options).partition("As a job file:\n\n")[2])
    assert main(["run", "text", *options]) == 0
    assert "This job is done already" in printed(capfd, "run", "kept.yaml")
    assert main(["run", "text", *options[:4]]) == 2
    assert "preset text needs --set tokenizer=TOKENIZER" in capfd.readouterr().err


@pytest.mark.proof
def test_a_missing_column_of_text_is_named_in_a_way_that_a_command_and_a_file_can_follow(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text('{"body": "There are forty goats and one dog."}\n')
    options = ["--input", str(tmp_path / "a.jsonl"), "--output", str(tmp_path / "rows"), "--workers", "0"]
    options += ["--set", f"tokenizer={TOKENIZER}", "--set", "length=4"]
    assert main(["run", "text", *options]) == 2
    told = capfd.readouterr().err
    assert "`--set input.text_column=NAME`, in a job file `input: {path: ..., text_column: NAME}`" in told
    assert main(["run", "text", *options, "--set", "input.text_column=body"]) == 0
