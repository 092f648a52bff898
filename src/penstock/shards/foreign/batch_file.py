"""Batch file: some samples as a .npz that numpy opens. Arrow batches -> `batch_0003.npz`. Read by prepare's npz source.

A zip of uncompressed members: `NAME.npy` for each column, and `metadata.npy`, JSON as bytes (uint8, no pickle):

    {"penstock": 1, "columns": [["features", "fixed_size_list<float32>[893]"], ...], "rows": [["a.txt", 0, 117], ...]}

`rows` says where the samples came from, in their order: file, first ordinal, how many follow each other from there.
`names`, where they are known, has the names of the values in a row of features, by column.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import xxhash

from penstock.base.errors import InputError
from penstock.base.stores.store import Store, Writer
from penstock.shards import arrow as pa
from penstock.shards.arrays import Array, fixed_dtype, fixed_values
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import FeatureNames, Field, Schema

METADATA = "metadata"
METADATA_VERSION = 1
METADATA_STARTS = b'{"penstock":'  # no other program's metadata does
Run = tuple[str, int, int]  # file, first ordinal, how many
Member = tuple[str, np.dtype[Any], tuple[int, ...], Iterable[Array]]  # name, dtype, shape, its rows in pieces
_TEXT_AT_ONCE = 1 << 20  # bytes of text, as wide as the longest, made at a time


class BatchFileWriter:
    """The batch files of one task: `batch_0003.npz`, then `batch_0003_001.npz` for the samples over `batch_size`.

    A file is written as soon as it is full, so that no more than its samples are held. `commit` says which there are;
    without it, `close` removes them. Names in bytewise order are rows in order.
    """

    def __init__(
        self, store: Store, number: int, schema: Schema, batch_size: int, names: FeatureNames | None = None
    ) -> None:
        refuse_unfit(schema, store.root)
        self.name = f"batch_{_ordered(number, 4)}"
        self.records = 0
        self._store, self._schema, self._batch_size, self._names = store, schema, batch_size, names
        self._files: list[FileFacts] = []
        self._committed = False
        self._begin()

    def _begin(self) -> None:
        self._held = 0
        self._columns: list[list[Any]] = [[] for _ in self._schema]  # text as str, else arrays of some rows
        self._runs: list[Run] = []

    def write(self, batch: pa.RecordBatch, path: str, ordinals: Array) -> None:
        """Rows of one input file."""
        start = 0
        while start < batch.num_rows:
            count = min(self._batch_size - self._held, batch.num_rows - start)
            self._hold(batch.slice(start, count), path, ordinals[start : start + count])
            start += count
            if self._held == self._batch_size:
                self._write_file()

    def commit(self) -> ShardFacts:
        if self._held:
            self._write_file()
        self._committed = True
        return ShardFacts(self.name, self.records, tuple(self._files))

    def close(self) -> None:
        if not self._committed:
            for facts in self._files:
                self._store.remove(facts.file)
            self._files.clear()
            self._begin()

    def _hold(self, batch: pa.RecordBatch, path: str, ordinals: Array) -> None:
        for field, held, array in zip(self._schema, self._columns, batch.columns, strict=True):
            if field.parsed.is_fixed:
                _refuse_nulls(field, array.is_null().to_numpy(zero_copy_only=False), path, ordinals)
                held.append(_fixed(field, array, path, ordinals).copy())  # a view would hold the whole batch
            else:
                held += _texts(field, array, path, ordinals)
        self._runs = _joined(self._runs, _runs(path, ordinals))
        self._held += len(ordinals)
        self.records += len(ordinals)

    def _write_file(self) -> None:
        part = len(self._files)
        name = f"{self.name}_{_ordered(part, 3)}.npz" if part else f"{self.name}.npz"
        self._files.append(write_archive(self._store, name, self._members()))
        self._begin()

    def _members(self) -> Iterator[Member]:
        for field, held in zip(self._schema, self._columns, strict=True):
            if field.parsed.is_fixed:
                yield field.name, fixed_dtype(field.parsed), (self._held, *field.parsed.shape), held
            else:
                width = max(1, max(map(len, held)))
                yield field.name, np.dtype(f"<U{width}"), (self._held,), _wide(held, width)
        columns = [[field.name, field.type] for field in self._schema]
        body: dict[str, Any] = {"penstock": METADATA_VERSION, "columns": columns, "rows": self._runs}
        body |= {"names": self._names} if self._names else {}
        data = np.frombuffer(json.dumps(body, separators=(",", ":")).encode(), "u1")
        yield METADATA, data.dtype, data.shape, [data]


def refuse_unfit(schema: Schema, where: str) -> None:
    for field in schema:
        kind = field.parsed.inner if field.parsed.is_dictionary else field.parsed
        assert kind
        if not (kind.is_fixed or kind.name in ("string", "large_string")):
            raise InputError(
                f"column {field.name!r} has type {field.type}, which a batch file cannot hold: its columns are "
                "numbers, arrays of one shape, and text",
                where=where,
                next_step="leave it out with `select:`, or write without batch files",
            )
        if field.name == METADATA or "\0" in field.name:
            raise InputError(
                f"a batch file cannot hold a column named {field.name!r}",
                where=where,
                next_step="rename it with `select: {new_name: old_name}`",
            )


def write_npz(file: Any, members: Iterable[Member]) -> None:
    """A zip of uncompressed .npy members; the same members are the same bytes. `file` needs `write` and `flush`."""
    import zipfile  # here: other formats are refused without it

    with zipfile.ZipFile(file, "w") as archive:
        for name, dtype, shape, pieces in members:
            info = zipfile.ZipInfo(f"{name}.npy")  # dated 1980-01-01
            info.create_system = 3  # whatever the system is
            head = _npy_header(dtype, shape)
            info.file_size = len(head) + dtype.itemsize * math.prod(shape)  # tells whether it takes 64 bits
            with archive.open(info, "w") as member:
                member.write(head)
                for piece in pieces:
                    if piece.size:
                        member.write(np.ascontiguousarray(piece).reshape(-1).view("u1").data)


def _npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    head = io.BytesIO()
    described = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(head, described)
    return head.getvalue()


def write_archive(store: Store, name: str, members: Iterable[Member]) -> FileFacts:
    """A .npz of its own, whole or not at all."""
    with store.commit(name) as file:
        hashed = _Hashed(file)
        write_npz(hashed, members)
    return FileFacts(name, file.size, hashed.hasher.hexdigest())


class _Hashed:
    """A file being written, and the hash of its bytes."""

    def __init__(self, file: Writer) -> None:
        self._file = file
        self.hasher = xxhash.xxh3_128()

    def write(self, data: bytes | memoryview) -> int:
        self.hasher.update(data)
        self._file.write(data)
        return len(data)

    def flush(self) -> None: ...


def _ordered(number: int, digits: int) -> str:
    """`0003`; a number of more digits begins with `_`, which sorts behind every digit: `_10000` behind `9999`."""
    text = f"{number:0{digits}d}"
    return "_" * (len(text) - digits) + text


def _fixed(field: Field, array: pa.Array, path: str, ordinals: Array) -> Array:
    try:
        values = fixed_values(array, field.parsed)
    except InputError as error:  # nulls inside lists
        error.where = f"column {field.name!r}, {path}, among rows {ordinals[0]:,} to {ordinals[-1]:,}"
        raise
    return values.view("?") if field.parsed.number.name == "bool" else values


def _texts(field: Field, array: pa.Array, path: str, ordinals: Array) -> list[str]:
    texts: list[str] = array.to_pylist()
    _refuse_nulls(field, np.array([text is None for text in texts]), path, ordinals)
    for text, ordinal in zip(texts, ordinals, strict=True):
        if text.endswith("\0"):
            raise InputError(
                f"text of column {field.name!r} ends with a NUL character, which numpy's text arrays cannot hold",
                where=f"{path}, row {ordinal:,}",
                next_step="remove it in a stage of your own, or write without batch files",
            )
    return texts


def _refuse_nulls(field: Field, missing: Array, path: str, ordinals: Array) -> None:
    if missing.any():
        raise InputError(
            f"column {field.name!r} has a null, which a batch file cannot hold",
            where=f"{path}, row {int(ordinals[np.argmax(missing)]):,}",
            next_step="fill it in a stage of your own, or write without batch files",
        )


def _wide(texts: list[str], width: int) -> Iterator[Array]:
    rows = max(1, _TEXT_AT_ONCE // (4 * width))
    return (np.array(texts[start : start + rows], f"<U{width}") for start in range(0, len(texts), rows))


def _runs(path: str, ordinals: Array) -> Iterator[Run]:
    """Ordinals that follow each other, as one."""
    starts = np.flatnonzero(np.diff(ordinals, prepend=ordinals[0] - 2) != 1)
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(ordinals)], strict=True):
        yield path, int(ordinals[start]), stop - start


def _joined(runs: list[Run], more: Iterator[Run]) -> list[Run]:
    for path, first, count in more:
        if runs and runs[-1][0] == path and sum(runs[-1][1:]) == first:
            runs[-1] = (path, runs[-1][1], runs[-1][2] + count)
        else:
            runs.append((path, first, count))
    return runs
