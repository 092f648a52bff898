"""Choosing: similar pairs, in the order of ranks -> which documents are removed, and for which: the worker's
half of choose.py.

A document is removed if a similar document stays. There are no chains: the survivor is always in the dataset.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from penstock.base.faults import crash_point
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task
from penstock.prepare.passes.near.ranges import FOLDER, NUMBER_BITS, NUMBER_MASK, pieces_of
from penstock.prepare.passes.near.verifying import in_order
from penstock.prepare.passes.ranged_work import RangedWork
from penstock.prepare.passes.run_ranges import RunRanges
from penstock.prepare.stages.dedup.near.removed import REMOVAL, REMOVED
from penstock.prepare.stages.dedup.parts import PartsWriter
from penstock.prepare.stages.dedup.runs import KEY, Array, RunsWriter
from penstock.shards.columns import FileFacts

_PAIRS_AT_ONCE = 1 << 17


@dataclass(frozen=True)
class ChooseWork(RangedWork):
    similar: RunRanges
    signed: tuple[FileFacts, ...]  # one file per slice, in the order of slices
    documents: tuple[int, ...]  # by slice

    @property
    def read(self) -> tuple[FileFacts, ...]:
        return (*self.similar.files, *self.signed)

    def ready(self) -> Self:
        return replace(self, similar=self.similar.ready(self.store))

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        store = self.store
        files = self.similar.of_range(store, task.input.number)
        bits = RemovedBits.of(self.documents)
        seen = 0
        sources: dict[str, int] = {}
        with ExitStack() as stack:
            name = f"{FOLDER}/{self.number}-{task.input.number:05d}.removed"
            writer = RunsWriter(store, name, stack, KEY, lasting=False)
            parts = PartsWriter(writer.file, REMOVED, REMOVAL, len(self.signed))
            for piece in pieces_of(files, _PAIRS_AT_ONCE):
                pairs = in_order(piece.read()[0])
                removing = pairs[bits.choose(pairs)]
                parts.add(removing["low"] >> NUMBER_BITS, _removals(removing))
                for source, count in zip(*np.unique(removing["source"], return_counts=True), strict=True):
                    sources[str(source)] = sources.get(str(source), 0) + int(count)
                seen += len(pairs)
                report(seen)
            facts = writer.finish(parts.finish())
        crash_point("choose.before_ledger")
        return self.row(task, "choose", facts, seen, {REMOVED: sources})


@dataclass(frozen=True)
class RemovedBits:
    """A bit for each document, set where it is removed. `starts` has the first bit of each slice."""

    bits: bytearray
    starts: Array

    @classmethod
    def of(cls, documents: Sequence[int]) -> "RemovedBits":
        starts = np.append(0, np.cumsum(documents)).astype("i8")
        return cls(bytearray(int(starts[-1]) // 8 + 1), starts)

    def choose(self, pairs: Array) -> list[int]:
        """Which pairs remove a document: the first of its pairs whose other document stays."""
        bits, chosen, before = self.bits, [], -1
        ones, others = self._places(pairs["low"]), self._places(pairs["other"])
        for number, (one, other) in enumerate(zip(ones, others, strict=True)):
            if one != before and not bits[other >> 3] >> (other & 7) & 1:
                bits[one >> 3] |= 1 << (one & 7)
                chosen.append(number)
                before = one
        return chosen

    def _places(self, documents: Array) -> list[int]:
        places: list[int] = (
            self.starts[(documents >> NUMBER_BITS).astype("i8")] + (documents & NUMBER_MASK).astype("i8")
        ).tolist()
        return places


def _removals(pairs: Array) -> Array:
    removals = np.empty(len(pairs), REMOVAL)
    removals["number"], removals["origin"] = (pairs["low"] & NUMBER_MASK), pairs["origin"]
    removals["survivor"], removals["similarity"] = pairs["other_origin"], pairs["similarity"]
    removals["hash"], removals["survivor_hash"] = pairs["hash"], pairs["other_hash"]
    return removals
