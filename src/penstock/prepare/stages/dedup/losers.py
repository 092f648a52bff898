"""Losers: the rows of a slice that a match has found to be repeated, written by bucket and read back by slice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.prepare.stages.dedup.keys import Array
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter

DUPLICATE, SEEN = 0, 1
REASONS = ("duplicate", "seen in an earlier job")
LOCAL = "repeated"  # in a slice's own file: a bit for each row, set where a row of the same run has had its key
_NUMBERS_AT_ONCE = 1 << 20
_LOSER = np.dtype([("number", "<u4"), ("reason", "u1")])


def put_losers(writer: RunsWriter, part: int, slices: Array, numbers: Array, reasons: Array, slice_count: int) -> None:
    """One part of a bucket's losers, in groups by slice: there may be many slices, and as many buckets."""
    order = np.argsort(slices, kind="stable")
    losers = np.zeros(len(order), _LOSER)
    losers["number"], losers["reason"] = numbers[order], reasons[order]
    writer.file.put_groups(f"losers {part}", losers, np.searchsorted(slices[order], np.arange(slice_count + 1)))


@dataclass(frozen=True)
class Bitmap:
    """A bit for each row of a slice."""

    bits: Array

    def of(self, start: int, count: int) -> Array:
        """Bits of rows `start` to `start + count`, as booleans."""
        first = start // 8
        bits = np.unpackbits(self.bits[first : (start + count + 7) // 8], bitorder="little")
        return bits[start - 8 * first : start - 8 * first + count].astype(bool)


def set_bits(bits: Array, numbers: Array) -> None:
    """Set the bits of `numbers`, some at a time."""
    for first in range(0, len(numbers), _NUMBERS_AT_ONCE):
        some = numbers[first : first + _NUMBERS_AT_ONCE]
        np.bitwise_or.at(bits, some >> 3, np.left_shift(1, some & 7).astype("u1"))


def read_losers(keys: RunsFile, buckets: Sequence[RunsFile], piece: int) -> tuple[Bitmap, Bitmap]:
    """Losers of one slice, from its own file and all buckets: (the duplicates, those that earlier jobs have had)."""
    duplicates = keys.file.array(LOCAL).copy()
    seen = np.zeros_like(duplicates)
    for file in buckets:
        for part in range(file.file.facts["parts"]):
            found = np.frombuffer(file.file.group(f"losers {part}", piece, f"the losers of slice {piece}"), _LOSER)
            set_bits(duplicates, found["number"][found["reason"] == DUPLICATE])
            set_bits(seen, found["number"][found["reason"] == SEEN])
    return Bitmap(duplicates), Bitmap(seen)
