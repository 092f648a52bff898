"""Shingle: the ending of a fold over candidates that leaves the set of shingles of each. Next: verify.py."""

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.passes.near.ranges import FOLDER
from penstock.prepare.passes.near.sets import SET, SetsWriter
from penstock.prepare.stages.dedup.near.ranks import Rank
from penstock.prepare.stages.dedup.near.shingles import Shingling
from penstock.prepare.stages.dedup.runs import RunsWriter


@dataclass(frozen=True)
class SetsInto(Into):
    number: int  # of the pass
    column: str
    shingling: Shingling
    rank: Rank | None
    origin_bits: int  # of a position

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        file = RunsWriter(store, f"{FOLDER}/{self.number}-{number:05d}.sets", stack, SET, lasting=False)
        sets = SetsWriter(file, number, self.column, self.shingling, self.rank, self.origin_bits)
        return Sink(sets.write, lambda: Produced(spill=sets.finish(), lasting=False))
