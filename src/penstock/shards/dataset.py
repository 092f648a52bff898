"""Dataset: random access to the decoded records of a split, in either format. `penstock.open(path)` makes one."""

from __future__ import annotations

import glob
import operator
import os
import re
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np

from penstock.base.errors import ConfigError, OutputError, did_you_mean
from penstock.base.paths import dataset_path, hidden_matches
from penstock.base.shown import Shown
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.shards import arrow as pa
from penstock.shards.columns import Column, check_size, damaged_file, open_columns
from penstock.shards.foreign import arrayrecord
from penstock.shards.foreign.arrayrecord_file import SUFFIX, open_reader, read_records
from penstock.shards.manifest import MANIFEST, Manifest, dataset_id, read_manifest
from penstock.shards.record import decode_batches, decode_record
from penstock.shards.schema import Schema, schema_to_arrow

DEFAULT_SPLIT = "train"
Range = tuple[int, int, int]  # a shard, the first of its records, and the one after the last
_MAPPED_FILES = 256  # Python keeps a descriptor for each mapping, and 1,024 is a common limit
_OPEN_READERS = 64  # each holds the index of its file: 30 bytes per record
_SHARD = re.compile(r"-[0-9]+-of-[0-9]+$")
_RECORDS_AT_ONCE = 256  # of an .arrayrecord file, in one batch of a table


class Records(Shown):
    """Records by number, over shards of `counts` records: what the two kinds of dataset have in common."""

    def __init__(self, title: str, counts: Sequence[int]) -> None:
        self._title = title
        self.counts = tuple(counts)
        self._starts = np.cumsum([0, *counts])

    def facts(self) -> dict[str, str]:
        return {"records": f"{len(self):,} in {self._title}", "columns": ", ".join(self._arrow_schema().names)}

    def __len__(self) -> int:
        """Number of records."""
        return int(self._starts[-1])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Every record as a dict, in order."""
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, index: int) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, index: slice) -> pa.Table: ...
    def __getitem__(self, index: int | slice) -> Any:
        """`dataset[i]` is a record as a dict, `dataset[a:b]` are records as an Arrow table."""
        if isinstance(index, slice):
            return self._table(*index.indices(len(self)))
        try:
            index = operator.index(index)
        except TypeError:
            taken = f"a record is taken by its number or a slice, not by {type(index).__name__}"
            raise TypeError(f"{taken}; for many at once, penstock.load, or numpy on the mapped arrays") from None
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"record {index} of {len(self):,} in {self._title}")
        shard = int(np.searchsorted(self._starts, row, side="right")) - 1
        return self._record(shard, int(row - self._starts[shard]))

    def _table(self, start: int, stop: int, step: int) -> pa.Table:
        if step != 1:
            raise ValueError("a slice of a dataset cannot have a step: take the records one by one, or slice the table")
        batches = list(self._batches(self._ranges(start, stop)))
        return pa.Table.from_batches(batches, schema=batches[0].schema if batches else self._arrow_schema())

    def _ranges(self, start: int, stop: int) -> Iterator[Range]:
        for shard, first in enumerate(self._starts[:-1]):
            low, high = max(start - int(first), 0), min(stop - int(first), self.counts[shard])
            if low < high:
                yield shard, low, high

    @abstractmethod
    def _record(self, shard: int, row: int) -> dict[str, Any]: ...

    @abstractmethod
    def _batches(self, ranges: Iterator[Range]) -> Iterator[pa.RecordBatch]: ...

    @abstractmethod
    def _arrow_schema(self) -> pa.Schema: ...


class Dataset(Records):
    """One split of a dataset. `penstock.open(path, split)` opens it.

    `len(dataset)` is the number of records. `dataset[i]` is record i as a dict of Python values and arrays;
    `dataset[-1]` is the last one. `dataset[a:b]` is a pyarrow.Table of records a to b - 1. `for record in dataset`
    gives every record as a dict. Only what is asked for is read, and its checksums are compared.

    Attributes:
        split: Name of the split.
        schema: The columns that are read, in order, each with `name` and `type`.
        counts: Number of records in each shard.
        manifest: The Manifest of the whole dataset; `dataset.manifest.splits` has the names of all splits.
    """

    def __init__(self, store: Store, manifest: Manifest, split: str, columns: Sequence[str] | None = None) -> None:
        self.manifest = manifest
        self.split = split
        self.schema = manifest.schema if columns is None else _chosen(manifest.schema, columns)
        self._store = store
        self._shards = manifest.splits[split]
        self._mapped: dict[int, dict[str, Column]] = {}  # in the order of their last use
        super().__init__(f"split {split!r}", [shard.records for shard in self._shards])

    @property
    def id(self) -> str:
        """Identity of the dataset: equal ids mean equal bytes."""
        return dataset_id(self._store)

    def columns(self, shard: int) -> dict[str, Column]:
        """The mapped columns of one shard, checked block by block as they are read.

        Args:
            shard: Number of the shard in this split, from 0.
        """
        columns = self._mapped.pop(shard, None)
        if columns is None:
            while sum(len(self._shards[each].files) for each in self._mapped) >= _MAPPED_FILES:
                del self._mapped[next(iter(self._mapped))]
            columns = open_columns(self._store, self._shards[shard].files)
        self._mapped[shard] = columns
        return columns

    def ranges(self, start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """Places of some records: (shard, number of the shard's first record, first row in the shard, end of the rows).

        Args:
            start: Number of the first record.
            stop: Number after the last record.
        """
        for shard, low, high in self._ranges(start, stop):
            yield shard, int(self._starts[shard]), low, high

    def _record(self, shard: int, row: int) -> dict[str, Any]:
        return decode_record(self.schema, self.columns(shard), row)

    def _batches(self, ranges: Iterator[Range]) -> Iterator[pa.RecordBatch]:
        for shard, low, high in ranges:
            yield from decode_batches(self.schema, self.columns(shard), low, high)

    def _arrow_schema(self) -> pa.Schema:
        return schema_to_arrow(self.schema)


class ArrayRecordDataset(Records):
    """The records of .arrayrecord files, one file after the other."""

    def __init__(self, title: str, paths: Sequence[str], manifest: Manifest | None = None) -> None:
        self.manifest = manifest
        self.paths = tuple(paths)
        self._readers: dict[int, Any] = {}  # in the order of their last use
        super().__init__(title, [self._reader(number).num_records() for number in range(len(paths))])

    def _reader(self, shard: int) -> Any:
        reader = self._readers.pop(shard, None)
        if reader is None:
            while len(self._readers) >= _OPEN_READERS:
                self._readers.pop(next(iter(self._readers))).close()
            reader = open_reader(self.paths[shard])
        self._readers[shard] = reader
        return reader

    def _record(self, shard: int, row: int) -> dict[str, Any]:
        (data,) = read_records(self._reader(shard), self.paths[shard], row, row + 1)
        return arrayrecord.decode_record(data, f"{self.paths[shard]}, record {row:,}")

    def records(self, shard: int, rows: Sequence[int]) -> pa.RecordBatch:
        """Some records of one file as Arrow, in the order asked for."""
        reader, path = self._reader(shard), self.paths[shard]
        read = [record for row in rows for record in read_records(reader, path, row, row + 1)]
        return arrayrecord.decode_batch(read, path, rows[0] if rows else 0)

    def batches(self, most: int) -> Iterator[pa.RecordBatch]:
        """All records, `most` of a file at a time; their events have the same columns throughout."""
        return self._batches(self._ranges(0, len(self)), most)

    def _batches(self, ranges: Iterator[Range], most: int = _RECORDS_AT_ONCE) -> Iterator[pa.RecordBatch]:
        like: pa.Schema | None = None
        for shard, low, high in ranges:
            for start in range(low, high, most):
                records = read_records(self._reader(shard), self.paths[shard], start, min(start + most, high))
                batch = arrayrecord.decode_batch(records, self.paths[shard], start, like)
                like = batch.schema
                yield batch

    def _arrow_schema(self) -> pa.Schema:
        return self[:1].schema if len(self) else arrayrecord.facts_schema()


def open_dataset(
    path: str | os.PathLike[str], split: str | None = None, columns: Sequence[str] | None = None
) -> Dataset | ArrayRecordDataset:
    """Open one split of a finished dataset for reading ("train" by default), or .arrayrecord files by name or pattern.

    Args:
        path: Folder that `penstock.run` wrote, or .arrayrecord files by name or pattern. A folder of the older scripts
            has no manifest: its split `train` is the files `train.arrayrecord` and `train-*.arrayrecord`.
        split: Name of the split. Default: "train". An .arrayrecord file is one split by itself: a split that is named
            must be the one in its name.
        columns: Only these columns are read, in that order. Default: all.

    Returns:
        A Dataset: `len(dataset)`, `dataset[i]` is a dict, `dataset[a:b]` an Arrow table.
    """
    if split is not None and not isinstance(split, str):
        raise ConfigError(f"split={split!r} is not the name of a split", next_step="give its name, such as 'train'")
    root = dataset_path(path)
    opened = _open(root, split, columns)
    if columns is not None and not isinstance(opened, Dataset):
        raise ConfigError(
            "records of .arrayrecord files are read whole",
            where="open(columns=...)",
            next_step="leave columns= out, or prepare the events without `format: arrayrecord`",
        )
    return opened


def _open(root: str, split: str | None, columns: Sequence[str] | None) -> Dataset | ArrayRecordDataset:
    if is_bare(root):
        paths = _matching(root)
        _refuse_other_split(paths, split)
        return ArrayRecordDataset(root, paths)
    split = DEFAULT_SPLIT if split is None else split
    store = open_store(root)
    if older := older_files(root):
        paths = [path for path in older if _is_of_split(path, split)]
        if not paths:
            _refuse_split(split, sorted({_SHARD.sub("", _stem(path)) for path in older}), store)
        return ArrayRecordDataset(paths[0] if len(paths) == 1 else f"split {split!r}", paths)
    manifest = read_manifest(store)
    _refuse_split(split, list(manifest.splits), store)
    if manifest.config.get("format") == "npz":
        raise OutputError(
            "these are batch files, which are not merged yet",
            where=store.root,
            next_step=f"penstock merge {store.root} --config JOB; numpy.load opens a single one",
        )
    if manifest.config.get("format") == arrayrecord.FORMAT:
        return _open_split(store, manifest, split)
    return Dataset(store, manifest, split, columns)


def _chosen(schema: Schema, columns: Sequence[str]) -> Schema:
    known = {field.name: field for field in schema}
    names = [columns] if isinstance(columns, str) else list(columns)
    for name in names:
        if name not in known:
            raise ConfigError(
                f"there is no column {name!r}.{did_you_mean(str(name), list(known))}",
                where="open(columns=...)",
                next_step=f"some of: {', '.join(known)}",
            )
    return tuple(known[name] for name in dict.fromkeys(names))


def _refuse_split(split: str, names: list[str], store: Store) -> None:
    if split not in names:
        raise OutputError(
            f"there is no split {split!r}.{did_you_mean(split, names)}",
            where=store.root,
            next_step=f"one of: {', '.join(names)}",
        )


def older_files(path: str) -> list[str]:
    """The .arrayrecord files of a folder that penstock did not write, in bytewise order."""
    store = open_store(path)
    if store.exists(MANIFEST) or store.exists(STATE):
        return []
    return [store.local_path(name) for name in store.entries() if name.endswith(SUFFIX)]


def _stem(path: str) -> str:
    return os.path.basename(path).removesuffix(SUFFIX)


def _is_of_split(path: str, split: str) -> bool:
    return _stem(path) == split or _stem(path).startswith(f"{split}-")


def is_bare(path: str) -> bool:
    """Whether the path means .arrayrecord files, and not a dataset with a manifest."""
    return path.endswith(SUFFIX) and not os.path.isdir(path)


def _refuse_other_split(paths: Sequence[str], split: str | None) -> None:
    for path in paths:
        if split is not None and not _is_of_split(path, split):
            other = os.path.join(os.path.dirname(path), f"{split}{SUFFIX}")
            raise ConfigError(
                f"split {split!r} was asked for, but {path} is a single file, not a dataset with splits",
                where=f"split {split!r}",
                next_step=f"give {other}"
                if os.path.exists(other)
                else "leave the split out, or give the folder with its manifest.json",
            )


def _matching(pattern: str) -> list[str]:
    """A file that is there by that very name, or all that match it as a pattern, in bytewise order."""
    if others := hidden_matches(pattern):
        raise OutputError(
            f"this is the name of a file, and as a pattern it also matches {len(others):,} more",
            where=f"{pattern}, and {others[0]}",
            next_step="rename or remove the one whose name looks like a pattern",
        )
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern, recursive=True), key=os.fsencode)
    if not paths:
        raise OutputError(f"no file matches {pattern}", next_step="check the path; `*` stands for any part of a name")
    return paths


def _open_split(store: Store, manifest: Manifest, split: str) -> ArrayRecordDataset:
    files = [file for shard in manifest.splits[split] for file in shard.files]
    for file in files:
        check_size(store, file)
    dataset = ArrayRecordDataset(f"split {split!r}", [store.local_path(file.file) for file in files], manifest)
    if len(dataset) != manifest.records(split):
        raise damaged_file(files[0].file, f"holds {len(dataset):,} records, not {manifest.records(split):,}")
    return dataset
