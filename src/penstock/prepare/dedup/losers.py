"""Losers: the rows of a slice that a match has found to be repeated, put down by bucket and read back by slice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from penstock.prepare.dedup.keys import Array
from penstock.prepare.dedup.runs import RunsFile, RunsWriter, damaged

DUPLICATE, SEEN = 0, 1
REASONS = ("duplicate", "seen in an earlier job")
LOCAL = "repeated"  # in a slice's own file: a bit for each row, set where a row of the same run has had its key
_AT_ONCE = 1 << 20
_LOSER = np.dtype([("number", "<u4"), ("reason", "u1")])
_PLACE = np.dtype([("first", "<i8"), ("last", "<i8"), ("checksum", "<u8")])  # of a slice's losers, and of these numbers


def put_losers(writer: RunsWriter, slices: Array, numbers: Array, reasons: Array, slice_count: int) -> None:
    """Into a bucket's file, those of a slice together, with a checksum for each slice."""
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
    writer.put("losers", losers.view("u1"))
    writer.put("places", places.view("u1"))


def _checksum(data: Any, *place: int) -> int:
    hasher = xxhash.xxh3_64(np.array(place, "<i8").tobytes())
    hasher.update(data)
    return int(hasher.intdigest())


def losers_of(file: RunsFile, piece: int) -> Array:
    """Those of one slice in one bucket's file."""
    size = _PLACE.itemsize  # that of this slice alone is read: there may be many slices, and as many buckets
    (place,) = np.frombuffer(file.slice_of("places", piece * size, (piece + 1) * size), _PLACE)
    first, last = int(place["first"]), int(place["last"])
    data = file.slice_of("losers", max(0, first) * _LOSER.itemsize, max(0, first, last) * _LOSER.itemsize)
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


def bitmap_of(bits: Array, numbers: Array) -> Bitmap:
    """The bits, with those of `numbers` set, some at a time."""
    bits = bits.copy()
    for first in range(0, len(numbers), _AT_ONCE):
        some = numbers[first : first + _AT_ONCE]
        np.bitwise_or.at(bits, some >> 3, np.left_shift(1, some & 7).astype("u1"))
    return Bitmap(bits)


def read_losers(keys: RunsFile, buckets: Sequence[RunsFile], piece: int) -> tuple[Bitmap, Bitmap]:
    """Of one slice, from its own file and those of all buckets: (the duplicates, those that earlier jobs have had)."""
    found = np.concatenate([np.zeros(0, _LOSER), *(losers_of(file, piece) for file in buckets)])
    repeated = keys.array(LOCAL)
    duplicates = bitmap_of(repeated, found["number"][found["reason"] == DUPLICATE])
    return duplicates, bitmap_of(np.zeros_like(repeated), found["number"][found["reason"] == SEEN])
