"""HDF5: a finished dataset -> one .h5 file, one group per split and in it one dataset per column, as they are.

Times are the whole numbers they are stored as, text becomes variable-length UTF-8. A column of arrays of any length, or
of bytes, is a group of two datasets: `values` (or `bytes`) and `offsets`; row i is values[offsets[i]:offsets[i + 1]].
Every block is checked on the way.
"""

import io
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, InputError, OutputError, file_error
from penstock.base.stores import open_store
from penstock.base.stores.local import sync_folder
from penstock.shards.arrays import fixed_dtype
from penstock.shards.columns import Column
from penstock.shards.dataset import Dataset
from penstock.shards.foreign.export import Exported, open_splits, option, refuse_nulls
from penstock.shards.foreign.pieces import fixed_pieces
from penstock.shards.manifest import dataset_id
from penstock.shards.record import decode_range
from penstock.shards.schema import Field, Type, short_type

_AT_ONCE = 4 * 2**20  # bytes of a column
_TEXTS_AT_ONCE = 4096  # at most: a dictionary's text may be short, and Python's is not


def export_hdf5(path: str, target: str, split: str | None = None, overwrite: bool = False) -> Exported:
    """Write all splits of a dataset, or one, into a file that appears whole or not at all."""
    h5py = _library()
    splits = open_splits(path, split, "hdf5")
    _refuse_target(path, target, overwrite)
    for dataset in splits.values():
        _refuse_columns(dataset, path)
    name = dataset_id(open_store(path))
    with _written_beside(target) as written, h5py.File(written, "w") as file:
        file.attrs["dataset"] = name
        for each, dataset in splits.items():
            for _ in _write_split(h5py, file.create_group(each), dataset):
                written.check()
    return Exported(name, os.path.getsize(target), 1, {each: len(dataset) for each, dataset in splits.items()}, {})


def _library() -> Any:
    try:
        import h5py
    except ImportError as error:
        raise ConfigError(
            f"HDF5 needs the package h5py, which cannot be imported: {error}",
            where="export to hdf5",
            next_step="pip install 'penstock[hdf5]'",
        ) from error
    return h5py


# What cannot be, before anything is written.


def _refuse_target(path: str, target: str, overwrite: bool) -> None:
    if os.path.commonpath([os.path.realpath(path), os.path.realpath(target)]) == os.path.realpath(path):
        raise OutputError(
            "the file must not be inside the dataset",
            where=target,
            next_step="write it beside the dataset's folder",
        )
    if os.path.isdir(target):
        raise OutputError("this is a folder", where=target, next_step=f"name a file: {option('output', 'FILE.h5')}")
    if os.path.exists(target) and not overwrite:
        raise OutputError(
            "this file exists already", where=target, next_step=f"another name, or {option('overwrite', True)}"
        )


def _refuse_columns(dataset: Dataset, where: str) -> None:
    for field in dataset.schema:
        if not field.parsed.is_fixed and not _is_text(field.parsed) and not _is_ragged(field.parsed):
            raise ConfigError(
                f"column {field.name!r} is {short_type(field.type)}: HDF5 gets numbers, lists of them, bytes and text",
                where=where,
                next_step="leave it out with `select:` when the dataset is made",
            )
        if field.name == "." or "\0" in field.name:
            raise ConfigError(
                f"HDF5 cannot hold a column named {field.name!r}",
                where=where,
                next_step="rename it with `select: {new_name: old_name}` when the dataset is made",
            )
    for number, shard in enumerate(dataset.manifest.splits[dataset.split]):
        refuse_nulls(dataset.schema, dataset.columns(number), "HDF5", shard.name)


def _is_text(kind: Type) -> bool:
    text = kind.inner if kind.is_dictionary and kind.inner else kind
    return text.name in ("string", "large_string")


def _is_ragged(kind: Type) -> bool:
    """Whether it is a list of numbers, or of rows of them, or bytes."""
    return kind.name in ("binary", "large_binary") or bool(
        kind.is_list and kind.inner and (kind.inner.is_number or kind.inner.is_fixed_list)
    )


# Writing.


class _File(io.FileIO):
    """The file under HDF5. A failed write would crash HDF5 and the process, so failures are kept for `check`."""

    failure: OSError | None = None

    def write(self, data: Any, /) -> int:
        view = memoryview(data).cast("B")
        size = len(view)
        try:
            while view:
                view = view[super().write(view) :]
        except OSError as error:
            self.failure = self.failure or error
        return size

    def truncate(self, size: int | None = None, /) -> int:
        try:
            return super().truncate(size)
        except OSError as error:
            self.failure = self.failure or error
            return size or 0

    def check(self) -> None:
        if self.failure:
            raise self.failure


@contextmanager
def _written_beside(target: str) -> Iterator[_File]:
    """A file under another name; it is synced and renamed, or removed if something goes wrong."""
    temporary = f"{target}.{secrets.token_hex(8)}.part"
    try:
        with _File(temporary, "x+") as file:
            yield file
            file.check()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        sync_folder(os.path.dirname(target))
    except OSError as error:
        raise file_error(error, "write", target) from error
    finally:
        with suppress(FileNotFoundError, NotADirectoryError):  # it was renamed, or could not be made
            os.unlink(temporary)


def _write_split(h5py: Any, group: Any, dataset: Dataset) -> Iterator[None]:
    """Yields after every few MiB."""
    for field in dataset.schema:
        kind = field.parsed
        if _is_ragged(kind):
            _create_ragged(group.create_group(field.name), field, dataset)
        else:
            dtype = h5py.string_dtype("utf-8") if _is_text(kind) else fixed_dtype(kind)
            group.create_dataset(field.name, (len(dataset), *(() if _is_text(kind) else kind.shape)), dtype)
        group[field.name].attrs["type"] = field.type
    first = 0
    ends = dict.fromkeys((field.name for field in dataset.schema), 0)  # where the values of the shards before end
    for shard, records in enumerate(dataset.counts):
        columns = dataset.columns(shard)
        for field in dataset.schema:
            if _is_ragged(field.parsed):
                yield from _write_ragged(group[field.name], field, columns, first, ends[field.name])
                ends[field.name] += len(columns[_items(field).name])
            else:
                is_text = _is_text(field.parsed)
                values = _texts(field, columns, records) if is_text else _numbers(field, columns)
                yield from _write(group[field.name], first, values)
        first += records


def _write(dataset: Any, place: int, values: Iterator[np.ndarray[Any, Any]]) -> Iterator[None]:
    for each in values:
        dataset[place : place + len(each)] = each
        place += len(each)
        yield


def _items(field: Field) -> Field:
    """The column that the offsets of a ragged field divide."""
    return field.inner if field.parsed.is_list else Field(f"{field.name}/bytes", "uint8")


def _create_ragged(group: Any, field: Field, dataset: Dataset) -> None:
    items, kind = _items(field), _items(field).parsed
    count = sum(len(dataset.columns(shard)[items.name]) for shard in range(len(dataset.counts)))
    group.create_dataset(_part(items), (count, *kind.shape), fixed_dtype(kind))
    group.create_dataset("offsets", (len(dataset) + 1,), "<i8")


def _part(items: Field) -> str:
    return items.name.rpartition("/")[2]


def _write_ragged(group: Any, field: Field, columns: Mapping[str, Column], first: int, end: int) -> Iterator[None]:
    """Values of one shard behind the `end` of those before, and its offsets raised by as much."""
    items = _items(field)
    yield from _write(group[_part(items)], end, _numbers(items, columns))
    offsets = _numbers(Field(f"{field.name}/offsets", "int64"), columns)
    yield from _write(group["offsets"], first, (each + end for each in offsets))


def _numbers(field: Field, columns: Mapping[str, Column]) -> Iterator[np.ndarray[Any, Any]]:
    return fixed_pieces(columns[field.name], field.parsed, _AT_ONCE)


def _texts(field: Field, columns: Mapping[str, Column], rows: int) -> Iterator[np.ndarray[Any, Any]]:
    start = 0
    while start < rows:
        stop = min(rows, start + _TEXTS_AT_ONCE)
        if not field.parsed.is_dictionary:
            edges = columns[f"{field.name}/offsets"].read(start, stop + 1)
            stop = start + max(1, int(np.searchsorted(edges, edges[0] + _AT_ONCE, side="right")) - 1)
        yield _decoded(field, columns, start, stop)
        start = stop


def _decoded(field: Field, columns: Mapping[str, Column], start: int, stop: int) -> np.ndarray[Any, Any]:
    array = decode_range((field,), columns, start, stop).column(0)
    part = "codes" if field.parsed.is_dictionary else "bytes"
    if field.parsed.is_dictionary:
        values = array.dictionary.to_pylist()  # one str for all rows that have it
        texts = [values[code] for code in array.indices.to_pylist()]
    else:
        texts = array.to_pylist()
    for row, text in enumerate(texts, start):
        if "\0" in text:
            raise InputError(
                f"text of column {field.name!r} has a NUL character, at which HDF5 would end it",
                where=f"{columns[f'{field.name}/{part}'].file}, record {row:,}",
                next_step="replace it when the dataset is made, or leave the column out with `select:`",
            )
    return np.array(texts, object)
