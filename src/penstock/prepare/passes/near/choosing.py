"""Choosing: similar pairs, in the order of ranks -> which documents lose, and to which. The worker's half of choose.py.

A document is removed if a similar document stays. There are no chains: the survivor is always in the dataset.
"""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import IDENTITY, LedgerRow
from penstock.prepare.passes import Lost, Report, Task, Work
from penstock.prepare.passes.near.ranges import FOLDER, NUMBER_BITS, pieces_of
from penstock.prepare.passes.near.verifying import in_order
from penstock.prepare.stages.dedup.near.chosen import DOCUMENTS, LOSER, LOST, PARTS
from penstock.prepare.stages.dedup.runs import KEY, Array, RunsWriter, open_written
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step

REMOVED = "removed"  # in the states of the ledger row: by number of the source
_PAIRS_AT_ONCE = 1 << 17
_NUMBER = np.uint64((1 << int(NUMBER_BITS)) - 1)


@dataclass(frozen=True)
class ChooseWork(Work):
    number: int  # of the pass
    similar: tuple[FileFacts, ...]
    signed: tuple[FileFacts, ...]  # of each slice, in their order

    @cached_property
    def identity(self) -> str:
        return fingerprint([each.digest for each in (*self.similar, *self.signed)])

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        store = open_store(self.root)
        files = [open_written(store, each) for each in self.similar]
        losers = Losers.of([open_written(store, each).file.facts[DOCUMENTS] for each in self.signed])
        parts = seen = 0
        sources: dict[str, int] = {}
        with ExitStack() as stack:
            writer = RunsWriter(
                store, f"{FOLDER}/{self.number}-{task.input.number:05d}.losers", stack, KEY, lasting=False
            )
            for parts, piece in enumerate(pieces_of(files, _PAIRS_AT_ONCE), start=1):
                pairs = in_order(piece.read()[0])
                lost_ones = pairs[losers.choose(pairs)]
                lost_ones = lost_ones[np.argsort(lost_ones["low"])]
                bounds = np.searchsorted(lost_ones["low"] >> NUMBER_BITS, np.arange(len(self.signed) + 1, dtype="u8"))
                writer.file.put_groups(f"{LOST} {parts - 1}", _entries(lost_ones), bounds)
                for source, count in zip(*np.unique(lost_ones["source"], return_counts=True), strict=True):
                    sources[str(source)] = sources.get(str(source), 0) + int(count)
                seen += len(pairs)
                report(seen)
            facts = writer.finish({PARTS: parts})
        crash_point("choose.before_ledger")
        steps = {"choose": Step("choose", "", seen, seen)}
        states = {IDENTITY: self.identity, REMOVED: sources}
        return LedgerRow(task.name, task.fingerprint, spill=facts, steps=steps, states=states, boot=store.session)


@dataclass(frozen=True)
class Losers:
    """A bit for each document, set where it loses. `starts` has the first bit of each slice."""

    bits: bytearray
    starts: Array

    @classmethod
    def of(cls, documents: list[int]) -> "Losers":
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
            self.starts[(documents >> NUMBER_BITS).astype("i8")] + (documents & _NUMBER).astype("i8")
        ).tolist()
        return places


def _entries(pairs: Array) -> Array:
    losers = np.empty(len(pairs), LOSER)
    losers["number"], losers["origin"] = (pairs["low"] & _NUMBER), pairs["origin"]
    losers["survivor"], losers["similarity"] = pairs["other_origin"], pairs["similarity"]
    losers["hash"], losers["survivor_hash"] = pairs["hash"], pairs["other_hash"]
    return losers
