"""Spill: rows put down on disk in parts, as Arrow chunks behind one index. Next: gather.py.

A file is chunks, then the index (one entry a chunk, sorted by part), then where each part's entries start, then a
trailer. Whoever wants one part reads two small ranges and that part's chunks. The same layout serves the spill
of a scatter task (parts are buckets) and the scratch of a bucket that is cut finer (parts are ranges).

A chunk is an Arrow IPC stream of one batch in which text is codes and the chunk's own dictionary. That is as small as
lz4 makes plain text, at half the cost, and what gathers need anyway (benchmarks/LOG.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from penstock.base.errors import IntegrityError
from penstock.base.fingerprint import digest
from penstock.base.stores.store import Store
from penstock.prepare.rows.hashing import is_text

Array = np.ndarray[Any, Any]
ENTRY = np.dtype([("offset", "<i8"), ("length", "<i8"), ("rows", "<i8"), ("decoded", "<i8"), ("checksum", "<u8")])
_PART = np.dtype([("start", "<i8"), ("checksum", "<u8")])  # the number of its first entry; of all its entries
_TRAILER = np.dtype([("entries", "<i8"), ("parts", "<i8"), ("checksum", "<u8"), ("magic", "S8")])
_MAGIC = b"penspill"
_CHUNK_BYTES = 1 << 20  # of rows at most: who reads chunks holds one at a time


class Target(Protocol):
    """What chunks are appended to."""

    size: int

    def write(self, data: bytes | memoryview) -> None: ...


class Source(Protocol):
    """What chunks are read from."""

    @property
    def path(self) -> str: ...
    def read_range(self, start: int, length: int) -> bytes: ...


def with_codes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its text as codes of 32 bits, and no other dictionaries: the form rows have in a spill."""
    arrays = [_coded(each) for each in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _coded(array: pa.Array) -> pa.Array:
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.string() if pa.types.is_string_view(array.type) else pa.binary())
    if pa.types.is_dictionary(array.type):
        if is_text(array.type.value_type) and not array.dictionary.null_count:
            return array if array.type.index_type == pa.int32() else _cast_codes(array)
        array = array.dictionary_decode()
    return array.dictionary_encode() if is_text(array.type) else array


def _cast_codes(array: pa.DictionaryArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)


def codes_of(array: pa.DictionaryArray, null: int) -> Array:
    """The codes of text, with `null` where there is none."""
    return np.asarray(array.indices.fill_null(null) if array.indices.null_count else array.indices)


class SpillWriter:
    """Takes rows with the number of the part each belongs to; writes them in chunks of one part.

    Rows are held until `hold_bytes` of them have come, so that chunks are not tiny where parts are many or a
    filter lets few rows through. How much it holds decides the chunks, and never the rows or their order in a part.
    """

    def __init__(self, file: Target, parts: int, hold_bytes: int) -> None:
        self._file, self._parts, self._hold_bytes = file, parts, hold_bytes
        self._waiting: list[tuple[pa.RecordBatch, Array]] = []
        self._waiting_bytes = 0
        self._entries: list[Array] = []
        self._entry_parts: list[Array] = []

    def write(self, batch: pa.RecordBatch, parts: Array) -> None:
        """`batch` has its text as codes (`with_codes`)."""
        size = _decoded_bytes(batch)
        self._waiting.append((batch, parts))
        self._waiting_bytes += size
        if self._waiting_bytes + size > self._hold_bytes:  # another like it would be too much
            self._flush()

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches, numbers = zip(*self._waiting, strict=True)
        self._waiting, self._waiting_bytes = [], 0
        parts = numbers[0] if len(numbers) == 1 else np.concatenate(numbers)
        batch = batches[0] if len(batches) == 1 else combined(batches)
        del batches
        order = np.argsort(parts, kind="stable")  # a radix sort: part numbers have 16 bits
        self._write_chunks(batch.take(pa.array(order)), parts[order])

    def _write_chunks(self, batch: pa.RecordBatch, parts: Array) -> None:
        """Write rows that stand in the order of their parts: a chunk a part, several where it has many rows."""
        edges = _chunk_edges(parts, max(1, int(_CHUNK_BYTES * len(parts) / max(_decoded_bytes(batch), 1))))
        columns = [_cut(column, edges) for column in batch.columns]
        schema = pa.schema([(name, each[0].type) for name, each in zip(batch.schema.names, columns, strict=True)])
        sink, entries = pa.BufferOutputStream(), []
        for number, (first, last) in enumerate(itertools.pairwise(edges.tolist())):
            piece = pa.RecordBatch.from_arrays([column[number] for column in columns], schema=schema)
            start = sink.tell()
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_batch(piece)
            entries.append((start, sink.tell() - start, last - first, piece.nbytes, 0))
            if sink.tell() >= _CHUNK_BYTES:
                self._put(sink, entries)
                sink, entries = pa.BufferOutputStream(), []
        self._put(sink, entries)
        self._entry_parts.append(parts[edges[:-1]].astype("i8"))

    def _put(self, sink: pa.BufferOutputStream, entries: Sequence[tuple[int, ...]]) -> None:
        """Write some chunks in one go."""
        data = memoryview(sink.getvalue())
        table = np.array(entries, ENTRY)
        table["checksum"] = [xxhash.xxh3_64_intdigest(data[start : start + length]) for start, length, *_ in entries]
        table["offset"] += self._file.size
        self._file.write(data)
        self._entries.append(table)

    def finish(self) -> str:
        """Write what is held and the index; the answer is the index's digest."""
        self._flush()
        entries = np.concatenate(self._entries) if self._entries else np.zeros(0, ENTRY)
        parts = np.concatenate(self._entry_parts) if self._entry_parts else np.zeros(0, "i8")
        entries = entries[np.argsort(parts, kind="stable")]
        table = np.zeros(self._parts + 1, _PART)
        table["start"] = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=self._parts))])
        for part, (first, last) in enumerate(itertools.pairwise(table["start"].tolist())):
            table["checksum"][part] = _part_checksum(part, entries[first:last])
        trailer = np.array(
            [(len(entries), self._parts, _trailer_checksum(len(entries), self._parts), _MAGIC)], _TRAILER
        )
        index = entries.tobytes() + table.tobytes() + trailer.tobytes()
        self._file.write(index)
        return digest(index)


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """What the rows take as plain text: a text that many parts share is put down in each of them."""
    size = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = np.append(np.asarray(pc.binary_length(column.dictionary)).astype("i8"), 0)
            size += int(lengths[codes_of(column, -1)].sum())
            column = column.indices
        size += column.nbytes
    return size


def combined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one, their codes into one dictionary a column."""
    table = pa.Table.from_batches(batches).unify_dictionaries()
    table = table.combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def _chunk_edges(parts: Array, most_rows: int) -> Array:
    """Where chunks begin, and where the last ends: at every new part, and within a part at `most_rows`."""
    starts = np.flatnonzero(np.append(True, parts[1:] != parts[:-1]))
    lengths = np.diff(np.append(starts, len(parts)))
    pieces = [start + np.arange(0, length, most_rows) for start, length in zip(starts, lengths, strict=True)]
    return np.append(np.concatenate(pieces), len(parts))


def _cut(column: pa.Array, edges: Array) -> list[pa.Array]:
    """The column in pieces between the edges; codes get a dictionary of their piece's own values."""
    if not pa.types.is_dictionary(column.type) or not len(column.dictionary):
        return [column.slice(first, last - first) for first, last in itertools.pairwise(edges.tolist())]
    return _cut_codes(column, edges)


def _cut_codes(column: pa.DictionaryArray, edges: Array) -> list[pa.Array]:
    mask = np.asarray(column.is_null()) if column.null_count else None
    old = codes_of(column, 0)
    new = np.empty(len(old), "i4")
    place = np.empty(max(1, len(column.dictionary)), "i4")  # of a code's first row in the piece at hand
    used = []
    for first, last in itertools.pairwise(edges.tolist()):
        codes, rows = old[first:last], np.arange(last - first, dtype="i4")
        place[codes[::-1]] = rows[::-1]  # of equal codes the first row is written last, and stays
        firsts = place[codes]
        is_first = firsts == rows
        new[first:last] = (np.cumsum(is_first, dtype="i4") - 1)[firsts]
        used.append(codes[is_first])
    texts = column.dictionary.take(pa.array(np.concatenate(used)))
    bounds = np.cumsum([0, *map(len, used)]).tolist()
    codes = pa.array(new, mask=mask)
    pieces = zip(itertools.pairwise(edges.tolist()), itertools.pairwise(bounds), strict=True)
    return [
        pa.DictionaryArray.from_arrays(codes.slice(first, last - first), texts.slice(low, high - low), safe=False)
        for (first, last), (low, high) in pieces
    ]


@dataclass(frozen=True)
class Chunks:
    """Some chunks of one file, in the order in which their rows were written."""

    source: Source
    entries: Array

    @property
    def decoded_bytes(self) -> int:
        return int(self.entries["decoded"].sum())

    def read(self) -> Iterator[pa.RecordBatch]:
        for entry in self.entries:
            data = self.source.read_range(int(entry["offset"]), int(entry["length"]))
            if xxhash.xxh3_64_intdigest(data) != int(entry["checksum"]):
                raise _damaged(self.source.path, f"bytes {entry['offset']:,} to {entry['offset'] + entry['length']:,}")
            yield pa.ipc.open_stream(data).read_next_batch()


def read_chunks(source: Source, size: int, part: int) -> Chunks:
    """The chunks of one part of a finished file of `size` bytes."""
    entries, table = _places(source, size)
    bounds = np.frombuffer(source.read_range(table + _PART.itemsize * part, 2 * _PART.itemsize), _PART)
    first, last = bounds["start"].tolist()
    if not 0 <= first <= last <= (table - entries) // ENTRY.itemsize:
        raise _damaged(source.path, f"the index of part {part}")
    found = np.frombuffer(source.read_range(entries + ENTRY.itemsize * first, ENTRY.itemsize * (last - first)), ENTRY)
    if _part_checksum(part, found) != int(bounds["checksum"][0]):
        raise _damaged(source.path, f"the index of part {part}")
    return Chunks(source, found)


def rows_by_part(source: Source, size: int) -> Array:
    """How many rows each part of a finished file has: to plan by, since only reading a part checks its entries."""
    entries_at, table_at = _places(source, size)
    entries = np.frombuffer(source.read_range(entries_at, table_at - entries_at), ENTRY)
    table = np.frombuffer(source.read_range(table_at, size - _TRAILER.itemsize - table_at), _PART)
    rows = np.append(0, np.cumsum(entries["rows"]))
    return np.diff(rows[np.clip(table["start"], 0, len(entries))])


def _places(source: Source, size: int) -> tuple[int, int]:
    """(where the entries begin, where the table of parts begins)."""
    data = source.read_range(max(0, size - _TRAILER.itemsize), _TRAILER.itemsize)
    trailer = np.frombuffer(data.rjust(_TRAILER.itemsize, b"\0"), _TRAILER)[0]
    entries, parts = int(trailer["entries"]), int(trailer["parts"])
    if trailer["magic"] != _MAGIC or int(trailer["checksum"]) != _trailer_checksum(entries, parts):
        raise _damaged(source.path, "its last bytes")
    table = size - _TRAILER.itemsize - _PART.itemsize * (parts + 1)
    return table - ENTRY.itemsize * entries, table


def _part_checksum(part: int, entries: Array) -> int:
    return int(xxhash.xxh3_64_intdigest(entries.tobytes(), seed=part))


def _trailer_checksum(entries: int, parts: int) -> int:
    return int(xxhash.xxh3_64_intdigest(f"{entries} {parts}".encode()))


def _damaged(path: str, place: str) -> IntegrityError:
    return IntegrityError(
        "a spill file is damaged: its bytes are not the ones that were written",
        where=f"{path}, {place}",
        next_step="delete that file and run the job again: its task is done again. Then check the disk",
    )


@dataclass(frozen=True)
class SpillFile:
    """A committed spill. It is opened for each range: a large job has more spills than a process may have open."""

    store: Store
    name: str

    @property
    def path(self) -> str:
        return self.store.where(self.name)

    def read_range(self, start: int, length: int) -> bytes:
        return self.store.read_range(self.name, start, length)
