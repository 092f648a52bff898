"""Work: one range of keys, from all slices and from earlier jobs -> a file of the rows that lose. The worker's half of
match.py."""

from dataclasses import dataclass
from functools import cached_property

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task
from penstock.prepare.passes.match.matching import match, write_matched
from penstock.prepare.passes.own_tasks import OwnWork
from penstock.prepare.stages.dedup.remembered import Remembered
from penstock.prepare.stages.dedup.runs import KEYS, open_written
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step


@dataclass(frozen=True)
class KeyRange:
    """One of the equal ranges into which all keys fall."""

    number: int

    def __str__(self) -> str:
        return f"keys, range {self.number}"


@dataclass(frozen=True)
class MatchWork(OwnWork):
    number: int  # of the pass
    keys: tuple[FileFacts, ...]  # of each slice, in their order
    remembered: Remembered | None
    ranges: int

    @cached_property
    def identity(self) -> str:
        return fingerprint([each.digest for each in self.keys])

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        """Write which rows of each slice lose, and, where they are to be remembered, the keys that are new."""
        store = open_store(self.root)
        files = [open_written(store, each) for each in self.keys]
        found = match(files, self.remembered.open() if self.remembered else [], task.input.number, self.ranges)
        name = f"{KEYS}/{self.number}-{task.input.number:05d}.losers"
        facts, rows = write_matched(store, name, found, len(files), self.remembered is not None, report)
        crash_point("match.before_ledger")
        return LedgerRow(
            task=task.name,
            fingerprint=task.fingerprint,
            shards={},
            spill=facts,
            rejected=None,
            steps={"match": Step("match", "", rows, rows)},
            states={"layout": self.identity},
            lost_files=(),
            boot=store.session,
        )
