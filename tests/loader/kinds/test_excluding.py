"""Excluding: documents on a list become padding where they stand, and nothing else changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xxhash

import penstock
from penstock.base.errors import ConfigError
from tests.promises import text_making

OPTIONS: dict[str, Any] = {"batch_size": 4, "seed": 3, "workers": 0, "epochs": 1}


@pytest.fixture(scope="module", params=["wrapped", "best_fit"])
def packed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two inputs, each with a file a.jsonl; only the first has b.jsonl."""
    folder = tmp_path_factory.mktemp("excluding")
    files = text_making.files_of_documents(3, 40)
    for name, texts in zip(("one/a", "one/b", "two/a"), files, strict=True):
        path = folder / f"{name}.jsonl"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(json.dumps({"text": text, "mark": 3}) + "\n" for text in texts))
    clean, _, tokenize, _ = text_making.stages()
    pack = {"length": 33, "method": request.param, "keep": ["mark"]}
    inputs = [{"path": str(folder / each)} for each in ("one", "two")]
    keys = {"input": inputs, "stages": [clean, tokenize, {"pack": pack}], "provenance": True, "slice_size": "2kB"}
    penstock.run(text_making.write_job(folder / "job.yaml", "", **keys))
    return folder / "out"


def _origins(loader: penstock.Loader) -> list[tuple[int, Any]]:
    return [(k, each) for k in range(len(loader)) for each in loader.origin(k)]


def _chosen(packed: Path) -> list[Any]:
    """Documents of b.jsonl, one that is cut over rows if there is one, and a document of two/a.jsonl."""
    with penstock.load(packed, length=32, **OPTIONS) as loader:
        found = [each for _, each in _origins(loader) if each.tokens > 2]
    places = [each[3:6] for each in found]
    cut = next((place for place in places if place[1] == "b.jsonl" and places.count(place) > 1), None)
    whole = next(place for place in places if place[1] == "b.jsonl" and place != cut)
    other = next(place for place in places if place[0] == 1)
    return [place for place in (cut, whole, other) if place]


def test_only_the_listed_documents_become_padding(packed):
    chosen = _chosen(packed)
    with (
        penstock.load(packed, length=32, **OPTIONS) as plain,
        penstock.load(packed, length=33, **OPTIONS) as longer,  # it has the token that is only a target here
        penstock.load(packed, length=32, exclude=chosen, **OPTIONS) as loader,
    ):
        excluded = {(k, each.row, each.segment) for k, each in _origins(longer) if each[3:6] in chosen}
        listed = {(k, each.row, each.segment) for k, each in _origins(plain)}
        assert len(excluded) >= len(chosen)
        for k in range(len(plain)):
            one, two = plain.batch(k), loader.batch(k)
            for row in range(4):
                own = [segment for at, of, segment in excluded if (at, of) == (k, row)]
                here = np.isin(one["inputs_segmentation"][row], own)
                last = one["targets_segmentation"][row][-1] or one["inputs_segmentation"][row][-1] + 1
                behind = np.isin(np.append(one["inputs_segmentation"][row][1:], last), own)
                for name, array in one.items():
                    gone = here if name.startswith("inputs") else behind
                    assert not two[name][row][gone].any()
                    assert np.array_equal(two[name][row][~gone], array[row][~gone])
        counted = loader.stats().counts["segments_excluded"]
        assert counted == len(excluded & listed)
        assert {(k, each.row, each.segment) for k, each in _origins(loader)} == listed - excluded


def test_the_plain_reference_gives_the_same_batches(packed, monkeypatch):
    chosen = _chosen(packed)
    with penstock.load(packed, length=32, exclude=chosen, **OPTIONS) as loader:
        compiled = [loader.batch(k) for k in range(len(loader))]
    monkeypatch.setattr("penstock.loader.kinds.rows.compiled", lambda: False)
    with penstock.load(packed, length=32, exclude=chosen, **OPTIONS) as loader:
        for k, batch in enumerate(compiled):
            plain = loader.batch(k)
            assert all(np.array_equal(plain[name], batch[name]) for name in batch)


def test_a_state_of_before_is_restored_with_a_longer_list(packed, tmp_path):
    first, *_ = chosen = _chosen(packed)
    (tmp_path / "ids.txt").write_text("".join(json.dumps(each) + "\n" for each in chosen))
    with penstock.load(packed, length=32, exclude=[first], **OPTIONS) as loader:
        next(loader)
        state = loader.state()
    with penstock.load(packed, length=32, exclude=tmp_path / "ids.txt", **OPTIONS) as loader:
        loader.restore(state)
        batch = next(loader)
        assert all(np.array_equal(batch[name], loader.batch(1)[name]) for name in batch)


def test_a_line_names_file_and_position(packed):
    place = next(each for each in _chosen(packed) if each[1] == "b.jsonl")
    with penstock.load(packed, length=32, exclude=[f"b.jsonl:{place[2]}"], **OPTIONS) as loader:
        assert not any(each[3:6] == place for _, each in _origins(loader))


def test_an_origin_may_be_given_as_it_came_and_a_file_may_have_comments(packed, tmp_path):
    with penstock.load(packed, length=32, **OPTIONS) as loader:
        origin = loader.origin(0)[0]
    (tmp_path / "ids.txt").write_text(f"# a spike at step 0\n{origin.file}:{origin.position}\n")
    for given in ([origin], tmp_path / "ids.txt"):
        with penstock.load(packed, length=32, exclude=given, **OPTIONS) as loader:
            assert not any(each.file == origin.file and each.position == origin.position for each in loader.origin(0))


def _texts(packed: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (packed.parent / "one" / "b.jsonl").open()]


def test_a_document_is_found_by_the_hash_of_its_text(packed):
    place = next(each for each in _chosen(packed) if each[1] == "b.jsonl")
    with penstock.load(packed, length=33, **OPTIONS) as plain:  # it has the token that is only a target else
        every = [each for _, each in _origins(plain)]
    found = next(each.hash for each in every if each[3:6] == place)
    assert found in [xxhash.xxh3_64_hexdigest(text.encode()) for text in _texts(packed)]
    equal = sorted({each[3:6] for each in every if each.hash == found})  # documents of the same text
    with (
        penstock.load(packed, length=32, exclude=equal, **OPTIONS) as by_origin,
        penstock.load(packed, length=32, exclude=[found], **OPTIONS) as by_hash,
    ):
        for k in range(len(by_hash)):
            one, two = by_origin.batch(k), by_hash.batch(k)
            assert all(np.array_equal(one[name], two[name]) for name in one)


def test_origins_and_hashes_stand_in_one_list_and_lines_without_a_match_are_named(packed, tmp_path):
    *_, first, second = _chosen(packed)
    with penstock.load(packed, length=32, **OPTIONS) as plain:
        found = next(each.hash for _, each in _origins(plain) if each[3:6] == second)
    (tmp_path / "ids.txt").write_text(f"{json.dumps(first)}\n\n{found}\nb.jsonl:987654\n0123456789ABCDEF\n")
    with pytest.warns(UserWarning, match="2 of the 4 documents .*: b.jsonl:987654, 0123456789abcdef$"):
        loader = penstock.load(packed, length=32, exclude=tmp_path / "ids.txt", **OPTIONS)
    with loader:
        assert not {each[3:6] for _, each in _origins(loader)} & {first, second}


def test_hashes_need_a_dataset_that_keeps_them(tmp_path):
    (tmp_path / "a.jsonl").write_text(json.dumps({"text": "water flows through the gate " * 20}) + "\n")
    _, _, tokenize, _ = text_making.stages(text_making.write_tokenizer(tmp_path / "tokenizer"))
    job = {"input": str(tmp_path / "a.jsonl"), "output": str(tmp_path / "out"), "stages": [tokenize, {"pack": 33}]}
    penstock.run({**job, "provenance": "origins", "workers": 0, "memory": "2GB"})
    with pytest.raises(ConfigError, match="keeps no content hashes"):
        penstock.load(tmp_path / "out", batch_size=1, workers=0, exclude=["0123456789abcdef"])


# With documents="varlen".


@pytest.mark.parametrize("is_compiled", [True, False])
def test_an_excluded_document_stays_a_sequence_of_padding(packed, monkeypatch, is_compiled):
    chosen = _chosen(packed)
    if not is_compiled:
        monkeypatch.setattr("penstock.loader.kinds.rows.compiled", lambda: False)
        monkeypatch.setattr("penstock.loader.kinds.documents.compiled", lambda: False)
    varlen = {**OPTIONS, "length": 32, "documents": "varlen"}
    with (
        penstock.load(packed, **varlen) as plain,
        penstock.load(packed, exclude=chosen, **varlen) as loader,
        penstock.load(packed, length=32, exclude=chosen, **OPTIONS) as rows,
    ):
        gone = 0
        for k in range(len(plain)):
            one, two, three = plain.batch(k), loader.batch(k), rows.batch(k)
            for name in ("cu_seqlens", "position_ids", "seq_idx"):
                assert np.array_equal(one[name], two[name])
            for name in two.keys() & three.keys():
                assert np.array_equal(two[name], three[name])
            edges = two["cu_seqlens"]
            assert len(edges) == len(one["cu_seqlens"])
            assert (np.diff(edges) >= 0).all()
            assert edges[-1] == two["inputs"].size
            gone += int(np.count_nonzero(one["inputs_segmentation"]) - np.count_nonzero(two["inputs_segmentation"]))
        assert gone > 0
        assert loader.stats().counts["segments_excluded"] == rows.stats().counts["segments_excluded"]


def test_what_cannot_be_meant_is_refused(packed, tmp_path):
    def refused(match: str, exclude: Any, path: Path = packed) -> None:
        with pytest.raises(ConfigError, match=match):
            penstock.load(path, length=32, exclude=exclude, **OPTIONS)

    refused("none of the 2 documents .*: b.jsonl:123456789, c.jsonl:0", ["b.jsonl:123456789", "c.jsonl:0"])
    refused("none of the 1 documents .*: 0123456789abcdef", ["0123456789abcdef"])
    refused("the list to exclude is empty", [])
    refused("may be of several inputs: 0, 1", ["a.jsonl:0"])
    refused("neither an origin nor a hash", ["b.jsonl"])
    refused("neither an origin nor a hash", ['{"position": 3}'])
    refused("neither an origin nor a hash", [{"file": None, "position": None, "dataset": "elsewhere"}])
    for position in (1.5, -1, True, 2**70, "3"):
        refused("neither an origin nor a hash", [[0, "b.jsonl", position]])
    refused("neither an origin nor a hash", [[True, "b.jsonl", 3]])
    refused("neither an origin nor a hash", ["b.jsonl:-1", f"b.jsonl:{2**70}"])
    refused("cannot be read", tmp_path / "missing.txt")
    (tmp_path / "latin.txt").write_bytes("é.jsonl:3".encode("latin-1"))
    refused("cannot be read: it is not UTF-8", tmp_path / "latin.txt")


def test_a_position_beyond_all_others_is_that_of_no_other_document(packed):
    """A stored origin has the number of its piece above the bits of its position."""
    table = json.loads((packed / "artifacts" / "origins.json").read_text())
    source, file, _ = table["pieces"][0]
    with penstock.load(packed, length=32, **OPTIONS) as plain:
        positions = {each.position for _, each in _origins(plain)}
    beyond = [
        [source, file, number << table["shift"] | each]
        for number in range(1, len(table["pieces"]))
        for each in positions
    ]
    with pytest.raises(ConfigError, match=f"none of the {len(beyond):,} documents"):
        penstock.load(packed, length=32, exclude=beyond, **OPTIONS)


@pytest.mark.parametrize("form", ["objects", "jsonl with a byte order mark", "dicts"])
def test_what_origin_shows_can_be_excluded_as_it_came(packed, tmp_path, form):
    with penstock.load(packed, length=32, **OPTIONS) as plain:
        found = [each for _, each in _origins(plain) if each.tokens > 2][:3]
    dumped = "".join(json.dumps(each._asdict()) + "\n" for each in found)
    (tmp_path / "spike.jsonl").write_text(dumped, encoding="utf-8-sig")
    given = {"objects": found, "dicts": [each._asdict() for each in found]}.get(form, tmp_path / "spike.jsonl")
    with (
        penstock.load(packed, length=32, exclude=given, **OPTIONS) as loader,
        penstock.load(packed, length=32, exclude=[each[3:6] for each in found], **OPTIONS) as expected,
    ):
        for k in range(len(loader)):
            assert all(np.array_equal(array, loader.batch(k)[name]) for name, array in expected.batch(k).items())


# Several datasets.


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Two datasets whose input files have the same name."""
    folder = tmp_path_factory.mktemp("several")
    for name in ("gate", "door"):
        (folder / f"in-{name}").mkdir()
        lines = "".join(json.dumps({"text": f"{name} {n} is open " + "water " * (n % 7)}) + "\n" for n in range(40))
        (folder / f"in-{name}" / "a.jsonl").write_text(lines)
        _, _, tokenize, _ = text_making.stages(text_making.write_tokenizer(folder / "tokenizer"))
        job = {"input": str(folder / f"in-{name}"), "output": str(folder / name), "stages": [tokenize, {"pack": 33}]}
        penstock.run({**job, "workers": 0, "memory": "2GB"})
    return [str(folder / name) for name in ("gate", "door")]


def _gone(datasets: list[str], exclude: Any) -> set[tuple[str, int]]:
    """Documents of which a part became padding, by dataset and position."""
    with (
        penstock.load(datasets, **OPTIONS) as plain,
        penstock.load(datasets, exclude=exclude, **OPTIONS) as loader,
    ):
        every = {(k, each.row, each.segment): each for k, each in _origins(plain)}
        left = {(k, each.row, each.segment) for k, each in _origins(loader)}
    return {(each.dataset, each.position) for place, each in every.items() if place not in left}


def test_an_origin_of_one_dataset_is_excluded_only_there(two):
    with penstock.load(two, **OPTIONS) as plain:
        first = next(each for _, each in _origins(plain) if each.dataset == two[1])
    place = {"dataset": two[1], "file": "a.jsonl", "position": first.position}
    for given in (first, place, json.dumps(place), {**place, "source": 0}):
        assert _gone(two, [given]) == {(two[1], first.position)}


def test_an_origin_of_another_dataset_excludes_nothing(two):
    with penstock.load(two, **OPTIONS) as plain:
        first = next(each for _, each in _origins(plain) if each.dataset == two[1])
    missing = f"{two[1]}: a.jsonl:{first.position}. {two[1]}: not loaded here"
    with pytest.raises(ConfigError, match=f"none of the 1 documents .*: {missing}"):
        penstock.load(two[0], exclude=[first], **OPTIONS)
    with pytest.warns(UserWarning, match=f"1 of the 2 documents .*: {missing}"):
        assert _gone(two[:1], [first, "a.jsonl:3"]) == {(two[0], 3)}


@pytest.mark.parametrize("line", ["a.jsonl:5", [0, "a.jsonl", 5]])
def test_a_line_that_may_be_of_several_datasets_is_refused_by_name(two, line):
    with pytest.raises(ConfigError, match=rf"a.jsonl:5 may be of several datasets: {two[0]}, {two[1]}") as refused:
        penstock.load(two, exclude=[line], **OPTIONS)
    (proposed,) = [each for each in str(refused.value).split("\n") if "name the one: " in each]
    assert _gone(two, [proposed.partition("name the one: ")[2]]) == {(two[0], 5)}


def test_shares_of_tokens_do_not_depend_on_the_list(two):
    options = {**OPTIONS, "epochs": None, "mix_by": "tokens"}
    with penstock.load(two, **options) as plain:
        listed = [each for _, each in _origins(plain) if each.dataset == two[1]]
        with penstock.load(two, exclude=listed, **options) as loader:
            assert loader.state() == plain.state()
            assert not {each.dataset for _, each in _origins(loader)} & {two[1]}
            for k in range(len(plain)):
                one, other = plain.batch(k)["inputs"], loader.batch(k)["inputs"]
                assert ((other == one) | (other == 0)).all()


def test_a_hash_is_excluded_in_every_dataset(two):
    with penstock.load(two, **OPTIONS) as plain:
        found = {each.dataset: each for _, each in _origins(plain) if each.position == 5}
    gone = _gone(two, [{"hash": found[two[0]].hash}, found[two[1]].hash])
    assert gone == {(two[0], 5), (two[1], 5)}


def test_the_same_dataset_twice_is_one(two):
    assert _gone([two[0], two[0]], ["a.jsonl:5"]) == {(two[0], 5)}


@pytest.mark.parametrize(
    ("options", "loaded"),
    [
        ({}, "columns as they are$"),
        ({"columns": ["x"]}, "columns as they are, as columns= asks$"),
        ({"encode": "raw", "length": 3}, "windows of records, as encode= asks$"),
        ({"fields": {"x": {"int": 2}}}, "tokens of events, as fields= asks$"),
    ],
)
def test_other_kinds_of_data_take_no_list_and_say_what_they_are(tmp_path, options, loaded):
    (tmp_path / "a.csv").write_text("x\n1\n2\n")
    penstock.run({"input": str(tmp_path / "a.csv"), "output": str(tmp_path / "out"), "workers": 0, "memory": "2GB"})
    words = f"exclude= is an option for packed rows of tokens, but this dataset is loaded as {loaded}"
    with pytest.raises(ConfigError) as refused:
        penstock.load(tmp_path / "out", batch_size=1, exclude=["a.csv:0"], **options)
    assert re.search(words, str(refused.value), re.MULTILINE)


def test_columns_of_packed_rows_take_no_list(packed):
    with pytest.raises(ConfigError, match="loaded as columns as they are, as columns= asks"):
        penstock.load(packed, batch_size=1, exclude=["b.jsonl:0"], columns=["tokens"])
