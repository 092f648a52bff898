"""Exports to Zarr, read back by the library."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zarr

import penstock
from penstock.shards.foreign.exporting import export
from tests.loader.making import KEPT, make_kept_documents, prepare
from tests.shards.foreign.test_zarr import TYPES, facts_of, read_array
from tests.shards.making import make_batch, write_dataset


def opened(path: Path) -> zarr.Group:
    """The group, in format 3; the library has nothing to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = zarr.open_group(str(path), mode="r", zarr_format=3)
        assert dict(group.members(max_depth=None))
    return group


@pytest.mark.parametrize("size", ["16MB", "500B"])
def test_columns_of_every_type_are_what_the_dataset_has(tmp_path, size):
    batch = make_batch(50, 5, 0, TYPES)
    write_dataset(tmp_path / "in", {"train": [[batch.slice(0, 30)], [batch.slice(30)]], "test": [[batch.slice(0, 7)]]})
    exported = export(tmp_path / "in", "zarr", tmp_path / "out", shard_size=size)
    group = opened(tmp_path / "out")
    assert (group.attrs["dataset"], sorted(group)) == (exported.dataset, ["test", "train"])
    for split in ("train", "test"):
        for name in batch.schema.names:
            found, place = group[f"{split}/{name}"], tmp_path / "out" / split / name
            assert found.attrs["type"] == facts_of(place)["attributes"]["type"]
            arrays = {"": found} if isinstance(found, zarr.Array) else dict(found.arrays())
            for inner, array in arrays.items():
                expected = read_array(place / inner)
                assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
                assert array[:].tobytes() == expected.tobytes(), (name, inner)


@pytest.mark.parametrize("method", ["wrapped", "best_fit"])
def test_packed_rows_and_kept_columns_are_read_row_by_row(tmp_path, method):
    stages = [{"pack": {"length": 33, "method": method, "keep": KEPT}}]
    path = prepare(tmp_path / "job", make_kept_documents(200, 30, 3), stages)
    export(path, "zarr", tmp_path / "out", shard_size="2kB")
    train, rows = opened(tmp_path / "out")["train"], penstock.open(path)[:].to_pylist()
    for row in (0, 5, len(rows) - 1):
        for name in ("tokens", "documents", *KEPT):
            found = train[name]
            if isinstance(found, zarr.Group):
                low, high = found["offsets"][row : row + 2].tolist()
                assert found["values"][low:high].tolist() == rows[row][name]
            else:
                assert found[row].tolist() == rows[row][name]


def test_a_row_of_the_last_chunk_is_not_padding(tmp_path):
    values = np.arange(1, 1001, dtype="i8")
    write_dataset(tmp_path / "in", {"train": [[pa.RecordBatch.from_pydict({"x": pa.array(values)})]]})
    export(tmp_path / "in", "zarr", tmp_path / "out", shard_size="1kB")
    found = opened(tmp_path / "out")["train/x"]
    assert found.chunks[0] < 1000
    assert np.array_equal(found[:], values)
