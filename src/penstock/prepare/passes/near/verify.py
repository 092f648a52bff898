"""Verify: a pass over ranges of documents -> the pairs that are similar, and how similar. Next: choose.py."""

from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means
from penstock.prepare.passes import LedgerRows, Left
from penstock.prepare.passes.near.own import OwnTasks, spills_of
from penstock.prepare.passes.near.verifying import VerifyWork


@dataclass(frozen=True)
class Verifying(OwnTasks):
    held_bytes, reads, writes, rows_per_second, bytes_per_row = 96 << 20, "pairs", "similar pairs", 5e4, 96

    @property
    def task_count(self) -> int:
        return min(super().task_count, len(self.job.survey.slices))

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> VerifyWork:  # noqa: ARG002
        pairs, sets = spills_of(left, self.signed + 1), spills_of(left, self.signed + 2)
        return VerifyWork(store.root, self.number, pairs, sets, self.near.threshold, self.task_count)
