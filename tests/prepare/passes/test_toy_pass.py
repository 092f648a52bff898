"""A new kind of pass is one module and one line in the registry: this one, beside the eight that there are."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest

import penstock
from penstock.base.faults import Sweep, sweeping
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import (
    Facts,
    Finished,
    Holds,
    LedgerRows,
    Left,
    Lost,
    Need,
    Pass,
    Report,
    Task,
    Work,
    Workload,
    cutting,
)
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.kinds import Kind, SoFar
from penstock.shards.columns import commit_file
from penstock.shards.manifest import ShardFacts, Step
from tests.promises import workshop

# The module.


@dataclass(frozen=True)
class Shard:
    """What a task reads: the shards of one task before."""

    number: int

    def __str__(self) -> str:
        return f"shards of task {self.number}"


@dataclass(frozen=True)
class Tally(Pass):
    """Counts the records of every shard, a task for each task before, and leaves artifacts/tally.json."""

    job: Job
    before: int

    @property
    def task_count(self) -> int:
        return len(self.job.survey.slices)

    def tasks(self, above: str) -> tuple[Task, ...]:
        inputs = [(Shard(number), [number]) for number in range(self.task_count)]
        return self.job.make_tasks(self, above, len(self.job.stages), inputs)

    def holds(self, means: Means) -> Holds:
        return Holds(means.measured.slices, known=Need(1 << 20, "tallying needs {needed}; {budget} is allowed"))

    def workload(self, means: Means) -> Workload:  # noqa: ARG002
        return Workload(0.0, reads=(self.before,))

    def project(self, settings: Settings, means: Means) -> Projection:
        return Projection(memory_with(settings.workers, 1 << 20, means), 0, 0, 0.0, self.job.rows)

    def facts(self) -> Facts:
        return Facts((), "shards", "tally", f"the shards of pass {self.before}", wrote="a tally")

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> TallyWork:  # noqa: ARG002
        return TallyWork(store.root, tuple(row.shards for row in left.rows[self.before]))

    def finish(self, left: Left, store: Store) -> Finished:
        tally: Counter[str] = Counter()
        for row in left.rows[self.number]:
            tally.update(row.states["tally"])
        return Finished(files=(commit_file(store, "artifacts/tally.json", json.dumps(tally).encode()),))


@dataclass(frozen=True)
class TallyWork(Work):
    shards: tuple[dict[str, ShardFacts], ...]

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost) -> LedgerRow:  # noqa: ARG002
        counts = {split: shard.records for split, shard in self.shards[task.input.number].items()}
        report(sum(counts.values()))
        step = Step("tally", "", sum(counts.values()), sum(counts.values()))
        return LedgerRow(task.name, task.fingerprint, steps={"tally": step}, states={"tally": counts})


# The line in the registry.


def tallied(so_far: SoFar) -> SoFar:
    last = len(so_far.passes) - 1
    return so_far.also(Tally(last + 1, "tally", so_far.job, last))


@pytest.fixture(autouse=True)
def registered(monkeypatch):
    monkeypatch.setattr(cutting, "KINDS", (*cutting.KINDS, Kind(behind=tallied)))


# What comes with it.


@pytest.fixture
def job(tmp_path: Path) -> Path:
    data = workshop.make_input(tmp_path / "data", files=2, rows=300, group=100)
    stages = [{"filter": "rtt > 1"}, {"split": {"by": "src", "test": 0.3}}]
    return workshop.write_job(tmp_path / "job.yaml", data, stages=stages, slice_size="2kB", workers=0)


def tally_of(output: Path) -> dict[str, int]:
    tally: dict[str, int] = json.loads((output / "artifacts" / "tally.json").read_text())
    return tally


def test_a_pass_of_a_new_kind_is_planned_run_accounted_and_shown(job):
    plan = penstock.plan(job)
    assert [each.pass_.kind for each in plan.passes] == ["map", "tally"]
    manifest = penstock.run(plan)
    assert tally_of(job.parent / "out") == {split: manifest.records(split) for split in manifest.splits}
    assert penstock.verify(job.parent / "out").problems == ()


def test_it_goes_on_after_an_error_with_what_was_done(job):
    whole = penstock.run(penstock.plan(job))
    with sweeping(Sweep()) as counted:  # as the run that fails, which knows its costs too
        penstock.run(penstock.plan(job), redo=True)
    rows = [number for number, (_, path) in enumerate(counted.operations) if "1-tally-00001" in path]
    with sweeping(Sweep(rows[0], 5)), pytest.raises(penstock.base.errors.PenstockError):
        penstock.run(penstock.plan(job), redo=True)
    assert workshop.ledger_rows(job.parent / "out") > 1
    assert penstock.run(penstock.plan(job)) == whole


def test_what_stands_before_it_decides_whether_it_is_done_again(job):
    penstock.run(penstock.plan(job))
    before = penstock.plan(job).passes[-1].tasks
    job.write_text(job.read_text().replace("rtt > 1", "rtt > 2"))
    assert {task.fingerprint for task in penstock.plan(job).passes[-1].tasks}.isdisjoint(
        task.fingerprint for task in before
    )
