"""Spill: rows on disk in parts, as Arrow chunks in a container. Next: merging.py.

Parts are the buckets of a scatter task, or the ranges of a bucket that is cut finer. The table of chunks is in groups
by part: whoever wants one part reads two small ranges and that part's chunks. A chunk is an Arrow IPC stream of one
batch in which text is codes and the chunk's own dictionary. That is as small as lz4 makes plain text, at half the cost,
and what gathers need anyway (benchmarks/LOG.md).
"""

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.stores.store import Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import BLOCK, Array
from penstock.prepare.rows.hashing import is_text
from penstock.shards.columns import FileFacts

ENTRY = np.dtype([*BLOCK.descr, ("rows", "<i8"), ("decoded", "<i8")])
_CHUNKS = "chunks"
_CHUNK_BYTES = 1 << 20  # of rows at most: who reads chunks holds one at a time
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
        """Write rows that stand in the order of their parts: one chunk per part, several where it has many rows."""
        edges = _chunk_edges(parts, max(1, int(_CHUNK_BYTES * len(parts) / max(_decoded_bytes(batch), 1))))
        columns = [_cut(column, edges) for column in batch.columns]
        schema = pa.schema([(name, each[0].type) for name, each in zip(batch.schema.names, columns, strict=True)])
        sink, chunks, edges_written = pa.BufferOutputStream(), [], [0]
        for number, (first, last) in enumerate(itertools.pairwise(edges.tolist())):
            piece = pa.RecordBatch.from_arrays([column[number] for column in columns], schema=schema)
            with pa.ipc.new_stream(sink, schema) as writer:
                writer.write_batch(piece)
            chunks.append((last - first, piece.nbytes))
            edges_written.append(sink.tell())
            if sink.tell() >= _CHUNK_BYTES:
                self._put(sink, edges_written, chunks)
                sink, chunks, edges_written = pa.BufferOutputStream(), [], [0]
        self._put(sink, edges_written, chunks)
        self._entry_parts.append(parts[edges[:-1]].astype("i8"))

    def _put(self, sink: pa.BufferOutputStream, edges: list[int], chunks: list[tuple[int, int]]) -> None:
        entries = np.zeros(len(chunks), ENTRY)
        entries["rows"], entries["decoded"] = np.array(chunks, "i8").reshape(-1, 2).T
        entries["length"] = np.diff(edges)
        entries["start"], entries["checksum"] = self._file.write(memoryview(sink.getvalue()), np.array(edges))
        self._entries.append(entries)

    def finish(self) -> FileFacts:
        self._flush()
        entries = np.concatenate([np.zeros(0, ENTRY), *self._entries])
        parts = np.concatenate([np.zeros(0, "i8"), *self._entry_parts])
        bounds = np.concatenate([[0], np.cumsum(np.bincount(parts, minlength=self._parts))])
        self._file.put_groups(_CHUNKS, entries[np.argsort(parts, kind="stable")], bounds)
        return self._file.finish({})


def _decoded_bytes(batch: pa.RecordBatch) -> int:
    """Bytes of the rows as plain text: a text that many parts share is written in each of them."""
    size = 0
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            lengths = np.append(np.asarray(pc.binary_length(column.dictionary)).astype("i8"), 0)
            size += int(lengths[codes_of(column, -1)].sum())
            column = column.indices
        size += column.nbytes
    return size


def combined(batches: Iterable[pa.RecordBatch]) -> pa.RecordBatch:
    """The batches as one, their codes into one dictionary per column."""
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


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

    file: container.Container
    entries: Array

    @property
    def decoded_bytes(self) -> int:
        return int(self.entries["decoded"].sum())

    def read(self) -> Iterator[pa.RecordBatch]:
        for start, length, checksum, *_ in self.entries.tolist():
            yield pa.ipc.open_stream(self.file.block(start, length, checksum)).read_next_batch()


def read_chunks(source: container.Source, part: int, written: str = "") -> Chunks:
    """Chunks of a part. The file's index has the digest `written`, where that is known."""
    file = container.open_container(source, _WORDS, written)
    entries = np.frombuffer(file.group(_CHUNKS, part, f"the index of part {part}"), ENTRY)
    return Chunks(replace(file, facts={}), entries)  # a gather task holds those of thousands of spills


def decoded_bytes(store: Store, name: str) -> int:
    """Decoded bytes of the first part of a committed file."""
    return read_chunks(container.Stored(store, name), 0).decoded_bytes


def rows_by_part(store: Store, name: str) -> Array:
    file = container.open_container(container.Stored(store, name), _WORDS)
    rows = np.append(0, np.cumsum(file.array(_CHUNKS).view(ENTRY)["rows"]))
    return np.diff(rows[file.groups(_CHUNKS)])
