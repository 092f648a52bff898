"""Dictionary: turn text into codes and the values they stand for, a window at a time. Used by record.py.

A window is a run of consecutive values of a column. Its dictionary holds each distinct value once, in order of first
appearance, and the codes of the next window continue after it. So a small shard has no value twice and a large one may,
memory is bounded by a window, and the outcome does not depend on how rows were cut into batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.shards import arrow as pa

Array = np.ndarray[Any, Any]
Piece = tuple[Array, "pa.Array"]  # (for each value its place in the array, -1 for a null; the array)
WINDOW_VALUES = 1 << 19
WINDOW_BYTES = 16 * 2**20  # of text, repeats counted: the value that reaches it is the last of its window
_STEP = 2**14  # values looked at together: what numpy makes of them stays in the cache and in memory it has already
_MOST_PIECES = 256  # an Arrow array costs a kilobyte however little it holds: merge those of one-row batches in time
_MOST_CODES = 2**31 - 1
_NOT_SEEN = -2


class Windows:
    """Takes the values of a column as pieces; gives codes, and the values they stand for, as each window ends."""

    def __init__(self) -> None:
        self._pieces: list[Piece] = []  # of the open window, each without values it does not use
        self._values = 0  # in the open window, and the bytes of their text
        self._bytes = 0
        self._codes = 0  # that the windows before took

    def add(self, indices: Array, values: pa.Array) -> Iterator[tuple[Array, pa.Array]]:
        # The bytes of each value, and 0 for index -1, which is a null.
        lengths = np.append(pa.compute.binary_length(values).fill_null(0).to_numpy(), 0).astype("i8")
        seen = _Seen(values)
        for step in range(0, len(indices), _STEP):
            part = indices[step : step + _STEP].astype(np.int64)
            while len(part):
                own = lengths[part]
                stop = self._end_of_window(own)
                seen.add(part[:stop])
                self._values += stop
                self._bytes += int(own[:stop].sum())
                part = part[stop:]
                if self._values >= WINDOW_VALUES or self._bytes >= WINDOW_BYTES:
                    self._pieces.append(seen.take())
                    yield self._end()
        if seen:
            self._pieces.append(seen.take())
        if len(self._pieces) >= _MOST_PIECES:
            self._pieces = [_merged(self._pieces)]

    def finish(self) -> Iterator[tuple[Array, pa.Array]]:
        if self._pieces:
            yield self._end()

    def _end_of_window(self, lengths: Array) -> int:
        """Number of values that still fit into the open window."""
        room = min(len(lengths), WINDOW_VALUES - self._values)
        if self._bytes + int(lengths[:room].sum()) < WINDOW_BYTES:  # a running sum costs several times as much
            return room
        return min(room, int(np.searchsorted(lengths[:room].cumsum(), WINDOW_BYTES - self._bytes)) + 1)

    def _end(self) -> tuple[Array, pa.Array]:
        indices, values = _merged(self._pieces)
        if self._codes + len(values) > _MOST_CODES:
            raise InputError(
                f"a dictionary of a shard would hold more than {_MOST_CODES:,} values, but its codes have 32 bits",
                next_step="write smaller shards, or store the column as plain text",
            )
        nulls = indices < 0
        indices += np.int32(self._codes)
        indices[nulls] = 0
        self._codes += len(values)
        self._pieces, self._values, self._bytes = [], 0, 0
        return indices, values


class _Seen:
    """The values of one array that were used so far, in order of first appearance. Nothing is sorted or hashed."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values
        self._places = np.full(len(values) + 1, _NOT_SEEN, "i4")  # the last is for nulls: their index is -1
        self._places[-1] = -1
        self._first = np.empty(len(values) + 1, "i4")
        self._used: list[Array] = []
        self._count = 0
        self._indices: list[Array] = []

    def __bool__(self) -> bool:
        return bool(self._indices)

    def add(self, indices: Array) -> None:
        places = self._places[indices]
        where = np.flatnonzero(places == _NOT_SEEN)
        if len(where):
            new, order = indices[where], np.arange(len(where), dtype="i4")
            self._first[new[::-1]] = order[::-1]  # of a repeated index the last assignment stays: its first occurrence
            used = new[self._first[new] == order]
            self._places[used] = order[: len(used)] + np.int32(self._count)
            self._used.append(used)
            self._count += len(used)
            places[where] = self._places[new]
        self._indices.append(places)

    def take(self) -> Piece:
        """The values used so far; the next ones start anew."""
        used = np.concatenate([np.empty(0, np.int64), *self._used])
        piece = np.concatenate(self._indices), self._values.take(pa.array(used))
        self._places[used] = _NOT_SEEN
        self._used, self._count, self._indices = [], 0, []
        return piece


def indexed(array: pa.Array, text: pa.DataType) -> Piece:
    """A text array, plain or dictionary-encoded, as a piece; some of its values may be unused, repeated or null."""
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    indices, values = array.indices, array.dictionary
    if len(values) > 4 * len(indices):  # the dictionary of a whole file with the rows of one batch
        within = indices.dictionary_encode()
        indices, values = within.indices, values.take(within.dictionary)
    if indices.type != pa.int32():
        indices = indices.cast(pa.int64())  # an unsigned index has no -1
    places = indices.fill_null(-1).to_numpy()
    if values.null_count:
        places = np.append(np.where(values.is_valid(), np.arange(len(values)), -1), -1)[places]
    return places, values if values.type == text else values.cast(text)


def _merged(pieces: list[Piece]) -> Piece:
    """One piece, in which no value is there twice."""
    encoded = pa.concat_arrays([values for _, values in pieces]).dictionary_encode()
    if len(pieces) == 1 and len(encoded.dictionary) == len(encoded):
        return pieces[0]
    places, start, merged = encoded.indices.to_numpy(), 0, []
    for indices, values in pieces:
        merged.append(np.append(places[start : start + len(values)], np.int32(-1))[indices])
        start += len(values)
    return np.concatenate(merged), encoded.dictionary
