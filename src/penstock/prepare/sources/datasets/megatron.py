"""Megatron: the documents of an .idx file and of the .bin file beside it -> rows with a column `tokens`.

A piece is a range of documents. Where documents have several sequences, such as sentences, a column `sequences` says
where each begins among the tokens. No number of the index is trusted before it is held against the size of the files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.files import ReadFile
from penstock.prepare.rows.rows import Array, Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.reading.input_file import identity_of_ends, unusable
from penstock.prepare.sources.reading.large_rows import too_large
from penstock.prepare.sources.slices import Segment
from penstock.shards.foreign.megatron_index import HEADER_BYTES, LENGTH, PLACE, IndexHeader, decode_header
from penstock.shards.packed import TOKENS

SEQUENCES = "sequences"
_DAMAGED = "damaged documents"
_PIECES_PER_SLICE = 16
_LENGTHS_AT_ONCE = 1 << 18
_MOST_TOKENS = 2**31 - 1  # of the lists of a batch


class Megatron(Source):
    unit = "documents"

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        known = self.identity(file.location)
        with ExitStack() as stack:
            pair = _open(file.location, stack)
            _refuse_unfit(pair)
            return FileSurvey(pair.schema, tuple(_pieces(file, known, pair, slice_bytes // _PIECES_PER_SLICE)))

    def identity(self, location: str) -> str:
        tokens = tokens_of(location)
        if not os.path.exists(tokens):
            raise unusable(f"the file of its tokens is not here: {os.path.basename(tokens)}", location, "bring it back")
        return f"{identity_of_ends(location)}-{identity_of_ends(tokens)}"

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        with ExitStack() as stack:
            pair, first = _open(segment.location, stack), segment.first
            while first < segment.last:
                try:
                    some = _documents(pair, first, min(first + reading.rows_at_once, segment.last))
                    some = some.within(min(reading.bytes_at_once, reading.most_row_bytes) // pair.header.dtype.itemsize)
                    size, tokens = some.bytes(pair), some.tokens
                    if size > reading.most_row_bytes or tokens > _MOST_TOKENS:  # a single one
                        yield reading.none_of(segment, too_large(segment, first, size, reading.most_row_bytes))
                    else:
                        yield _rows(pair, some, segment, reading)
                except _Damage as error:
                    count = segment.last - segment.first
                    raise UnreadablePart(segment, 0, segment.first, count, str(error), _DAMAGED) from error
                first += len(some)


SOURCE = Megatron()


def tokens_of(location: str) -> str:
    """The .bin file of an .idx file."""
    return f"{os.path.splitext(location)[0]}.bin"


class _Damage(Exception):
    """The numbers of an index cannot be right."""


@dataclass(frozen=True)
class _Pair:
    """Both files, open."""

    header: IndexHeader
    index: ReadFile
    tokens: ReadFile

    @cached_property
    def token_bytes(self) -> int:
        return os.fstat(self.tokens.fileno()).st_size

    @property
    def documents(self) -> int:
        return self.header.edges - 1

    @property
    def has_sequences(self) -> bool:
        """Whether a document may have more sequences than one, or none."""
        return self.documents != self.header.sequences

    @property
    def schema(self) -> pa.Schema:
        tokens = (TOKENS, pa.list_(pa.from_numpy_dtype(self.header.dtype)))
        return pa.schema([tokens, *([(SEQUENCES, pa.list_(pa.int32()))] if self.has_sequences else [])])

    def lengths(self, first: int, last: int) -> Array:
        return self._numbers(self.header.lengths_at, LENGTH, first, last).astype("i8")

    @property
    def length_of_all(self) -> int:
        """Tokens of all sequences, some lengths at a time."""
        count = self.header.sequences
        spans = ((first, min(first + _LENGTHS_AT_ONCE, count)) for first in range(0, count, _LENGTHS_AT_ONCE))
        return sum(int(self.lengths(*span).sum()) for span in spans)

    def pointers(self, first: int, last: int) -> Array:
        return self._numbers(self.header.pointers_at, PLACE, first, last)

    def edges(self, first: int, last: int) -> Array:
        return self._numbers(self.header.edges_at, PLACE, first, last)

    def _numbers(self, at: int, dtype: np.dtype[Any], first: int, last: int) -> Array:
        data = os.pread(self.index.fileno(), (last - first) * dtype.itemsize, at + first * dtype.itemsize)
        return np.frombuffer(data, dtype)

    def read(self, place: int, tokens: int) -> Array:
        size = tokens * self.header.dtype.itemsize
        self.tokens.seek(place)
        data = self.tokens.read(size)
        if len(data) != size:
            raise _Damage(f"{self.tokens.path} ends at byte {place + len(data):,}, inside of a document")
        return np.frombuffer(data, self.header.dtype)


def _open(location: str, stack: ExitStack) -> _Pair:
    index = stack.enter_context(ReadFile(location))
    tokens = stack.enter_context(ReadFile(tokens_of(location)))
    try:
        return _Pair(decode_header(index.read(HEADER_BYTES)), index, tokens)
    except ValueError as error:
        what = f"this is no index of tokens as Megatron writes it: {error}"
        raise unusable(what, location, "name the .idx file of a pair, or replace it") from error


# What cannot be, before a document is read.


def _refuse_unfit(pair: _Pair) -> None:
    header, path, size = pair.header, pair.index.path, os.fstat(pair.index.fileno()).st_size
    if header.sequences and size == header.bytes + header.sequences:
        raise unusable(
            f"behind byte {header.bytes:,} it has a mode for each of its {header.sequences:,} sequences, and documents "
            "of several modalities cannot be read",
            path,
            "leave it out of the input",
        )
    if size != header.bytes or not header.edges:
        raise unusable(
            f"it has {size:,} bytes, and {header.sequences:,} sequences and {header.edges:,} edges of documents, which "
            f"its header has at byte 18, take {header.bytes:,}",
            path,
        )
    low, high = int(pair.edges(0, 1)[0]), int(pair.edges(pair.documents, pair.documents + 1)[0])
    if (low, high) != (0, header.sequences):
        raise unusable(
            f"its documents begin with sequence {low:,} and end with {high:,}, and it has {header.sequences:,}",
            f"{path}, from byte {header.edges_at:,} on",
        )
    if header.sequences:
        _refuse_short(pair)


def _refuse_short(pair: _Pair) -> None:
    """Refuse a .bin file that is shorter than its index says; or longer, unless the index leaves out sequences."""
    last = pair.header.sequences - 1
    place, length = int(pair.pointers(last, last + 1)[0]), int(pair.lengths(last, last + 1)[0])
    end = place + length * pair.header.dtype.itemsize
    if end > pair.token_bytes:
        raise unusable(_outside(pair, last, place, length), pair.tokens.path)
    if end < pair.token_bytes and end == pair.length_of_all * pair.header.dtype.itemsize:
        raise unusable(
            f"the sequences of its index take {end:,} bytes, and it has {pair.token_bytes:,}: the index may be that of "
            "another .bin file",
            pair.tokens.path,
            "bring the .idx file that was written with it; or, if the rest is left out on purpose, cut the .bin file "
            f"to {end:,} bytes",
        )


def _outside(pair: _Pair, sequence: int, place: int, length: int) -> str:
    return (
        f"sequence {sequence:,} has {length:,} tokens ({pair.header.dtype.name}) from byte {place:,} on, and "
        f"{os.path.basename(pair.tokens.path)} has {pair.token_bytes:,} bytes"
    )


def _pieces(file: File, known: str, pair: _Pair, piece_bytes: int) -> Iterator[Segment]:
    """Ranges of documents of about `piece_bytes` each; as many documents in each."""
    count = max(1, pair.documents * piece_bytes // max(pair.token_bytes, 1))
    start = _place(pair, 0)
    for first in range(0, pair.documents, count):
        last = min(first + count, pair.documents)
        stop = _place(pair, last)
        size = min(max(1, stop - start), max(1, pair.token_bytes))  # of an index that is not sound, any
        yield file.segment(known, last - first, size, first, last, first)
        start = stop


def _place(pair: _Pair, document: int) -> int:
    """Byte at which the tokens of a document begin, if the index is sound; behind the last, at which all end."""
    sequence = int(pair.edges(document, document + 1)[0])
    if 0 <= sequence < pair.header.sequences:
        return int(pair.pointers(sequence, sequence + 1)[0])
    return pair.token_bytes


# Documents.


@dataclass(frozen=True)
class _Documents:
    """Some documents: the first, where their sequences begin and end, and these sequences."""

    first: int
    edges: Array  # among all sequences of the file
    lengths: Array
    pointers: Array

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def starts(self) -> Array:
        """Tokens before each sequence, among those that are here; at last, the number of all."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    @property
    def offsets(self) -> Array:
        """Tokens before each document; at last, the number of all."""
        found: Array = self.starts[self.edges - self.edges[0]]
        return found

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    def bytes(self, pair: _Pair) -> int:
        return self.tokens * pair.header.dtype.itemsize

    def within(self, tokens: int) -> _Documents:
        """As many of the first as have so many tokens, but one at least."""
        count = max(1, int(np.searchsorted(self.offsets, tokens, "right")) - 1)
        last = int(self.edges[count] - self.edges[0])
        return _Documents(self.first, self.edges[: count + 1], self.lengths[:last], self.pointers[:last])


def _documents(pair: _Pair, first: int, last: int) -> _Documents:
    edges = pair.edges(first, last + 1)
    if (
        len(edges) != last - first + 1
        or edges[0] < 0
        or edges[-1] > pair.header.sequences
        or (np.diff(edges) < 0).any()
    ):
        at = pair.header.edges_at + PLACE.itemsize * first
        raise _Damage(
            f"the edges of documents {first:,} to {last:,}, from byte {at:,} on, do not rise from 0 to "
            f"{pair.header.sequences:,}"
        )
    low, high = int(edges[0]), int(edges[-1])
    lengths, pointers = pair.lengths(low, high), pair.pointers(low, high)
    # Subtracted, not added: a wrong pointer may be so large that a sum would wrap around.
    bad = (lengths < 0) | (pointers < 0) | (pointers > pair.token_bytes - lengths * pair.header.dtype.itemsize)
    if bad.any():
        number = int(np.argmax(bad))
        raise _Damage(_outside(pair, low + number, int(pointers[number]), int(lengths[number])))
    if (cut := pointers % pair.header.dtype.itemsize != 0).any():
        number = int(np.argmax(cut))
        raise _Damage(
            f"sequence {low + number:,} begins at byte {int(pointers[number]):,}, inside of a token "
            f"({pair.header.dtype.name})"
        )
    return _Documents(first, edges, lengths, pointers)


def _rows(pair: _Pair, some: _Documents, segment: Segment, reading: Reading) -> Rows:
    arrays = [_sequences(some) if name == SEQUENCES else _tokens(pair, some) for name in reading.columns]
    batch = pa.RecordBatch.from_arrays(arrays, schema=reading.wanted)
    return Rows(batch, segment.source, (segment.path,), np.arange(some.first, some.first + len(some)))


def _tokens(pair: _Pair, some: _Documents) -> pa.Array:
    size = pair.header.dtype.itemsize
    if (some.pointers[1:] == some.pointers[:-1] + some.lengths[:-1] * size).all():  # one behind the other
        values = pair.read(int(some.pointers[0]), some.tokens) if some.tokens else np.empty(0, pair.header.dtype)
    else:
        places = zip(some.pointers.tolist(), some.lengths.tolist(), strict=True)
        values = np.concatenate([pair.read(place, length) for place, length in places])
    return _lists(some.offsets, values)


def _sequences(some: _Documents) -> pa.Array:
    """First token of each sequence within its document."""
    counts = np.diff(some.edges)
    begins = some.starts[:-1] - np.repeat(some.offsets[:-1], counts)
    return _lists(some.edges - some.edges[0], begins.astype("i4"))


def _lists(offsets: Array, values: Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets.astype("i4")), pa.array(values))
