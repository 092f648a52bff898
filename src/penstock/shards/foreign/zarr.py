"""Zarr: a finished dataset -> a folder in Zarr's format 3: a group per split, and in it an array per column.

| column | there |
|---|---|
| numbers, times, lists of one length | an array of the same values; times are the whole numbers they are stored as |
| lists of any length | a group with `values` and `offsets`: list i is `values[offsets[i]:offsets[i + 1]]` |
| text, binary, text as codes | a group with `bytes` (UTF-8) and `offsets` |

Chunks are compressed with zstd, and hold rows of at most `shard_size` bytes. The library `zarr` reads the folder; it is
not needed to write it. The zarr.json of the root is the last file: without it there is no group to open.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores.local import LocalStore
from penstock.shards import arrow as pa
from penstock.shards import packed
from penstock.shards.arrays import Array, fixed_dtype, text_parts
from penstock.shards.columns import Column
from penstock.shards.dataset import Dataset
from penstock.shards.foreign import export
from penstock.shards.foreign.pieces import fixed_pieces
from penstock.shards.record import decode_range
from penstock.shards.schema import Field, short_type

CHUNK_SIZE = "16MB"
_AT_ONCE = 4 * 2**20  # bytes of a column that are read together
_TEXTS_AT_ONCE = 4096
_LEVEL = 3  # of zstd
Columns = Mapping[str, Column]


def export_zarr(
    path: str, target: str, split: str | None = None, overwrite: bool = False, shard_size: str | int = CHUNK_SIZE
) -> export.Exported:
    """Write all splits of a dataset, or one, into a folder that appears whole or not at all."""
    splits = export.open_splits(path, split, "zarr")
    most = export.shard_bytes(shard_size, splits)
    export.refuse_target(path, target, overwrite)
    for dataset in splits.values():
        _refuse_columns(dataset, path)
    with export.written_beside(target) as store:
        written = {name: _Split(store, dataset, most).write() for name, dataset in splits.items()}
        return export.finish(store, path, "zarr", written, lambda store, facts: _write_group(store, "", facts))


# What cannot be, before anything is written.


def _refuse_columns(dataset: Dataset, where: str) -> None:
    for field in dataset.schema:
        if not _can_be(field):
            raise ConfigError(
                f"column {field.name!r} is {short_type(field.type)}: Zarr gets numbers, text, and lists of numbers",
                where=where,
                next_step="leave it out with `select:` when the dataset is made",
            )
        _refuse_name(field.name, f"column {field.name!r}", where)
    _refuse_name(dataset.split, f"split {dataset.split!r}", where)
    for shard in range(len(dataset.counts)):
        export.refuse_nulls(dataset.schema, dataset.columns(shard), "Zarr", where)


def _can_be(field: Field) -> bool:
    kind = field.parsed
    return kind.is_fixed or kind.is_text or kind.is_dictionary or (kind.is_list and field.inner.parsed.is_fixed)


def _refuse_name(name: str, what: str, where: str) -> None:
    if not name.strip(".") or name.startswith("__") or name in export.MARKS or "\0" in name:
        raise ConfigError(
            f"{what}: Zarr cannot use this name",
            where=where,
            next_step="rename it with `select: {new_name: old_name}` when the dataset is made",
        )


# Writing.


@dataclass(frozen=True)
class _Split:
    store: LocalStore
    dataset: Dataset
    most: int  # bytes of a chunk

    def write(self) -> export.Written:
        schema, name = self.dataset.schema, self.dataset.split
        written = export.Written(rows=sum(self.dataset.counts), tokens=0 if packed.has_tokens(schema) else None)
        _write_group(self.store, name, {})
        for field in schema:
            written.files += self._write_column(field, written)
        return written

    def _write_column(self, field: Field, written: export.Written) -> int:
        """Write a column. Returns its number of chunks."""
        kind, place = field.parsed, f"{self.dataset.split}/{field.name}"
        names = self.dataset.manifest.feature_names.get(field.name)
        attributes = {"type": field.type, **({"feature_names": names} if names else {})}
        if kind.is_fixed:
            array = _Array(place, fixed_dtype(kind), kind.shape, ("row", *_inner_names(field)))
            rows, chunks = self._write_array(array, self._fixed(field), attributes)
            self._count(field, rows * math.prod(kind.shape), written)
            return chunks
        _write_group(self.store, place, attributes)
        if kind.is_list:
            inner = field.inner.parsed
            values = _Array(f"{place}/values", fixed_dtype(inner), inner.shape, ("value", *_inner_names(field)))
            found, chunks = self._write_array(values, self._fixed(field.inner), {})
            self._count(field, found, written)
            offsets = self._offsets(field)
        else:
            values = _Array(f"{place}/bytes", np.dtype("u1"), (), ("byte",))
            _, chunks = self._write_array(values, (data for data, _ in self._texts(field)), {})
            offsets = _running(sizes for _, sizes in self._texts(field))
        edges = _Array(f"{place}/offsets", np.dtype("<i8"), (), ("edge",))
        return chunks + self._write_array(edges, offsets, {})[1]

    @staticmethod
    def _count(field: Field, values: int, written: export.Written) -> None:
        if field.name == packed.TOKENS and written.tokens is not None:
            written.tokens += values

    def _shards(self) -> Iterator[tuple[Columns, int]]:
        for shard, records in enumerate(self.dataset.counts):
            yield self.dataset.columns(shard), records

    def _fixed(self, field: Field) -> Iterator[Array]:
        for columns, _ in self._shards():
            yield from fixed_pieces(columns[field.name], field.parsed, _AT_ONCE)

    def _offsets(self, field: Field) -> Iterator[Array]:
        return _running(
            np.diff(columns[f"{field.name}/offsets"].read(start, stop + 1))
            for columns, records in self._shards()
            for start, stop in _ranges(records, _AT_ONCE // 8)
        )

    def _texts(self, field: Field) -> Iterator[tuple[Array, Array]]:
        """Bytes of some texts, and how many each has; codes stand for their text."""
        for columns, records in self._shards():
            for start, stop in _ranges(records, _TEXTS_AT_ONCE):
                array = decode_range((field,), columns, start, stop).column(0)
                if field.parsed.is_dictionary:
                    array = array.cast(array.type.value_type)
                data, offsets = text_parts(array)
                yield data, np.diff(offsets)

    def _write_array(self, array: _Array, pieces: Iterator[Array], attributes: Mapping[str, Any]) -> tuple[int, int]:
        """(rows, chunks) of what was written."""
        room = self.most - self.most // 256 - 64  # what cannot be compressed takes a little more
        rows = chunk = max(1, room // (array.dtype.itemsize * math.prod(array.shape)))
        total = chunks = 0
        for block, count in _regrouped(pieces, rows):
            chunk = chunk if chunks else count  # a first one that is short is the only one
            self._write_chunk(array, chunks, block[:chunk])
            total, chunks = total + count, chunks + 1
        _write_meta(self.store, array.name, array.described(total, chunk, attributes))
        return total, chunks

    def _write_chunk(self, array: _Array, number: int, block: Array) -> None:
        data = pa.Codec("zstd", _LEVEL).compress(block.reshape(-1).view("u1"), asbytes=True)
        place = "/".join(["c", str(number), *("0" for _ in array.shape)])
        with export.new_file(self.store, f"{array.name}/{place}") as file:
            file.write(data)


@dataclass(frozen=True)
class _Array:
    """An array of Zarr: where it lies, its type, the shape of a row, and names of its dimensions."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    dimensions: tuple[str, ...]

    def described(self, rows: int, chunk: int, attributes: Mapping[str, Any]) -> dict[str, Any]:
        endian = {"configuration": {"endian": "little"}} if self.dtype.itemsize > 1 else {}
        zstd = {"name": "zstd", "configuration": {"level": _LEVEL, "checksum": False}}
        return {
            "zarr_format": 3,
            "node_type": "array",
            "shape": [rows, *self.shape],
            "data_type": self.dtype.name,
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [chunk, *self.shape]}},
            "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
            "fill_value": self.dtype.type(0).item(),
            "codecs": [{"name": "bytes", **endian}, zstd],
            "dimension_names": list(self.dimensions),
            "attributes": dict(attributes),
        }


def _inner_names(field: Field) -> list[str]:
    """Names of the dimensions of one value: each column has its own, as their sizes differ."""
    kind = field.inner.parsed if field.parsed.is_list else field.parsed
    return [f"{field.name}_{number}" for number in range(1, 1 + len(kind.shape))]


def _write_group(store: LocalStore, name: str, attributes: Mapping[str, Any]) -> None:
    _write_meta(store, name, {"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)})


def _write_meta(store: LocalStore, name: str, facts: Mapping[str, Any]) -> None:
    export.write_json(store, os.path.join(name, export.ZARR_MARK), facts)


def _ranges(count: int, most: int) -> Iterator[tuple[int, int]]:
    return ((start, min(start + most, count)) for start in range(0, count, most))


def _running(sizes: Iterator[Array]) -> Iterator[Array]:
    """Offsets of pieces of so many items each, over all shards; the first is 0."""
    at = 0
    yield np.zeros(1, "i8")
    for some in sizes:
        offsets = at + np.cumsum(some, dtype="i8")
        at = int(offsets[-1]) if len(offsets) else at
        yield offsets


def _regrouped(pieces: Iterator[Array], rows: int) -> Iterator[tuple[Array, int]]:
    """(an array of so many rows, how many of them are rows of the pieces). The last is filled up with zeros.

    The array is the same every time: a chunk is in memory once, beside its compressed bytes.
    """
    block: Array = np.empty(0)
    count = 0
    for piece in pieces:
        while len(piece):
            if not len(block):
                block = np.zeros((rows, *piece.shape[1:]), piece.dtype)
            taken, piece = piece[: rows - count], piece[rows - count :]
            block[count : count + len(taken)] = taken
            count += len(taken)
            if count == rows:
                yield block, count
                count = 0
    if count:
        block[count:] = 0
        yield block, count
