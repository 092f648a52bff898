"""Match: a pass over ranges of the keys that a fold has left -> which rows lose."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.passes import Facts, Finished, Holds, Learned, LedgerRows, Left, Need, Pass, Task, in_ranges
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.match.matching import KeyRange, MatchWork
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.dedup.dedup import Remembering
from penstock.prepare.stages.dedup.losers import Found
from penstock.prepare.stages.dedup.remembered import Remembered
from penstock.prepare.stages.dedup.runs import entries_of
from penstock.shards.columns import FileFacts

_KEYS_PER_RANGE, _MOST_RANGES = 1 << 19, 1024
_HELD_BYTES = 64 << 20  # 2**18 keys of 20 bytes, their places, and what sorting takes
_ROWS_PER_SECOND = 5e6


@dataclass(frozen=True)
class Match(Pass):
    job: Job
    before: int  # the pass that left the keys
    stage: int  # that compares rows

    @property
    def remembered(self) -> Remembered | None:
        """Keys of earlier jobs, which those of this one are added to."""
        stage = self.job.stages[self.stage]
        return stage.remembered if isinstance(stage, Remembering) else None

    @property
    def task_count(self) -> int:
        """Ranges of keys: what is too much for one is taken in pieces, so they decide nothing but speed."""
        return max(1, min(_MOST_RANGES, self.job.rows // _KEYS_PER_RANGE))

    @property
    def read_at_end(self) -> bool:
        return self.remembered is not None

    def tasks(self, above: str) -> tuple[Task, ...]:
        ranges = [(KeyRange(number), [number]) for number in range(self.task_count)]
        only = {"dedup": self.job.stages[self.stage].describe(), "container": FORMAT}
        return self.job.make_tasks(self, above, self.stage, ranges, only)

    def holds(self, means: Means) -> Holds:
        need = Need(_HELD_BYTES, "matching keys needs {needed}; {budget} is allowed")
        return Holds(means.measured.slices, known=need)

    def project(self, settings: Settings, means: Means) -> Projection:
        rows = self.job.rows
        return Projection(memory_with(settings.workers, _HELD_BYTES, means), 5 * rows, 0, rows / _ROWS_PER_SECOND, rows)

    def facts(self) -> Facts:
        stage = self.job.names[self.stage]
        hashed = f"pass {self.before} hashes them, pass {self.number} finds the duplicates"
        return Facts(
            (self.stage,),
            "keys",
            "duplicate marks",
            f"the keys of pass {self.before}{in_ranges(self.task_count)}",
            for_others=True,
            note=f"{stage} compares all documents: {hashed}, and later passes leave them out.",
        )

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> MatchWork:  # noqa: ARG002
        keys = spills_of(left.rows[self.before])
        return MatchWork(store.root, self.number, keys, self.remembered, self.task_count)

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        found = Found(keys=spills_of(left.rows[self.before]), losers=spills_of(rows))
        return {self.stage: Learned(found, is_written=False)}

    def finish(self, left: Left, store: Store) -> Finished:
        """Save the new keys for later jobs."""
        remembered, losers = self.remembered, spills_of(left.rows[self.number])
        return Finished(last=lambda: remembered.save(entries_of(store, losers))) if remembered else Finished()


def spills_of(rows: LedgerRows) -> tuple[FileFacts, ...]:
    return tuple(row.spill for row in rows if row.spill)
