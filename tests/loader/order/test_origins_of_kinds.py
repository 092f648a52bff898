"""Origins of every kind of batch: windows of samples, events, columns, and packed rows that others have packed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.stores import open_store
from penstock.shards.manifest import read_manifest
from penstock.shards.origins import ORIGIN, read_origins
from tests.promises import text_making

WINDOWS = [
    {"length": 30},
    {"length": 4, "window": "last"},
    {"length": 4, "window": "random"},
    {"length": 4, "window": {"sliding": 2}},
    {"length": 4, "window": {"sliding": 4}},
]


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Samples of 0 to 20 events, which know their file and number."""
    folder = tmp_path_factory.mktemp("games")
    (folder / "games").mkdir()
    for name, count in zip("abcd", (3, 4, 5, 6), strict=True):
        (folder / "games" / f"{name}.game").write_text(name * count)

    def samples(path):
        for number, letter in enumerate(path.read_text()):
            yield {"who": ord(letter), "number": number, "events": np.arange(4 * number, dtype="i4")}

    schema = {"who": "int32", "number": "int32", "events": "int32[*]"}
    source = {"files": str(folder / "games" / "*"), "function": samples, "schema": schema}
    penstock.run({"input": source, "output": str(folder / "out"), "memory": "2GB", "workers": 0, "slice_size": "1kB"})
    return folder / "out"


def name_and_number(window):
    return {"who": window["who"], "number": window["number"]}


def _named(loader: penstock.Loader) -> list[tuple[str, int]]:
    """File and number of the sample in each row, as its columns say; origin(k) must say the same."""
    found = []
    for k in range(len(loader)):
        batch, origins = loader.batch(k), loader.origin(k)
        own = [(f"{chr(who)}.game", number) for who, number in zip(batch["who"], batch["number"], strict=True)]
        assert [(each.file, each.position) for each in origins] == own
        assert [(each.row, each.segment) for each in origins] == [(row, 0) for row in range(len(own))]
        found += own
    return found


@pytest.mark.parametrize("encode", ["raw", name_and_number])
@pytest.mark.parametrize("min_length", [None, 5])
@pytest.mark.parametrize("window", WINDOWS)
def test_windows_have_the_origin_of_their_sample(games, encode, min_length, window):
    with penstock.load(
        games, batch_size=3, encode=encode, min_length=min_length, workers=0, epochs=1, **window
    ) as loader:
        named = _named(loader)
    whole = [("abcd"[file], number) for file, count in enumerate((3, 4, 5, 6)) for number in range(count)]
    long = {(f"{name}.game", number) for name, number in whole if 4 * number >= (min_length or 0)}
    assert set(named) <= long
    assert len(long - set(named)) < 3  # of a last batch that is not whole


def test_each_segment_of_events_has_the_origin_of_its_record(games):
    fields = {"events": {"int": 2}, "who": {"int": 2}}
    with penstock.load(games, batch_size=4, length=120, fields=fields, workers=0) as loader:
        several = 0
        for k in range(10):
            batch, origins = loader.batch(k), loader.origin(k)
            rows, places = np.nonzero(batch["inputs_segmentation"])
            numbers = batch["inputs_segmentation"][rows, places]
            segments = sorted(set(zip(rows.tolist(), numbers.tolist(), strict=True)))
            assert [(each.row, each.segment) for each in origins] == segments
            several += max(each.segment for each in origins) > 1
            for each in origins:
                tokens = batch["inputs"][each.row][batch["inputs_segmentation"][each.row] == each.segment]
                letters = {event["who"] for event in penstock.decode(tokens, loader.vocabulary)}
                assert letters == {ord(each.file[0])}
                assert each.position > 0  # the first sample of a file has no events
        assert several


# Packed rows.


@pytest.fixture(scope="module")
def packed_elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that another program has packed: the origin of a row is its own number, and it has four documents."""
    folder = tmp_path_factory.mktemp("elsewhere")
    chance = np.random.default_rng(1)
    tokens = [chance.integers(1, 100, 33).tolist() for _ in range(40)]
    starts = [sorted(chance.choice(np.arange(1, 30), 3, replace=False).tolist()) for _ in range(40)]
    columns = pa.array(tokens, pa.list_(pa.uint16())), pa.array(starts, pa.list_(pa.int32()))
    pq.write_table(pa.table(dict(zip(("tokens", "documents"), columns, strict=True))), folder / "t.parquet")
    job = {"input": str(folder / "t.parquet"), "output": str(folder / "out"), "provenance": True}
    penstock.run({**job, "workers": 0, "memory": "2GB"})
    return folder / "out"


OPTIONS: dict[str, Any] = {"batch_size": 4, "length": 32, "workers": 0, "shuffle": False, "epochs": 1}


def test_the_origin_of_a_row_is_that_of_all_its_segments(packed_elsewhere):
    with penstock.load(packed_elsewhere, **OPTIONS) as loader:
        found = [(each.row, each.segment, each.position) for each in loader.origin(1)]
    assert found == [(row, segment, 4 + row) for row in range(4) for segment in range(1, 5)]


@pytest.mark.parametrize("documents", [None, "varlen"])
def test_excluding_the_origin_of_a_row_clears_the_whole_row(packed_elsewhere, documents):
    with (
        penstock.load(packed_elsewhere, documents=documents, **OPTIONS) as plain,
        penstock.load(packed_elsewhere, documents=documents, exclude=["t.parquet:6"], **OPTIONS) as loader,
    ):
        one, two = plain.batch(1), loader.batch(1)
        for name in ("inputs", "inputs_segmentation", "targets", "targets_segmentation"):
            assert not two[name][2].any()
            assert np.array_equal(np.delete(one[name], 2, 0), np.delete(two[name], 2, 0))
        assert loader.stats().counts["segments_excluded"] == 4


def _packed(folder: Path, method: str = "wrapped") -> Path:
    (folder / "data").mkdir(parents=True)
    texts = list(dict.fromkeys(text for text in text_making.documents(120, 5) if text.strip()))[:60]
    (folder / "data" / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    tokenize = {"tokenizer": str(text_making.write_tokenizer(folder / "tokenizer")), "engine": "hf"}
    stages = [{"tokenize": tokenize}, {"pack": {"length": 33, "method": method}}]
    job = {"input": str(folder / "data"), "output": str(folder / "out"), "stages": stages}
    penstock.run({**job, "memory": "2GB", "workers": 0})
    return folder / "out"


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _packed(tmp_path_factory.mktemp("packed"))


@pytest.mark.parametrize(
    "options",
    [{"columns": ["tokens"]}, {"columns": ["documents"], "encode": "raw", "length": 40}],
)
def test_columns_of_a_packed_row_have_the_origins_of_all_its_documents(packed, options):
    store = open_store(str(packed))
    origins = read_origins(store, read_manifest(store))
    stored = [[origins.of(value) for value in record[ORIGIN]] for record in penstock.open(packed)]
    assert max(map(len, stored)) > 1
    with penstock.load(packed, batch_size=4, workers=0, shuffle=False, epochs=1, **options) as loader:
        for k in range(len(loader)):
            found = [(each.row, each.segment, each.file, each.position) for each in loader.origin(k)]
            assert found == [
                (row, number if len(stored[4 * k + row]) > 1 else 0, each.file, each.position)
                for row in range(4)
                for number, each in enumerate(stored[4 * k + row], start=1)
            ]


# Packed rows that another job has read.


def _read_again(packed: Any, output: Path, stages: list[Any], **keys: Any) -> Path:
    job = {
        "input": packed if isinstance(packed, list) else str(packed),
        "output": str(output),
        "stages": stages,
        "workers": 0,
        "memory": "2GB",
    }
    penstock.run({**job, **keys})
    return output


def _documents(loader: penstock.Loader, inputs: Path) -> dict[tuple[tuple[int, ...], int], tuple[Any, ...]]:
    """Place, hash and text of every segment, by the tokens of its row and its number."""
    found = {}
    for k in range(len(loader)):
        rows = loader.batch(k)["inputs"]
        for each in loader.origin(k, inputs):
            found[tuple(rows[each.row].tolist()), each.segment] = (*each[3:6], each.hash, each.document)
    return found


@pytest.mark.parametrize("method", ["wrapped", "best_fit"])
@pytest.mark.parametrize(
    "stages",
    [
        [{"filter": "length(documents) > 0"}],
        [{"split": {"test": 0.3}}],
        [{"select": {"documents": "documents", "tokens": "tokens"}}, {"filter": "length(tokens) > 0"}],
    ],
)
def test_a_job_that_leaves_packed_rows_as_they_are_keeps_the_origin_of_each_document(tmp_path, method, stages):
    first = _packed(tmp_path, method)
    second = _read_again(first, tmp_path / "again", stages, slice_size="1kB")
    third = _read_again(
        [{"path": str(second), "split": "train"}], tmp_path / "and-again", [{"filter": "length(tokens) > 0"}]
    )
    options = {**OPTIONS, "batch_size": 16, "remainder": "pad"}
    with penstock.load(first, **options) as plain, penstock.load(third, **options) as loader:
        before, after = (_documents(each, tmp_path / "data") for each in (plain, loader))
        assert after
        assert {place: before[place] for place in after} == after
        assert all(document is not None for *_, document in after.values())
        assert max(segment for _, segment in after) > 1
    listed = next(place for (_, segment), place in after.items() if segment == 2)
    for line in (f"{listed[1]}:{listed[2]}", listed[3]):
        with penstock.load(third, exclude=[line], **options) as loader:
            left = {each[3:6] for k in range(len(loader)) for each in loader.origin(k)}
            assert {place[:3] for place in after.values()} - left == {listed[:3]}


def test_a_mixture_of_packed_inputs_with_and_without_origins_says_what_it_knows(tmp_path, packed_elsewhere):
    packed = _packed(tmp_path, "best_fit")
    output = _read_again([str(packed), str(packed_elsewhere.parent / "t.parquet")], tmp_path / "both", [])
    with penstock.load(output, **{**OPTIONS, "batch_size": 16, "remainder": "pad"}) as loader:
        found = [each for k in range(len(loader)) for each in loader.origin(k)]
    assert {each.file for each in found} == {"a.jsonl", "t.parquet"}
    for each in found:
        if each.file == "t.parquet":
            assert sum(other.position == each.position and other.file == each.file for other in found) == 4


def swap(batch):
    return batch


@pytest.mark.parametrize("stages", [[swap], [{"pack": 33}]])
def test_a_job_that_may_move_documents_keeps_no_origins_of_them(tmp_path, stages):
    output = _read_again(_packed(tmp_path, "best_fit"), tmp_path / "again", stages, provenance=True)
    with penstock.load(output, **OPTIONS) as loader:
        assert {each.file for each in loader.origin(0)} == {"train"}


def test_documents_that_a_job_no_longer_tells_apart_are_excluded_with_their_row(packed, tmp_path):
    output = _read_again(packed, tmp_path / "out", [{"select": ["tokens"]}])
    with penstock.load(packed, **OPTIONS) as loader:
        listed = next(each for each in loader.origin(0) if each.segment == 2)
        beside = {each.position for each in loader.origin(0) if each.row == listed.row}
    with penstock.load(output, **OPTIONS) as plain, penstock.load(output, exclude=[listed.hash], **OPTIONS) as loader:
        of_row = [each for each in plain.origin(0) if each.row == listed.row]
        assert {each.position for each in of_row} >= beside
        assert {each.segment for each in of_row} == {1}
        assert not loader.batch(0)["inputs_segmentation"][listed.row].any()
