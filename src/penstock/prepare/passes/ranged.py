"""Ranged: a pass whose tasks are ranges of the keys, or of the documents, that earlier passes have left."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.passes import Facts, Holds, LedgerRows, Left, Need, Pass, Task, Workload, in_ranges
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.ranged_work import RangedWork
from penstock.shards.columns import FileFacts

MOST_RANGES = 1024


@dataclass(frozen=True)
class KeyRange:
    """One of the equal ranges into which all keys, or all documents, fall."""

    number: int

    def __str__(self) -> str:
        return f"range {self.number}"


@dataclass(frozen=True)
class Ranged(Pass):
    job: Job
    keyed: int  # the pass that left the keys
    stage: int  # that compares rows

    doing: ClassVar[str]  # in words, before "needs so much memory"
    writes: ClassVar[str]
    rows_per_second: ClassVar[float]  # of one worker
    bytes_per_row: ClassVar[int]  # that it leaves, per row of the input

    @property
    @abstractmethod
    def held_bytes(self) -> int:
        """Memory of one task."""

    @property
    @abstractmethod
    def only(self) -> Mapping[str, Any]:
        """Options that decide what it leaves."""

    def tasks(self, above: str) -> tuple[Task, ...]:
        count = self.task_count
        return self.job.make_tasks(
            self, above, self.stage, [(KeyRange(number), [number, count]) for number in range(count)], self.only
        )

    def holds(self, means: Means) -> Holds:
        need = Need(self.held_bytes, f"{self.doing} needs {{needed}}; {{budget}} is allowed")
        return Holds(means.measured.slices, known=need)

    @property
    def reads(self) -> tuple[int, ...]:
        """The passes whose files it reads."""
        return (self.keyed,)

    def workload(self, means: Means) -> Workload:  # noqa: ARG002
        return Workload(self.job.rows / self.rows_per_second, reads=self.reads)

    def project(self, settings: Settings, means: Means) -> Projection:
        rows = self.job.rows
        memory = memory_with(settings.workers, self.held_bytes, means)
        seconds = self.workload(means).seconds_with(settings, means.cores)
        return Projection(memory, self.bytes_per_row * rows, 0, seconds, rows)

    @abstractmethod
    def work(self, left: Left, root: str) -> RangedWork: ...

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> RangedWork:  # noqa: ARG002
        work = self.work(left, store.root)
        done = sum(row.identity == work.identity for row in kept)
        return work if self.task_count in (1, done) else work.ready()

    def told(self, reads: str, origin: str, note: str = "") -> Facts:
        """Facts for people. `origin` says which passes it reads."""
        origin += in_ranges(self.task_count)
        return Facts((self.stage,), reads, self.writes, origin, for_others=True, note=note)


def spills_of(rows: LedgerRows) -> tuple[FileFacts, ...]:
    """Files that the tasks of a pass have left."""
    return tuple(row.spill for row in rows if row.spill)
