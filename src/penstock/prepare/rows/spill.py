"""Spill: rows on disk in parts, as Arrow chunks in a container. Next: spills.py.

Parts are the buckets of a scatter task, or the ranges of a bucket that is cut finer. The table of chunks is in groups
by part: whoever wants one part reads two small ranges and that part's chunks. A chunk is an Arrow IPC stream of one
batch in which text is codes and the chunk's own dictionary. That is as small as lz4 makes plain text, at half the cost,
and what gathers need anyway (benchmarks/LOG.md).
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.stores.store import Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import BLOCK, Array
from penstock.prepare.rows.hashing import is_text
from penstock.shards.columns import FileFacts

ENTRY = np.dtype([*BLOCK.descr, ("count", "<i8"), ("decoded", "<i8")])
_CHUNKS = "chunks"
_CHUNK_BYTES = 1 << 20  # of rows at most: who reads chunks holds one at a time
_PLACES = 1 << 18  # of values in chunks that get their dictionaries together: as many as a core's cache holds
_AS_IT_IS = pa.ipc.IpcWriteOptions()  # made once: Arrow asks the environment for its own, for every stream
_WORDS = container.Words("a spill file")


def with_codes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its text as codes of 32 bits, and no other dictionaries: the form rows have in a spill."""
    arrays = [_coded(each) for each in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _coded(array: pa.Array) -> pa.Array:
    if pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type):
        array = array.cast(pa.string() if pa.types.is_string_view(array.type) else pa.binary())
    if pa.types.is_dictionary(array.type):
        if is_text(array.type.value_type) and not array.dictionary.null_count:
            if array.type.index_type == pa.int32():
                return array
            return pa.DictionaryArray.from_arrays(array.indices.cast(pa.int32()), array.dictionary)
        array = array.dictionary_decode()
    return array.dictionary_encode() if is_text(array.type) else array


def codes_of(array: pa.DictionaryArray, null: int) -> Array:
    """The codes of text, with `null` where there is none."""
    return np.asarray(array.indices.fill_null(null) if array.indices.null_count else array.indices)


class SpillWriter:
    """Takes rows with the number of the part each belongs to; writes them in chunks of one part.

    Rows are held until `hold_bytes` of them have come, so that chunks are not tiny where parts are many or a
    filter lets few rows through. How much it holds decides the chunks, and never the rows or their order in a part.
    """

    def __init__(self, file: container.ContainerWriter, parts: int, hold_bytes: int) -> None:
        self._file, self._parts, self._hold_bytes = file, parts, hold_bytes
        self._waiting: list[tuple[pa.RecordBatch, Array]] = []
        self._waiting_bytes = 0
        self._entries: list[Array] = []
        self._entry_parts: list[Array] = []
        self._entry_rows: list[Array] = []

    def write(self, batch: pa.RecordBatch, parts: Array) -> None:
        """`batch` has its text as codes (`with_codes`)."""
        size = _decoded_bytes(batch)
        self._waiting.append((batch, parts))
        self._waiting_bytes += size
        if self._waiting_bytes + size > self._hold_bytes:  # another like it would be too much
            self._flush()

    def _flush(self) -> None:
        """Write what waits, in the order of its parts: one chunk per part, several where a part has many rows."""
        if not self._waiting:
            return
        batches, numbers = zip(*self._waiting, strict=True)
        names, columns = batches[0].schema.names, _by_column(batches)
        del batches
        parts = np.concatenate(numbers)
        most_rows = max(1, _CHUNK_BYTES * len(parts) // max(self._waiting_bytes, 1))
        self._waiting, self._waiting_bytes = [], 0
        order = np.argsort(parts, kind="stable")  # a radix sort: part numbers have 16 bits
        parts, order = parts[order], pa.array(order)
        edges = _chunk_edges(parts, most_rows)
        pieces = []
        for number in range(len(columns)):  # one after the other: rows are in memory once, and only a column twice
            column, columns[number] = _joined(columns[number]), []
            pieces.append(_cut(pc.take(column, order, boundscheck=False), edges))
        self._write_chunks(names, pieces)
        self._entry_parts.append(parts[edges[:-1]].astype("i8"))
        self._entry_rows.append(np.diff(edges))

    def _write_chunks(self, names: list[str], columns: list[list[pa.Array]]) -> None:
        """Write columns in pieces: the first pieces of all columns are the first chunk."""
        schema = pa.schema([(name, each[0].type) for name, each in zip(names, columns, strict=True)])
        frame = _write_stream(pa.BufferOutputStream(), [pa.nulls(0, each.type) for each in schema], schema)
        sink, edges = pa.BufferOutputStream(), [0]
        for arrays in zip(*columns, strict=True):
            edges.append(_write_stream(sink, list(arrays), schema))
            if edges[-1] >= _CHUNK_BYTES:
                self._put(sink, edges, frame)
                sink, edges = pa.BufferOutputStream(), [0]
        self._put(sink, edges, frame)

    def _put(self, sink: pa.BufferOutputStream, edges: list[int], frame: int) -> None:
        """Write the chunks between the edges; `frame` bytes of each are not of its rows."""
        entries = np.zeros(len(edges) - 1, ENTRY)
        entries["length"] = np.diff(edges)
        entries["decoded"] = np.maximum(entries["length"] - frame, 1)
        entries["start"], entries["checksum"] = self._file.write(memoryview(sink.getvalue()), np.array(edges))
        self._entries.append(entries)

    def finish(self) -> FileFacts:
        self._flush()
        entries = np.concatenate([np.zeros(0, ENTRY), *self._entries])
        entries["count"] = np.concatenate([np.zeros(0, "i8"), *self._entry_rows])
        parts = np.concatenate([np.zeros(0, "i8"), *self._entry_parts])
        bounds = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=self._parts))])
        self._file.put_groups(_CHUNKS, entries[np.argsort(parts, kind="stable")], bounds)
        return self._file.finish({})


def _write_stream(sink: pa.BufferOutputStream, columns: list[pa.Array], schema: pa.Schema) -> int:
    """Write the columns as a stream of one batch; returns where it ends."""
    with pa.ipc.new_stream(sink, schema, options=_AS_IT_IS) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return int(sink.tell())


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows as plain text: a text that many parts share is written in each of them."""
    size = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            rows = np.bincount(codes_of(column, len(column.dictionary)), minlength=len(column.dictionary) + 1)
            size += int(rows[:-1] @ np.asarray(pc.binary_length(column.dictionary)).astype("i8"))
            column = column.indices
        size += column.nbytes
    return size


def combined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one, their codes into one dictionary per column."""
    every = list(batches)
    return pa.RecordBatch.from_arrays([_joined(each) for each in _by_column(every)], names=every[0].schema.names)


def _by_column(batches: Sequence[pa.RecordBatch]) -> list[list[pa.Array]]:
    return [list(each) for each in zip(*(batch.columns for batch in batches), strict=True)]


def _joined(arrays: list[pa.Array]) -> pa.Array:
    return arrays[0] if len(arrays) == 1 else pa.chunked_array(arrays).unify_dictionaries().combine_chunks()


def _chunk_edges(parts: Array, most_rows: int) -> Array:
    """Rows at which chunks begin, and the last ends: at every new part, and within a part at `most_rows`."""
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
    """Several chunks at once, each with places of its own for the values: chunks may be small, and thousands."""
    mask = np.asarray(column.is_null()) if column.null_count else None
    old = codes_of(column, 0)
    new = np.empty(len(old), "i4")
    values = len(column.dictionary)
    at_once = max(1, min(_PLACES // values, len(edges) - 1))
    last_rows = np.empty(at_once * values, "i4")  # of each value in each chunk
    used, bounds = [], [np.zeros(1, "i8")]
    for start in range(0, len(edges) - 1, at_once):
        some = edges[start : start + at_once + 1]
        lengths, rows = np.diff(some), np.arange(some[-1] - some[0], dtype="i4")
        codes = old[some[0] : some[-1]]
        places = codes + np.repeat(np.arange(len(lengths), dtype="i4") * values, lengths)
        last_rows[places] = rows
        lasts = last_rows.take(places)
        is_last = lasts == rows
        numbers = np.cumsum(is_last, dtype="i4")
        before = np.append(0, numbers[some[1:] - some[0] - 1])
        new[some[0] : some[-1]] = numbers.take(lasts) - np.repeat(before[:-1] + 1, lengths).astype("i4")
        used.append(codes[is_last])
        bounds.append(bounds[-1][-1] + before[1:])
    texts = column.dictionary.take(pa.array(np.concatenate(used)))
    codes = pa.array(new, mask=mask)
    pieces = zip(itertools.pairwise(edges.tolist()), itertools.pairwise(np.concatenate(bounds).tolist()), strict=True)
    return [
        pa.DictionaryArray.from_arrays(codes.slice(first, last - first), texts.slice(low, high - low), safe=False)
        for (first, last), (low, high) in pieces
    ]


@dataclass(frozen=True)
class Chunks:
    """Some chunks of one file, in the order in which their rows were written."""

    file: container.Container
    entries: Array

    @property
    def decoded_bytes(self) -> int:
        return int(self.entries["decoded"].sum())

    def read(self) -> Iterator[pa.RecordBatch]:
        with self.file.source.opened() as source:
            file = replace(self.file, source=source)
            for place in self.entries[list(BLOCK.names or ())].tolist():
                yield pa.ipc.open_stream(file.block(*place)).read_next_batch()


def read_chunks(source: container.Source, part: int, written: str = "") -> Chunks:
    """Chunks of a part. The file's index has the digest `written`, where that is known."""
    with source.opened() as held:
        file = container.open_container(held, _WORDS, written)
        entries = np.frombuffer(file.group(_CHUNKS, part, f"the index of part {part}"), ENTRY)
    return Chunks(replace(file, source=source, facts={}), entries)  # a gather task holds those of thousands of spills


def decoded_bytes(store: Store, name: str) -> int:
    """Decoded bytes of the first part of a committed file."""
    return read_chunks(container.Stored(store, name), 0).decoded_bytes


def read_table(source: container.Source, written: str) -> tuple[Array, Array]:
    """Chunks of all parts of a file whose index has the digest `written`, and where in that table each part begins."""
    with source.opened() as held:
        file = container.open_container(held, _WORDS, written)
        return file.array(_CHUNKS).view(ENTRY), file.groups(_CHUNKS)


def chunks_at(source: container.Source, entries: Array) -> Chunks:
    """Chunks of a file whose table was read elsewhere."""
    return Chunks(container.Container(source, _WORDS, {}, ""), entries)
