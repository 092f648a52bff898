"""Losers: the rows of a slice that a match has found to be repeated: written by range, read by slice, left out."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.parts import parts_of
from penstock.prepare.stages.dedup.runs import Array, RunsFile, open_runs
from penstock.prepare.stages.dedup.same_rows import SameRows
from penstock.prepare.stages.interfaces import Ends, Opens
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts

DUPLICATE, SEEN = 0, 1
REASONS = ("duplicate", "seen in an earlier job")
LOSERS = "losers"  # in the files of a match
LOCAL = "repeated"  # in a slice's own file: a bit for each row, set where a row of the same run has had its key
_NUMBERS_AT_ONCE = 1 << 20
LOSER = np.dtype([("number", "<u4"), ("reason", "u1")])


def bits_of(bits: Array, start: int, count: int) -> Array:
    """Bits of rows `start` to `start + count`, as booleans."""
    first = start // 8
    some = np.unpackbits(bits[first : (start + count + 7) // 8], bitorder="little")
    return some[start - 8 * first : start - 8 * first + count].astype(bool)


def set_bits(bits: Array, numbers: Array) -> None:
    """Set the bits of `numbers`, some at a time."""
    for first in range(0, len(numbers), _NUMBERS_AT_ONCE):
        some = numbers[first : first + _NUMBERS_AT_ONCE]
        np.bitwise_or.at(bits, some >> 3, np.left_shift(1, some & 7).astype("u1"))


def read_losers(store: Store, keys: RunsFile, losers: Sequence[FileFacts], number: int) -> tuple[Array, Array]:
    """Losers of one slice, a bit for each row: (duplicates, those of earlier jobs)."""
    duplicates = keys.file.array(LOCAL).copy()
    seen = np.zeros_like(duplicates)
    for found in parts_of(store, losers, LOSERS, LOSER, number):
        set_bits(duplicates, found["number"][found["reason"] == DUPLICATE])
        set_bits(seen, found["number"][found["reason"] == SEEN])
    return duplicates, seen


@dataclass(frozen=True)
class Found:
    """Files that a match has left: the keys of each slice, and the losers of each range."""

    keys: tuple[FileFacts, ...]
    losers: tuple[FileFacts, ...]


@dataclass(frozen=True, kw_only=True)
class Matched(Opens):
    """Dedup when all keys were matched: it leaves out the rows that lose."""

    keep: bool
    found: Found

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        keys = open_runs(store, self.found.keys[number])
        found = read_losers(store, keys, self.found.losers, number)
        same = SameRows("dedup", "hashed", number, keys.file.facts["rows"])
        return _Leaving(keep=self.keep, losers=found, same=same)

    def closed(self) -> None: ...  # what was opened belongs to its task


@dataclass(frozen=True, kw_only=True)
class _Leaving(Ends):
    """Leaves out the losers of one slice, whose rows come one after the other, as many as were hashed."""

    keep: bool
    losers: tuple[Array, Array]  # a bit for each row
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start, count = self.same.start_of(rows), len(rows)
        duplicates, seen = (bits_of(each, start, count) for each in self.losers)
        rows = rows.keep(~seen, REASONS[SEEN], self.keep)
        return rows.keep(~duplicates[~seen], REASONS[DUPLICATE], self.keep)

    def ended(self) -> None:
        self.same.ended()
