"""A dataset is a sequence of records over its shards."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import OutputError
from tests.shards.making import write_dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    """Ten records in four shards, one of them empty, and a split of its own."""
    path = tmp_path_factory.mktemp("dataset")
    batch = pa.RecordBatch.from_pydict({"a": range(10), "b": [f"row {i}" for i in range(10)]})
    pieces = [batch.slice(0, 3), batch.slice(3, 0), batch.slice(3, 6), batch.slice(9)]
    write_dataset(path, {"train": [[piece] for piece in pieces], "test": [[batch.slice(0, 2)]], "none": []})
    return path


def test_a_record_is_found_in_its_shard(dataset):
    opened = penstock.open(dataset)
    assert len(opened) == 10
    assert [opened[i]["a"] for i in range(10)] == list(range(10))
    assert opened[np.int64(7)] == {"a": 7, "b": "row 7"}


def test_negative_numbers_count_from_the_end(dataset):
    opened = penstock.open(dataset)
    assert [opened[-i]["a"] for i in range(1, 11)] == list(range(9, -1, -1))


@pytest.mark.parametrize("index", [10, -11, 10**9])
def test_a_record_that_is_not_there_is_an_index_error(dataset, index):
    with pytest.raises(IndexError, match=f"record {index} of 10 in split 'train'"):
        penstock.open(dataset)[index]


@pytest.mark.parametrize(
    "part", [slice(None), slice(2, 5), slice(-3, None), slice(3, 3), slice(8, 2), slice(0, 99), slice(9, 10)], ids=str
)
def test_a_slice_is_a_table_over_shards(dataset, part):
    opened = penstock.open(dataset)
    table = opened[part]
    assert isinstance(table, pa.Table)
    assert table["a"].to_pylist() == list(range(10))[part]


def test_a_slice_with_a_step_is_refused(dataset):
    with pytest.raises(ValueError, match="cannot have a step"):
        penstock.open(dataset)[::2]


def test_iterating_gives_every_record_in_order(dataset):
    assert [record["b"] for record in penstock.open(dataset)] == [f"row {i}" for i in range(10)]


def test_a_split_is_opened_by_name(dataset):
    assert len(penstock.open(dataset, "test")) == 2
    empty = penstock.open(dataset, "none")
    assert (len(empty), list(empty), empty[:].num_rows) == (0, [], 0)
    with pytest.raises(OutputError, match=r"there is no split 'tset'\. Did you mean 'test'") as caught:
        penstock.open(dataset, "tset")
    assert caught.value.next_step == "one of: train, test, none"


def test_a_record_speaks_numpy(tmp_path):
    columns = {
        "int": pa.array([-5], pa.int8()),
        "float": pa.array([1.5], pa.float32()),
        "bool": [True],
        "text": ["é"],
        "bytes": [b"\xff"],
        "null": pa.array([None], pa.int64()),
        "day": [date(2020, 1, 2)],
        "time": pa.array([datetime(2020, 1, 2, 3, 4, 5)], pa.timestamp("us", "UTC")),
        "took": pa.array([7], pa.duration("ms")),
        "clock": pa.array([8], pa.time32("s")),
        "price": pa.array([Decimal("1.50")], pa.decimal128(9, 2)),
        "list": pa.array([[1, 2]], pa.list_(pa.int16())),
        "flags": pa.array([[True, False]], pa.list_(pa.bool_(), 2)),
        "kind": pa.array(["k"]).dictionary_encode(),
        "fixed": pa.array([b"abc"], pa.binary(3)),
    }
    write_dataset(tmp_path, {"train": [[pa.RecordBatch.from_pydict(columns)]]})
    record = penstock.open(tmp_path)[0]
    assert (record["int"], record["int"].dtype) == (-5, np.int8)
    assert (record["float"], record["float"].dtype) == (1.5, np.float32)
    assert record["bool"].dtype == bool
    assert record["bool"]
    assert (record["text"], record["bytes"], record["null"]) == ("é", b"\xff", None)
    assert record["day"] == np.datetime64("2020-01-02")
    assert record["time"] == np.datetime64("2020-01-02T03:04:05.000000")
    assert (record["took"], record["clock"]) == (np.timedelta64(7, "ms"), np.timedelta64(8, "s"))
    assert record["price"] == Decimal("1.50")
    assert (record["list"].tolist(), record["list"].dtype) == ([1, 2], np.int16)
    assert (record["flags"].tolist(), record["flags"].dtype) == ([True, False], bool)
    assert (record["kind"], record["fixed"]) == ("k", b"abc")


def test_only_the_columns_that_are_asked_for_are_read_in_the_order_asked(tmp_path):
    table = pa.table({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})
    pq.write_table(table, tmp_path / "in.parquet")
    job = {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "format": "npy", "workers": 0}
    penstock.run(job)
    (damaged,) = (tmp_path / "out" / "train").glob("*.b.bytes.npy")
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"?")  # nobody may look at it
    some = penstock.open(tmp_path / "out", columns=["c", "a"])
    assert some[1] == {"c": 1.5, "a": 2}
    assert some[:].column_names == ["c", "a"]
    with pytest.raises(penstock.IntegrityError):
        penstock.open(tmp_path / "out", columns=["b"])[:]
    assert penstock.open(tmp_path / "out", columns="a")[:].to_pydict() == {"a": [1, 2]}
    with pytest.raises(penstock.ConfigError, match=r"there is no column 'bb'\. Did you mean 'b'"):
        penstock.open(tmp_path / "out", columns=["bb"])


def test_a_missing_file_need_not_be_deleted_first(tmp_path):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "in.parquet")
    penstock.run({"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0})
    next((tmp_path / "out" / "train").iterdir()).unlink()
    (problem,) = penstock.verify(tmp_path / "out").problems
    assert problem.next_step.startswith("run the job again")
