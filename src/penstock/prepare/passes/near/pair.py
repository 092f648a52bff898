"""Pair: a pass over ranges of the band keys that a fold has left -> which documents share one. Next: shingle.py."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means
from penstock.prepare.passes import Learned, LedgerRows, Left
from penstock.prepare.passes.near.own import OwnTasks, spills_of
from penstock.prepare.passes.near.pairing import PairWork
from penstock.prepare.stages.dedup.near.chosen import Pairs


@dataclass(frozen=True)
class Pairing(OwnTasks):
    held_bytes, reads, writes, rows_per_second, bytes_per_row = 96 << 20, "bands", "pairs", 4e5, 160

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> PairWork:  # noqa: ARG002
        return PairWork(store.root, self.number, spills_of(left, self.signed), self.task_count)

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        found = Pairs(tuple(row.spill for row in rows if row.spill), spills_of(left, self.signed))
        return {self.stage: Learned(found, is_written=False)}
