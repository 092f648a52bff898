"""Fold: a pass that takes what a Reader gives through some stages, into an Ending. The worker's half: work.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

from penstock.base.stores.store import Store
from penstock.prepare import passes
from penstock.prepare.budget.costs import Measured
from penstock.prepare.budget.means import Means, Projection, Settings, memory_of
from penstock.prepare.passes.folds.sink import Into, OriginsInto
from penstock.prepare.passes.folds.source import Source
from penstock.prepare.passes.folds.work import FoldWork
from penstock.prepare.passes.job import Inputs, Job
from penstock.prepare.rows.order import Exchange
from penstock.prepare.rows.rows import INNER
from penstock.prepare.stages.interfaces import busy_threads, fits_of
from penstock.shards.manifest import Step


class Reader(Protocol):
    """Input of a fold: slices of the input, or buckets of an exchange."""

    @property
    def word(self) -> str: ...  # that its costs go by
    @property
    def exchange(self) -> Exchange | None: ...  # whose buckets it reads, each in a task
    @property
    def task_count(self) -> int: ...
    def inputs(self) -> Inputs: ...
    def batches(self, measured: Measured) -> passes.Batches: ...
    def written(self, measured: Measured, workers: int) -> Written: ...
    def source(self, takes_codes: bool, left: passes.Left) -> Source: ...
    def count(self, account: passes.Account, rows: passes.LedgerRows) -> passes.Account: ...
    def facts(self) -> passes.Facts: ...

    def order(self, tasks: list[passes.Task], store: Store) -> list[passes.Task]:  # noqa: ARG002
        return tasks

    def bytes_to_sort(self, measured: Measured) -> int:  # noqa: ARG002
        """Bytes of the rows of a task that are sorted, if they are alike in size."""
        return 0


@dataclass(frozen=True)
class Written:
    """Bytes of output: in all, on disk at one time while it is written, and of the largest task."""

    in_all: int
    at_once: int
    largest: float


@dataclass(frozen=True)
class Ending:
    """Destination of the rows of a fold. This base class writes nothing: it is the ending of a fit."""

    writes: str = "artifact"
    wrote: str = ""
    into: Into | None = None  # the worker's half
    only: Mapping[str, Any] | None = None  # what decides it, beside rows so far; None: all that decides the dataset
    is_for_good: bool = False
    for_others: bool = False  # whether it is gone when the job is done
    word: str = ""  # that its costs go by, where it costs something else than its reader says
    places: tuple[Any, ...] = ()  # where rows go, if that is part of every fingerprint
    buckets: int = 0
    held_rows: float = 0.0  # rows of a task whose bytes a trial is too short to show
    batches: passes.Batches | None = None
    holds_output: bool = False
    takes_codes: bool = False
    applies_artifacts: bool = False  # whether a pass behind applies what stages have learned
    shown: tuple[int, ...] = ()  # more stages that people see the pass run
    hidden: tuple[int, ...] = ()
    exchange: Mapping[str, Any] = field(default_factory=dict)

    def disk(self, left: int, written: Written) -> tuple[int, int]:  # noqa: ARG002
        """(bytes for later passes or on the way, bytes of the dataset), if all tasks leave so much."""
        return (left if self.into else 0), 0

    def driver(self, means: Means) -> passes.Need | None:  # noqa: ARG002
        """Memory of the driver while it assembles the output."""
        return None

    def behind(self, reader: Reader) -> Ending:  # noqa: ARG002
        """The ending of a fold that reads the buckets of an exchange."""
        return self

    def finish(self, rows: passes.LedgerRows, store: Store) -> passes.Finished:  # noqa: ARG002
        return passes.Finished()


@dataclass(frozen=True)
class Fold(passes.Pass):
    """The stages from `first` up to `last`, and the fits among them that it does."""

    job: Job
    first: int
    last: int
    fits: tuple[int, ...]
    reader: Reader
    ending: Ending
    tries: passes.Tries  # how it is measured before there is a plan

    @property
    def task_count(self) -> int:
        return self.reader.task_count

    @property
    def is_for_good(self) -> bool:
        return self.ending.is_for_good

    @property
    def _word(self) -> str:
        return self.ending.word or self.reader.word

    @property
    def trial(self) -> passes.Trial | None:
        """The trial of a fit: it costs the same as the pass after it."""
        return passes.Trial(self._word, self._work(passes.Left(), ""), self.tries) if self.ending.into else None

    @property
    def states(self) -> passes.Need | None:
        rows, tasks = -(-self.job.rows // max(1, self.task_count)), self.task_count
        sizes = {number: tasks * fits_of(self.job.stages[number]).state_bytes(rows) for number in self.fits}
        if not sum(sizes.values()):
            return None
        number = max(sizes, key=lambda number: sizes[number])
        largest, step = self.job.names[number], fits_of(self.job.stages[number]).smaller_states
        what = f"the driver needs {{needed}}, most of it for what {tasks:,} tasks of `{largest}` measure; "
        return passes.Need(sum(sizes.values()), f"{what}{{budget}} is allowed", f"pass {self.number}", step)

    def tasks(self, above: str) -> tuple[passes.Task, ...]:
        buckets = self.task_count if self.reader.exchange else self.ending.buckets
        return self.job.make_tasks(self, above, self.last, self.reader.inputs(), self.ending.only, buckets)

    def holds(self, means: Means) -> passes.Holds:
        measured = means.measured
        return passes.Holds(
            measured.of(self._word),
            self.ending.batches or self.reader.batches(measured),
            output=self.reader.written(measured, 0).largest if self.ending.holds_output else 0.0,
            threads=busy_threads(self.job.stages[self.first : self.last]),
            driver=self.ending.driver(means),
        )

    def project(self, settings: Settings, means: Means) -> Projection:
        cost, workers, rows = means.measured.of(self._word), settings.workers, self.job.rows
        memory = memory_of(workers, settings.batch_bytes, settings.hold_bytes, cost, means)
        driver = self.ending.driver(means)
        side_by_side = 1 if settings.threads > 1 else workers  # threads were measured as they will be used
        speed = cost.rows_per_second * max(1, min(side_by_side, means.cores))
        written = self.reader.written(means.measured, workers)
        spill, output = self.ending.disk(int(rows * cost.output_row_bytes), written)
        scratch = self._scratch_bytes(settings, means)
        return Projection(max(memory, driver.bytes if driver else 0), spill, output, rows / speed, rows, scratch)

    def _scratch_bytes(self, settings: Settings, means: Means) -> int:
        """What is read and cannot be sorted at once, and what is written and not held."""
        sorted_bytes = self.reader.bytes_to_sort(means.measured)
        written = self.reader.written(means.measured, 0).largest if self.ending.holds_output else 0.0
        read = sorted_bytes if sorted_bytes > settings.batch_bytes else 0
        return max(1, settings.workers) * int(read + max(0.0, written - settings.hold_bytes))

    def held_later(self, row_bytes: float) -> int:
        return int(self.ending.held_rows * row_bytes)

    def facts(self) -> passes.Facts:
        read, ending = self.reader.facts(), self.ending
        own = (each for each in range(self.first, self.last) if each not in ending.hidden)
        return replace(
            read,
            stages=(*read.stages, *own, *ending.shown),
            writes=ending.writes,
            wrote=ending.wrote,
            for_others=ending.for_others,
            exchange={**ending.exchange, **read.exchange},
        )

    def order(self, tasks: list[passes.Task], store: Store) -> list[passes.Task]:
        return self.reader.order(tasks, store) if tasks else tasks

    def prepare(self, left: passes.Left, store: Store, kept: passes.LedgerRows, means: Means) -> FoldWork:  # noqa: ARG002
        work = self._work(left, store.root)
        if len(kept) == self.task_count:
            return work
        return replace(work, source=work.source.ready(store.root))

    @property
    def _sink(self) -> Into | None:
        """The writer of the ending; of rows that are the dataset, with their origins if these are kept."""
        into, survey = self.ending.into, self.job.survey
        if not into or survey.origin_bits is None or not self.is_for_good:
            return into
        per_segment = bool(survey.lineage and survey.lineage.per_segment)
        return OriginsInto(into, survey.origin_bits, survey.origin_columns, per_segment)

    def _work(self, left: passes.Left, root: str) -> FoldWork:
        artifacts = {number: each.artifact for number, each in left.learned.items()}
        return FoldWork(
            root=root,
            source=self.reader.source(self.ending.takes_codes, left),
            names=dict(enumerate(self.job.names)),
            stages=self.job.bound(self.first, self.last, artifacts),
            fits=self.fits,
            sink=self._sink,
            code=self.job.code,
            refuses=self.job.config.on_bad_input == "fail",
            is_for_good=self.is_for_good,
        )

    def learn(self, left: passes.Left, rows: passes.LedgerRows) -> Mapping[int, passes.Learned]:  # noqa: ARG002
        """The states of each fit, merged from left to right in the order of the tasks."""
        found = {}
        for number in self.fits:
            stage = fits_of(self.job.stages[number])
            fit, states = stage.fit(), (row.states[str(number)] for row in rows)
            artifact = fit.finish(reduce(fit.merge, states, fit.pack(fit.start())))
            found[number] = passes.Learned(artifact, stage.leaves_artifact)
        return found

    def count(self, account: passes.Account, rows: passes.LedgerRows) -> passes.Account:
        if not self.is_for_good:
            return account
        counted = dict(self.reader.count(account, rows))
        for number in range(self.first, self.last):
            steps = [row.steps[str(number)] for row in rows]
            counted[str(number)] = summed(self.job.names[number], self.job.units[number], steps)
        return counted | self._inner(rows)

    def _inner(self, rows: passes.LedgerRows) -> dict[str, Step]:
        """Values inside rows, from the stage that counts them on. A column that is only called so is not counted."""
        found: dict[str, Step] = {}
        for number in range(self.first, self.last):
            if found or self.job.stages[number].counts:
                steps = [row.steps[passes.inner_key(number)] for row in rows if passes.inner_key(number) in row.steps]
                step, passed_on = summed(self.job.names[number], INNER, steps), sum(each.passed_on for each in steps)
                made = {INNER: passed_on} if passed_on != step.given else {}
                found[passes.inner_key(number)] = replace(step, made=made)
        return found

    def finish(self, left: passes.Left, store: Store) -> passes.Finished:
        return self.ending.finish(left.rows[self.number], store)


def summed(name: str, unit: str, steps: Sequence[Step]) -> Step:
    aside: dict[str, int] = {}
    for reason, count in sorted(pair for step in steps for pair in step.set_aside.items()):
        aside[reason] = aside.get(reason, 0) + count
    return Step(name, unit, sum(step.taken for step in steps), sum(step.given for step in steps), aside)
