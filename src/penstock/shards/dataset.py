"""Dataset: random access to the decoded records of a finished split. `penstock.open(path)` makes one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from penstock.base.errors import OutputError, did_you_mean
from penstock.base.files import Folder
from penstock.shards.columns import Column, open_columns
from penstock.shards.manifest import Manifest, read_manifest
from penstock.shards.record import decode_batches, decode_record
from penstock.shards.schema import schema_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa


_MAPPED_FILES = 256  # Python keeps a descriptor for each mapping, and 1,024 is a common limit


class Dataset:
    """`len(ds)`, `ds[i]` -> dict, `ds[a:b]` -> Arrow table. Shards are mapped when first touched."""

    def __init__(self, folder: Folder, manifest: Manifest, split: str) -> None:
        self.manifest = manifest
        self.split = split
        self.schema = manifest.schema
        self._folder = folder
        self._shards = manifest.splits[split]
        self._starts = np.cumsum([0] + [shard.records for shard in self._shards])
        self._mapped: dict[int, dict[str, Column]] = {}  # in the order of their last use

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> pa.Table: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return self._table(*index.indices(len(self)))
        if not hasattr(index, "__index__"):
            raise TypeError(f"a record is taken by its number or a slice, not by {type(index).__name__}")
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"record {index} of {len(self):,} in split {self.split!r}")
        shard = int(np.searchsorted(self._starts, row, side="right")) - 1
        return decode_record(self.schema, self.columns(shard), row - int(self._starts[shard]))

    def columns(self, shard: int) -> dict[str, Column]:
        """The mapped columns of one shard, checked block by block as they are read."""
        columns = self._mapped.pop(shard, None)
        if columns is None:
            while sum(len(self._shards[each].files) for each in self._mapped) >= _MAPPED_FILES:
                del self._mapped[next(iter(self._mapped))]
            columns = open_columns(self._folder, self._shards[shard].files)
        self._mapped[shard] = columns
        return columns

    def _table(self, start: int, stop: int, step: int) -> pa.Table:
        import pyarrow as pa

        if step != 1:
            raise ValueError("a slice of a dataset has no step: take the records one by one, or from the table")
        batches: list[pa.RecordBatch] = []
        for shard, first in enumerate(self._starts[:-1]):
            low, high = max(start - int(first), 0), min(stop - int(first), self._shards[shard].records)
            if low < high:
                batches += decode_batches(self.schema, self.columns(shard), low, high)
        return pa.Table.from_batches(batches, schema=schema_to_arrow(self.schema))


def open_dataset(path: str | os.PathLike[str], split: str = "train") -> Dataset:
    """Open one split of a finished dataset for reading."""
    folder = Folder(os.fspath(path))
    manifest = read_manifest(folder)
    if split not in manifest.splits:
        names = list(manifest.splits)
        raise OutputError(
            f"there is no split {split!r}.{did_you_mean(split, names)}",
            where=folder.root,
            next_step=f"one of: {', '.join(names)}",
        )
    return Dataset(folder, manifest, split)
