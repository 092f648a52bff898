"""Promise 3 and 4, of origins: each segment leads to the very text in its file, and the same bytes however it ran."""

from __future__ import annotations

import itertools
import json
import random
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError, OutputError
from penstock.base.stores import open_store
from penstock.shards.manifest import read_manifest
from penstock.shards.origins import HASH, ORIGIN, Origin, Origins, content_hash, read_origins
from tests.promises import killing, text_making, workshop

LENGTH = 48
METHODS = ("wrapped", "best_fit", "none")


def _stages(method: str = "wrapped", **pack: Any) -> list[Any]:
    clean, dedup, tokenize, _ = text_making.stages()
    return [clean, dedup, {"split": {"test": 0.2}}, tokenize, {"pack": {"length": LENGTH, "method": method, **pack}}]


def _write_lines(path: Path, texts: list[str]) -> None:
    """JSONL with blank lines in between, which are no records."""
    path.parent.mkdir(parents=True, exist_ok=True)
    chance = random.Random(len(texts))
    with path.open("w") as file:
        for text in texts:
            file.write("\n" * chance.randrange(3) + json.dumps({"text": text}) + "\n")


def _write(folder: Path, files: int = 2, count: int = 40) -> list[dict[str, Any]]:
    """Two sources whose files have the same names, one of them of many small slices; long documents are cut."""
    every = text_making.files_of_documents(2 * files, count)
    for number in range(files):
        _write_lines(folder / "one" / f"{number}.jsonl", every[number])
        _write_lines(folder / "two" / f"{number}.jsonl", every[files + number])
    return [{"path": str(folder / each), "text_column": "text"} for each in ("one", "two")]


def _origins(output: Path) -> Origins:
    store = open_store(str(output))
    found = read_origins(store, read_manifest(store))
    assert found is not None
    return found


def _text_at(sources: list[dict[str, Any]], origins: Origins, value: int) -> str:
    """The text at an origin, read in plain Python: the records behind the start of the piece are counted."""
    piece, origin = origins.piece_of(value), origins.of(value)
    data = (Path(sources[origin.source]["path"]) / origin.file).read_bytes()
    start = piece.first if piece.first == 0 else data.index(b"\n", piece.first - 1) + 1
    lines = [line for line in data[start:].split(b"\n") if line.strip()]
    return str(json.loads(lines[origin.position - piece.first])["text"])


def _segments(output: Path) -> list[tuple[int, list[int]]]:
    """Origin and tokens of each segment of all rows, in their order."""
    found = []
    for split in ("train", "test"):
        for record in text_making.records_of(output, split):
            edges = [*sorted({0, *record["documents"]}), len(record["tokens"])]
            assert len(record[ORIGIN]) == len(edges) - 1
            pieces = (record["tokens"][low:high] for low, high in itertools.pairwise(edges))
            found += list(zip(record[ORIGIN], pieces, strict=True))
    return found


@pytest.mark.parametrize("overflow", ["split", "truncate"])
@pytest.mark.parametrize("method", METHODS)
def test_every_segment_leads_to_its_text(tmp_path, method, overflow):
    if method == "wrapped" and overflow == "truncate":
        return
    sources = _write(tmp_path / "data")
    stages = _stages(method, overflow=overflow)
    penstock.run(
        text_making.write_job(
            tmp_path / "job.yaml", "", input=sources, stages=stages, slice_size="2kB", provenance=True
        )
    )
    origins, cut = _origins(tmp_path / "out"), 0
    pieces: dict[int, list[list[int]]] = defaultdict(list)
    for value, tokens in _segments(tmp_path / "out"):
        pieces[value].append(tokens)
    assert len({piece.file for piece in origins.pieces}) == 2
    assert len(origins.pieces) > 8
    assert {origins.of(value).source for value in pieces} == {0, 1}
    for value, own in pieces.items():
        ids = text_making.ids_of(_text_at(sources, origins, value).strip())
        cut += len(own) > 1
        if method == "wrapped":  # the stream's tail is in no row
            assert ids[: sum(map(len, own))] == [token for each in own for token in each]
        elif overflow == "truncate":
            assert own == [ids[:LENGTH]]
        else:
            assert sorted(own) == sorted(ids[start : start + LENGTH] for start in range(0, len(ids), LENGTH))
    assert cut or overflow == "truncate"


def test_samples_have_the_origin_of_each_row(tmp_path):
    for name, count in {"a.game": 5, "b.game": 0, "c.game": 3}.items():
        (tmp_path / "games").mkdir(exist_ok=True)
        (tmp_path / "games" / name).write_text("x" * count)

    def samples(path):
        for number in range(len(path.read_text())):
            yield {"features": np.full(4, number, "f4"), "labels_name": ord(path.name[0])}

    job = {
        "input": {"files": str(tmp_path / "games" / "*"), "function": samples},
        "output": str(tmp_path / "out"),
        "stages": [{"split": {"test": 0.4}}, {"normalize": {"columns": ["features"]}}],
        "provenance": True,
        "memory": "2GB",
        "workers": 0,
    }
    penstock.run(job)
    origins, seen = _origins(tmp_path / "out"), set()
    for split in ("train", "test"):
        for record in penstock.open(tmp_path / "out", split):
            origin = origins.of(record[ORIGIN])
            assert origin.file[0] == chr(record["labels_name"])
            seen.add((origin.file, origin.position))
    assert seen == {*(("a.game", n) for n in range(5)), *(("c.game", n) for n in range(3))}
    assert penstock.verify(tmp_path / "out").ok


def test_rows_of_tables_have_it_too(tmp_path):
    text_making.write_documents(tmp_path / "data", ["a", "b", "c"], ["d", "e"], group=2)
    job = {"input": str(tmp_path / "data"), "output": str(tmp_path / "out"), "stages": [{"filter": "id > 0"}]}
    penstock.run({**job, "provenance": True, "workers": 0, "memory": "2GB", "slice_size": "1kB"})
    origins = _origins(tmp_path / "out")
    found = [(record["text"], origins.of(record[ORIGIN])) for record in penstock.open(tmp_path / "out")]
    assert found == [
        ("b", Origin(0, "0.parquet", 1)),
        ("c", Origin(0, "0.parquet", 2)),
        ("e", Origin(0, "1.parquet", 1)),
    ]


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"stages": [{"group": {"by": "text", "order": "id"}}]}, "`group` makes one record of many rows"),
        ({"stages": [{"select": {"_origin": "id"}}]}, "there is already a column '_origin'"),
        ({"intermediate_dir": "kept"}, "does not work with intermediate_dir"),
    ],
)
def test_jobs_that_cannot_keep_origins_are_refused(tmp_path, keys, words):
    text_making.write_documents(tmp_path / "data", ["a", "b"])
    job = {"input": str(tmp_path / "data"), "output": str(tmp_path / "out"), "workers": 0, "memory": "2GB"}
    with pytest.raises(ConfigError, match=words):
        penstock.run({**job, **keys, "provenance": True})


# The default.


@pytest.mark.parametrize(
    ("keys", "columns"),
    [
        ({"stages": ["clean"]}, ["id", "text", "_origin", "_origin_hash"]),
        (
            {"stages": [{"select": {"body": "text"}}, {"dedup": {"column": "body"}}]},
            ["body", "_origin", "_origin_hash"],
        ),
        ({"stages": ["clean"], "provenance": "origins"}, ["id", "text", "_origin"]),
        ({"stages": ["clean"], "provenance": False}, ["id", "text"]),
        ({"stages": [{"filter": "id >= 0"}]}, ["id", "text"]),
        ({"stages": ["clean", {"group": {"by": "text", "order": "id"}}]}, ["text", "id"]),
    ],
)
def test_jobs_of_documents_keep_origins_unless_they_group(tmp_path, keys, columns):
    text_making.write_documents(tmp_path / "data", ["a", "b"])
    job = {"input": str(tmp_path / "data"), "output": str(tmp_path / "out"), "workers": 0, "memory": "2GB"}
    penstock.run({**job, **keys})
    assert sorted(field.name for field in penstock.open(tmp_path / "out").schema) == sorted(columns)


def test_an_output_of_before_is_not_mixed_and_the_error_says_how_to_keep_it(tmp_path):
    text_making.write_documents(tmp_path / "data", ["a", "b"])
    job = {"input": str(tmp_path / "data"), "output": str(tmp_path / "out"), "stages": ["clean"], "workers": 0}
    before = penstock.run({**job, "memory": "2GB", "provenance": False})
    with pytest.raises(OutputError, match=r"provenance: null -> true.*\n.*\n.*`provenance: false` keeps it"):
        penstock.run({**job, "memory": "2GB"})
    assert penstock.run({**job, "memory": "2GB", "provenance": False}).job == before.job


# A dataset of a dataset.


def test_a_dataset_of_datasets_keeps_the_origins_of_the_first_input(tmp_path):
    sources = _write(tmp_path / "data")
    usual = {"workers": 0, "memory": "2GB", "slice_size": "2kB"}
    penstock.run({"input": sources, "output": str(tmp_path / "texts"), "stages": ["clean", "dedup"], **usual})
    _write_lines(tmp_path / "more" / "new.jsonl", ["one more", "and another"])
    job = text_making.write_job(
        tmp_path / "job.yaml",
        "",
        input=[{"path": str(tmp_path / "more")}, {"path": str(tmp_path / "texts")}],
        stages=[{"select": ["text"]}, *_stages("best_fit")[3:]],
        **usual,
    )
    penstock.run(job)
    origins = _origins(tmp_path / "out")
    assert [each["format"] for each in origins.sources or ()] == ["auto"] * 3
    folders = [{"path": str(tmp_path / "more")}, *sources]
    seen = set()
    for record in text_making.records_of(tmp_path / "out", "train"):
        for value, hashed in zip(record[ORIGIN], record[HASH], strict=True):
            text = _text_at(folders, origins, value)
            assert content_hash(text.encode()) == hashed
            seen.add(origins.of(value).source)
    assert seen == {0, 1, 2}


def test_rows_of_a_dataset_with_origins_keep_them_whatever_the_stages(tmp_path):
    text_making.write_documents(tmp_path / "data", ["a", "b", "c"])
    usual = {"workers": 0, "memory": "2GB"}
    penstock.run({"input": str(tmp_path / "data"), "output": str(tmp_path / "one"), "stages": ["clean"], **usual})
    second = {"input": str(tmp_path / "one"), "output": str(tmp_path / "two"), "stages": [{"filter": "id > 0"}]}
    penstock.run({**second, **usual})
    origins = _origins(tmp_path / "two")
    found = [(record["text"], origins.of(record[ORIGIN])[1:]) for record in penstock.open(tmp_path / "two")]
    assert found == [("b", ("0.parquet", 1)), ("c", ("0.parquet", 2))]
    assert [record[HASH] for record in penstock.open(tmp_path / "two")] == [content_hash(b"b"), content_hash(b"c")]


# Elsewhere.


def test_exports_leave_origins_out(tmp_path):
    text_making.write_documents(tmp_path / "data", ["some water flows", "through the gate"])
    job = {"input": str(tmp_path / "data"), "output": str(tmp_path / "out"), "workers": 0, "memory": "2GB"}
    stages = [{"tokenize": {"tokenizer": str(text_making.write_tokenizer(tmp_path / "tokenizer"))}}, {"pack": 4}]
    penstock.run({**job, "stages": stages})
    for to in ("hf", "hdf5", "zarr", "megatron"):
        penstock.export(tmp_path / "out", to=to, output=tmp_path / to)
    (rows,) = (tmp_path / "hf").rglob("*.arrow")
    assert pa.ipc.open_stream(rows).schema.names == ["input_ids", "seq_lengths"]
    with h5py.File(tmp_path / "hdf5") as file:
        assert sorted(file["train"]) == ["documents", "tokens"]
    assert not [path for path in (tmp_path / "zarr").rglob("*") if "_origin" in path.name]


# The same bytes.


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> killing.Clean:
    folder = tmp_path_factory.mktemp("provenance")
    keys = {"input": _write(folder / "data"), "stages": _stages(), "provenance": True}
    return killing.clean_run(folder, partial(text_making.write_job, data="", **keys))


@pytest.mark.parametrize("point", ["pack.before_ledger", "task.after_shards", "run.before_manifest"])
def test_a_crash_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


def test_workers_do_not_show(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml", workers=2)
    workshop.run_well(job)
    clean.assert_is_there(job)
