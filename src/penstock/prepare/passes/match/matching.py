"""Matching: one range of keys, from all slices and from earlier jobs -> which rows lose, and to what.

Of equal keys the first by position wins, unless an earlier job has had it already.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from penstock.base.faults import crash_point
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task
from penstock.prepare.passes.ranged_work import RangedWork
from penstock.prepare.passes.run_ranges import RunRanges
from penstock.prepare.stages.dedup.losers import DUPLICATE, LOSER, LOSERS, SEEN
from penstock.prepare.stages.dedup.parts import PartsWriter
from penstock.prepare.stages.dedup.remembered import Remembered
from penstock.prepare.stages.dedup.runs import (
    ENTRY,
    KEY,
    KEYS,
    Array,
    RunsFile,
    RunsWriter,
    repeats,
    sort_order,
)
from penstock.shards.columns import FileFacts

_KEYS_AT_ONCE = 1 << 18  # some 40 MB while they are sorted


@dataclass(frozen=True)
class MatchWork(RangedWork):
    keys: RunRanges  # one file per slice, in the order of slices
    remembered: Remembered | None

    @property
    def read(self) -> tuple[FileFacts, ...]:
        return self.keys.files

    def ready(self) -> Self:
        return replace(self, keys=self.keys.ready(self.store))

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        """Write which rows of each slice lose, and, where they are to be remembered, the keys that are new."""
        store, number = self.store, task.input.number
        files = self.keys.of_range(store, number)
        pieces = 1 + self.keys.keys(store, files) // len(self.keys.edges) // _KEYS_AT_ONCE
        found = match(files, self.remembered.open() if self.remembered else [], *self.keys.ends(number), pieces)
        name = f"{KEYS}/{self.number}-{task.input.number:05d}.losers"
        rows = 0
        with ExitStack() as stack:
            writer = RunsWriter(store, name, stack, KEY, lasting=False)
            parts = PartsWriter(writer.file, LOSERS, LOSER, len(files))
            for each in found:
                parts.add(each.slices, each.losers)
                if self.remembered:
                    writer.write(each.new)
                rows += len(each.slices) + len(each.new)
                report(rows)
            facts = writer.finish(parts.finish())
        crash_point("match.before_ledger")
        return self.row(task, "match", facts, rows, {})


@dataclass(frozen=True)
class Matched:
    """Rows that lose, the slice of each, and the keys that are new, which ascend."""

    slices: Array
    losers: Array
    new: Array


def match(
    files: Sequence[RunsFile], remembered: Sequence[RunsFile], first: int, last: int, pieces: int
) -> Iterator[Matched]:
    """The keys whose first word is at least `first` and below `last`, in pieces. `files` are those of the slices, in
    their order."""
    for piece in range(pieces):
        low = first + (last - first) * piece // pieces
        yield _match_range(files, remembered, low, first + (last - first) * (piece + 1) // pieces)


def _match_range(files: Sequence[RunsFile], remembered: Sequence[RunsFile], low: int, high: int) -> Matched:
    found = [file.between(low, high) for file in files]
    entries = np.concatenate([np.zeros(0, ENTRY), *found])
    slices = np.repeat(np.arange(len(found), dtype="u4"), [len(each) for each in found])
    order = sort_order(entries)
    entries, slices = entries[order], slices[order]
    repeated = repeats(entries)
    seen = np.zeros(len(entries), bool)
    firsts = np.flatnonzero(~repeated)
    for file in remembered:
        seen[firsts] |= _are_in(entries[firsts], file)
    lost = repeated | seen
    losers = np.empty(int(lost.sum()), LOSER)
    losers["number"], losers["reason"] = entries["number"][lost], np.where(repeated, DUPLICATE, SEEN)[lost]
    new = np.empty(int((~lost).sum()), KEY)
    new["high"], new["low"] = entries["high"][~lost], entries["low"][~lost]
    return Matched(slices[lost], losers, new)


def _are_in(keys: Array, file: RunsFile) -> Array:
    """Whether each of the sorted keys is in the file. Only the needed blocks are read."""
    answer = np.zeros(len(keys), bool)
    for known in file.near(keys["high"]):
        first = np.searchsorted(keys["high"], known["high"][0], side="left")
        last = np.searchsorted(keys["high"], known["high"][-1], side="right")
        answer[first:last] |= _is_in(keys[first:last], known)
    return answer


def _is_in(keys: Array, known: Array) -> Array:
    """Whether each key is among the `known`; both ascend."""
    answer = np.zeros(len(keys), bool)
    places = np.searchsorted(known["high"], keys["high"], side="left")
    left = np.flatnonzero(places < len(known))
    while len(left):  # once round, but for keys that share their first 64 bits
        at = places[left]
        same = known["high"][at] == keys["high"][left]
        answer[left] |= same & (known["low"][at] == keys["low"][left])
        places[left] += 1
        left = left[same & ~answer[left] & (places[left] < len(known))]
    return answer
