"""Losers: the rows of a slice that a match has found to be repeated, put down by bucket and read back by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from penstock.prepare.stages.dedup.keys import Array
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter, damaged

DUPLICATE, SEEN = 0, 1
REASONS = ("duplicate", "seen in an earlier job")
LOCAL = "repeated"  # in a slice's own file: a bit for each row, set where a row of the same run has had its key
_NUMBERS_AT_ONCE = 1 << 20
_LOSER = np.dtype([("number", "<u4"), ("reason", "u1")])
_PLACE = np.dtype([("first", "<i8"), ("last", "<i8"), ("checksum", "<u8")])  # of a slice's losers, and of these numbers


def put_losers(writer: RunsWriter, part: int, slices: Array, numbers: Array, reasons: Array, slice_count: int) -> None:
    """One part of a bucket's, those of a slice together, with a checksum for each slice."""
    order = np.argsort(slices, kind="stable")
    losers = np.zeros(len(order), _LOSER)
    losers["number"], losers["reason"] = numbers[order], reasons[order]
    bounds = np.searchsorted(slices[order], np.arange(slice_count + 1))
    places = np.zeros(slice_count, _PLACE)
    places["first"], places["last"] = bounds[:-1], bounds[1:]
    data, size = losers.view("u1").data, _LOSER.itemsize
    places["checksum"] = [
        _checksum(data[first * size : last * size], piece, first, last)
        for piece, (first, last) in enumerate(pairwise(bounds.tolist()))
    ]
    writer.put(f"losers {part}", losers.view("u1"))
    writer.put(f"places {part}", places.view("u1"))


def _checksum(data: Any, *place: int) -> int:
    hasher = xxhash.xxh3_64(np.array(place, "<i8").tobytes())
    hasher.update(data)
    return int(hasher.intdigest())


def losers_of(file: RunsFile, part: int, piece: int) -> Array:
    """Those of one slice in one part of a bucket's file."""
    size = _PLACE.itemsize  # that of this slice alone is read: there may be many slices, and as many buckets
    (place,) = np.frombuffer(file.slice_of(f"places {part}", piece * size, (piece + 1) * size), _PLACE)
    first, last = int(place["first"]), int(place["last"])
    data = file.slice_of(f"losers {part}", max(0, first) * _LOSER.itemsize, max(0, first, last) * _LOSER.itemsize)
    if _checksum(data, piece, first, last) != int(place["checksum"]):
        raise damaged(file.path, f"the losers of slice {piece}")
    return np.frombuffer(data, _LOSER)


@dataclass(frozen=True)
class Bitmap:
    """A bit for each row of a slice."""

    bits: Array

    def of(self, start: int, count: int) -> Array:
        """Of rows `start` to `start + count`, as booleans."""
        first = start // 8
        bits = np.unpackbits(self.bits[first : (start + count + 7) // 8], bitorder="little")
        return bits[start - 8 * first : start - 8 * first + count].astype(bool)


def set_bits(bits: Array, numbers: Array) -> None:
    """Those of `numbers`, some at a time."""
    for first in range(0, len(numbers), _NUMBERS_AT_ONCE):
        some = numbers[first : first + _NUMBERS_AT_ONCE]
        np.bitwise_or.at(bits, some >> 3, np.left_shift(1, some & 7).astype("u1"))


def read_losers(keys: RunsFile, buckets: Sequence[RunsFile], piece: int) -> tuple[Bitmap, Bitmap]:
    """Of one slice, from its own file and those of all buckets: (the duplicates, those that earlier jobs have had)."""
    duplicates = keys.array(LOCAL).copy()
    seen = np.zeros_like(duplicates)
    for file in buckets:
        for part in range(file.facts["parts"]):
            found = losers_of(file, part, piece)
            set_bits(duplicates, found["number"][found["reason"] == DUPLICATE])
            set_bits(seen, found["number"][found["reason"] == SEEN])
    return Bitmap(duplicates), Bitmap(seen)
