"""A file's format is what its name or the job says."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import InputError
from penstock.prepare.job.config import Config
from penstock.prepare.sources.reading.input_file import identity_of_ends
from penstock.prepare.sources.registry import compression_of, format_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.parquet", "parquet"),
        ("a.PQ", "parquet"),
        ("a.csv", "csv"),
        ("a.tsv.gz", "csv"),
        ("a.jsonl.zst", "jsonl"),
        ("a.jsonl.zstd", "jsonl"),
        ("a.mds.zstd", "mds"),
        ("a.idx", "megatron"),
        ("a.ndjson", "jsonl"),
        ("a.JSON.bz2", "jsonl"),
        ("a.arrow", "arrow"),
        ("a.feather", "arrow"),
        ("a.txt.zst", "text"),
    ],
)
def test_the_name_tells_the_format(name, expected):
    assert format_of(name, "auto") == expected


def test_a_declared_format_wins_over_the_name():
    assert format_of("data.txt", "csv") == "csv"
    assert format_of("data.csv", "jsonl") == "jsonl"


def test_a_name_that_tells_nothing_is_refused_with_what_to_write():
    with pytest.raises(InputError) as caught:
        format_of("data.dat", "auto")
    assert "format: parquet | csv | jsonl" in str(caught.value)


def test_the_suffix_tells_the_compression():
    names = ["a.csv", "a.csv.gz", "a.csv.ZST", "a.csv.bz2"]
    assert [compression_of(name) for name in names] == [None, "gzip", "zstd", "bz2"]


def test_a_changed_end_is_another_identity(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x" * 200_000)
    first = identity_of_ends(str(path))
    path.write_bytes(b"x" * 199_999 + b"y")
    assert identity_of_ends(str(path)) != first
    path.write_bytes(b"y" + b"x" * 199_999)
    assert identity_of_ends(str(path)) != first


@pytest.mark.parametrize("ending", ["parquet", "csv", "jsonl", "txt", "arrow", "npz"])
def test_a_file_whose_name_is_no_utf8_is_read(ending, tmp_path):
    name = os.fsdecode(b"not \xff utf-8") + f".{ending}"
    (tmp_path / "data").mkdir()
    _write(tmp_path / "data" / name, ending)
    source = {"npz": "data"} if ending == "npz" else "data"
    manifest = penstock.run(Config({"input": source, "output": "out", "workers": 0}, folder=str(tmp_path)))
    assert manifest.account[0].given == 1


def _write(path: Path, ending: str) -> None:
    with open(path, "wb") as file:
        if ending == "parquet":
            pq.write_table(pa.table({"x": [1]}), file)
        elif ending == "npz":
            np.savez(file, x=np.ones(1))
        elif ending == "arrow":
            with pa.ipc.new_file(file, pa.schema({"x": pa.int64()})) as writer:
                writer.write_table(pa.table({"x": [1]}))
        else:
            file.write({"csv": b"x\n1\n", "jsonl": b'{"x": 1}\n', "txt": b"one"}[ending])
