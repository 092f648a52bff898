"""`penstock export --to maxtext`: a row a record, in ArrayRecord files; read with the library that wrote them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.shards.foreign.arrayrecord_file import open_reader
from penstock.shards.foreign.exporting import export
from tests.shards.foreign.test_example import plainly_encoded
from tests.shards.foreign.test_export import make_rows
from tests.shards.making import write_dataset


def records(folder: Path, split: str) -> list[bytes]:
    readers = [open_reader(str(path)) for path in sorted(folder.glob(f"{split}-*-of-*.arrayrecord"))]
    return [record for reader in readers for record in reader.read_all()]


def one_row(tmp_path: Path, **columns: pa.Array) -> Path:
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    return tmp_path / "in"


def test_every_row_of_every_split_is_a_record_in_order(tmp_path):
    path = make_rows(tmp_path / "rows")
    exported = export(path, "maxtext", tmp_path / "out", shard_size="1kB")
    assert (exported.rows, exported.tokens) == ({"train": 60, "test": 9}, {"train": 60 * 33, "test": 9 * 33})
    for split in ("train", "test"):
        rows = penstock.open(path, split)[:]["tokens"].to_pylist()
        assert records(tmp_path / "out", split) == [plainly_encoded(row) for row in rows]
    assert exported.files == len(list((tmp_path / "out").glob("*.arrayrecord"))) > 5


def test_rows_of_different_lengths_and_no_rows_at_all(tmp_path):
    ragged = pa.RecordBatch.from_pydict({"tokens": pa.array([[1, 2], [], [2**31 - 1]], pa.list_(pa.int32()))})
    write_dataset(tmp_path / "in", {"train": [[ragged]], "test": [[ragged.slice(0, 0)]], "val": []})
    exported = export(tmp_path / "in", "maxtext", tmp_path / "out")
    assert (exported.rows, exported.tokens) == ({"train": 3, "test": 0, "val": 0}, {"train": 3, "test": 0, "val": 0})
    assert records(tmp_path / "out", "train") == [plainly_encoded(row) for row in ([1, 2], [], [2**31 - 1])]
    assert records(tmp_path / "out", "test") == records(tmp_path / "out", "val") == []
    assert len(os.listdir(tmp_path / "out")) == 4


@pytest.mark.parametrize(
    "column",
    [
        {"words": pa.array([[1]])},
        {"tokens": pa.array([["a"]])},
        {"tokens": pa.array([[1.5]])},
        {"tokens": pa.array([1])},
    ],
)
def test_a_dataset_without_tokens_is_refused_with_the_columns_it_has(tmp_path, column):
    path = one_row(tmp_path, **column)
    with pytest.raises(ConfigError, match=f"no rows of tokens.*among {next(iter(column))}: ") as caught:
        export(path, "maxtext", tmp_path / "out")
    assert "`pack`" in caught.value.next_step
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize("tokens", [pa.array([[1], None]), pa.array([[1], [None]])])
def test_nulls_are_refused_by_file(tmp_path, tokens):
    with pytest.raises(ConfigError, match="column 'tokens' has nulls") as caught:
        export(one_row(tmp_path, tokens=tokens), "maxtext", tmp_path / "out")
    assert caught.value.where == "train/00000-of-00001.safetensors"
    assert os.listdir(tmp_path) == ["in"]


@pytest.mark.parametrize(("kind", "value", "told"), [(pa.int32(), -100, "-100"), (pa.uint32(), 2**31, "2,147,483,648")])
def test_a_number_that_is_no_id_is_refused_with_its_place(tmp_path, kind, value, told):
    path = one_row(tmp_path, tokens=pa.array([[1, value]], pa.list_(kind)))
    with pytest.raises(InputError, match=f"a token is {told}, but ids are 0 to 2,147,483,647") as caught:
        export(path, "maxtext", tmp_path / "out")
    assert caught.value.where == "train/00000-of-00001.safetensors, records 0 to 1"
    assert os.listdir(tmp_path) == ["in"]


def test_without_array_record_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "array_record.python", None)
    with pytest.raises(ConfigError) as caught:
        export(tmp_path, "maxtext", tmp_path / "out")
    assert caught.value.next_step == "pip install 'penstock[arrayrecord]'"
