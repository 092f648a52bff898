"""Own: the driver's half that pair, verify and choose share: passes with tasks of their own. Next: pair.py."""

from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.passes import Facts, Holds, Left, Need, Pass, Task, in_ranges
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.dedup.near.near_dedup import VERSION, NearDedup
from penstock.shards.columns import FileFacts

_MOST_RANGES = 1024


@dataclass(frozen=True)
class KeyRange:
    """One of the ranges into which the keys, or the documents, of a pass fall."""

    number: int

    def __str__(self) -> str:
        return f"range {self.number}"


@dataclass(frozen=True)
class OwnTasks(Pass):
    job: Job
    signed: int  # the pass that left the bands: the first of five
    stage: int

    held_bytes: ClassVar[int]
    reads: ClassVar[str]
    writes: ClassVar[str]
    rows_per_second: ClassVar[float]
    bytes_per_row: ClassVar[int]  # left for the next pass, per document of the input, where few bands are large

    @property
    def near(self) -> NearDedup:
        stage = self.job.stages[self.stage]
        assert isinstance(stage, NearDedup)
        return stage

    @property
    def task_count(self) -> int:
        """They decide nothing but speed: what is too much for one is taken in pieces."""
        return max(1, min(_MOST_RANGES, self.job.rows * self.near.banding.bands >> 19))

    def tasks(self, above: str) -> tuple[Task, ...]:
        count = self.task_count
        ranges: list[Any] = [(KeyRange(number), [number, count]) for number in range(count)]
        only = {"near_dedup": self.near.describe(), "version": VERSION, "container": FORMAT}
        return self.job.make_tasks(self, above, self.stage, ranges, only)

    def holds(self, means: Means) -> Holds:
        need = Need(self.held_bytes, f"{self.kind} of near-duplicates needs {{needed}}; {{budget}} is allowed")
        return Holds(means.measured.slices, known=need)

    def project(self, settings: Settings, means: Means) -> Projection:
        rows = self.job.rows
        memory = memory_with(settings.workers, self.held_bytes, means)
        return Projection(memory, self.bytes_per_row * rows, 0, rows / self.rows_per_second, rows)

    def facts(self) -> Facts:
        origin = f"the {self.reads} of pass {self.number - 1}{in_ranges(self.task_count)}"
        return Facts((self.stage,), self.reads, self.writes, origin, for_others=True)


def spills_of(left: Left, number: int) -> tuple[FileFacts, ...]:
    return tuple(row.spill for row in left.rows[number] if row.spill)
