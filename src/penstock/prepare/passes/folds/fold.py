"""Fold: a pass that takes what a Reader gives through some stages, into an Ending. Next: run/task.py.

map, fit, scatter, gather and hash are folds with other plugs: `kind` is a word for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, Protocol

from penstock.base.errors import InputError
from penstock.base.faults import crash_point
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measured, Measurement
from penstock.prepare.budget.means import Means, Projection, Settings, memory_of
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import (
    Account,
    Batches,
    Facts,
    Finished,
    Holds,
    Learned,
    Left,
    Lost,
    Need,
    Report,
    Rows,
    Task,
    TaskInput,
    Trial,
    inner_key,
)
from penstock.prepare.passes.folds.chain import Chain, Count, Tap
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.passes.folds.sink import Into, Nothing, Sink
from penstock.prepare.passes.job import Described, Job
from penstock.prepare.rows.exchange import Exchange
from penstock.prepare.rows.rows import INNER
from penstock.prepare.rows.rows import Rows as Batch
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.stages.interfaces import Ends, Opens, busy_threads, fit_of, notes_of
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import Step

# The worker's half.


@dataclass
class Attempt:
    """A task that is being done."""

    work: FoldWork
    task: Task
    settings: Settings
    report: Report
    chain: Chain
    unreadable: list[UnreadablePart]  # parts of files that were found to be, and are passed over
    lost: list[UnreadablePart] = field(default_factory=list)  # parts, likewise, that were counted
    read: Count = field(default_factory=Count)
    rows: Count = field(default_factory=Count)  # that a user's function was given


class Source(Protocol):
    """The worker's half of a Reader."""

    @property
    def refuses(self) -> bool: ...  # whether bad input stops the job
    @property
    def reducers(self) -> dict[int, Stage]: ...  # stages that run inside the reader, whose fits it feeds itself
    def may_lose(self, title: str) -> bool: ...
    def fails_on(self, part: UnreadablePart) -> bool: ...
    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]: ...
    def files(self, piece: TaskInput) -> list[tuple[int, str]]: ...  # (source, path), in the order they are read
    def rejected_name(self, number: int) -> str: ...
    def rows(self, attempt: Attempt) -> Iterator[Batch]: ...  # counted
    def steps(self, attempt: Attempt) -> dict[str, Step]: ...  # of what was read
    def for_trial(self) -> Source: ...


@dataclass(frozen=True)
class FoldWork:
    """The work of every task of a fold."""

    root: str
    source: Source
    names: dict[int, str]
    stages: dict[int, Stage]  # by number, bound: those that need an artifact have it
    fits: tuple[int, ...]  # numbers of the stages whose reduction this pass runs
    sink: Into | None  # none: the pass only measures
    code: tuple[tuple[str, str], ...]
    is_for_good: bool = True  # else a later pass does the same to the same rows, and writes what is set aside
    identity: str = ""

    @property
    def notes(self) -> list[str]:
        return notes_of(tuple(self.stages.values()))

    def may_lose(self, title: str) -> bool:
        return self.source.may_lose(title)

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:
        """Do the task.

        A part that cannot be decoded starts it anew without that part, so that what is kept of a damaged file never
        depends on how far the reading had come.
        """
        unreadable = self.source.given_up(task.input, lost)
        while True:
            try:
                return self._attempt(task, settings, report, unreadable)
            except UnreadablePart as part:
                if self.source.fails_on(part):
                    raise _refusal(part) from part
                unreadable.append(part)

    def _attempt(self, task: Task, settings: Settings, report: Report, unreadable: list[UnreadablePart]) -> LedgerRow:
        store, number = open_store(self.root), task.input.number
        with ExitStack() as stack:
            name, files = self.source.rejected_name(number), self.source.files(task.input)
            rejected = Rejected(store, name, stack, self.is_for_good, files)
            chain = Chain(self.open_stages(store, number, settings), self.taps(), rejected, self.source.refuses)
            attempt = Attempt(self, task, settings, report, chain, unreadable)
            sink = self.open_sink(store, number, stack, settings)
            for rows in self.source.rows(attempt):
                rows = chain(rows)
                rejected.write()
                sink.write(rows)
            for stage in chain.stages.values():
                if isinstance(stage, Ends):
                    stage.ended()
            produced = sink.finish()
            crash_point("task.after_shards")
        return LedgerRow(
            task=task.name,
            fingerprint=task.fingerprint,
            shards=produced.shards,
            spill=produced.spill,
            rejected=rejected.facts,
            steps={**self.source.steps(attempt), **self._steps(chain)},
            states={**{str(each): tap.finish() for each, tap in chain.taps.items()}, **produced.states},
            lost_files=tuple((part.segment.path, part.title) for part in attempt.lost if part.rows < 0),
            boot="" if produced.lasting else store.session,
        )

    def open_stages(self, store: Store, number: int, settings: Settings) -> dict[int, Stage]:
        threads, room = settings.threads, settings.room
        return {
            each: stage.opened(store, number, threads, room) if isinstance(stage, Opens) else stage
            for each, stage in self.stages.items()
        }

    def close(self) -> None:
        for stage in self.stages.values():
            if isinstance(stage, Opens):
                stage.closed()

    def open_sink(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:
        return self.sink.open(store, number, stack, settings) if self.sink else Nothing()

    def taps(self) -> dict[int, Tap]:
        stages = {**self.source.reducers, **self.stages}
        return {number: Tap(fit_of(stages[number])) for number in self.fits}

    def _steps(self, chain: Chain) -> dict[str, Step]:
        """Counts of each stage, by its number."""
        counts = chain.counts.items()
        steps = {str(number): count.step(self.names[number], "") for number, count in counts}
        inner = {inner_key(number): count.inner_step(self.names[number]) for number, count in counts if count.inner}
        return steps | inner

    def for_trial(self) -> FoldWork:
        """The work, going on where rows are bad, and with a sink that takes some rows of some slices."""
        return replace(self, source=self.source.for_trial(), sink=self.sink.for_trial() if self.sink else None)


def _refusal(part: UnreadablePart) -> InputError:
    rows = f" of {part.rows:,} rows" if part.rows >= 0 else ""
    return InputError(
        f"{part.title}{rows}: {part.reason}",
        where=f"{part.segment.location}, row {part.ordinal:,}" if part.rows >= 0 else part.segment.location,
        next_step="replace the file, or set `on_bad_input: set_aside` to go on without that part",
    )


# The driver's half.


class Reader(Protocol):
    """Input of a fold: slices of the input, or buckets of an exchange."""

    @property
    def word(self) -> str: ...  # that its costs go by
    @property
    def buckets(self) -> int: ...  # of the exchange that it reads, if any
    @property
    def exchange(self) -> Exchange | None: ...
    @property
    def task_count(self) -> int: ...
    def inputs(self) -> Sequence[Described]: ...
    def batches(self, measured: Measured) -> Batches: ...
    def written(self, measured: Measured, workers: int) -> Written: ...
    def source(self, takes_codes: bool) -> Source: ...
    def order(self, tasks: list[Task], store: Store) -> list[Task]: ...
    def count(self, account: Account, rows: Rows) -> Account: ...
    def facts(self) -> Facts: ...


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
    batches: Batches | None = None
    holds_output: bool = False
    takes_codes: bool = False
    applies_artifacts: bool = False  # whether a pass behind applies what stages have learned
    shown: tuple[int, ...] = ()  # more stages that people see the pass run
    hidden: tuple[int, ...] = ()
    exchange: Mapping[str, Any] = field(default_factory=dict)

    def disk(self, rows: int, written: Written, cost: Measurement) -> tuple[int, int]:  # noqa: ARG002
        """(bytes for later passes or on the way, bytes of the dataset)."""
        return (int(rows * cost.output_row_bytes) if self.into else 0), 0

    def held_later(self, row_bytes: float) -> int:  # noqa: ARG002
        """Bytes that a task holds beyond what a trial shows."""
        return 0

    def driver(self, means: Means) -> Need | None:  # noqa: ARG002
        """Memory of the driver while it assembles the output."""
        return None

    def behind(self, reader: Reader) -> Ending:  # noqa: ARG002
        """The ending of a fold that reads what an exchange left."""
        return self

    def finish(self, rows: Rows, store: Store) -> Finished:  # noqa: ARG002
        return Finished()


@dataclass(frozen=True)
class Fold:
    """The stages from `first` up to `last`, and the fits among them that it does."""

    number: int
    kind: str
    job: Job
    first: int
    last: int
    fits: tuple[int, ...]
    reader: Reader
    ending: Ending
    read_at_end = False

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
    def trial(self) -> Trial | None:
        """A fit costs what the pass behind it costs."""
        return Trial(self._word, self._work({}, "")) if self.ending.into else None

    def tasks(self, above: str) -> tuple[Task, ...]:
        buckets = max(self.reader.buckets, self.ending.buckets)
        inputs = self.reader.inputs()
        return self.job.make_tasks(self.number, self.kind, above, self.last, inputs, self.ending.only, buckets)

    def holds(self, means: Means) -> Holds:
        measured = means.measured
        return Holds(
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
        spill, output = self.ending.disk(rows, self.reader.written(means.measured, workers), cost)
        return Projection(max(memory, driver.bytes if driver else 0), spill, output, rows / speed, rows)

    def held_later(self, row_bytes: float) -> int:
        return self.ending.held_later(row_bytes)

    def facts(self) -> Facts:
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

    def order(self, tasks: list[Task], store: Store) -> list[Task]:
        return self.reader.order(tasks, store) if tasks else tasks

    def prepare(self, left: Left, store: Store, kept: Rows, means: Means) -> FoldWork:  # noqa: ARG002
        return self._work({number: each.artifact for number, each in left.learned.items()}, store.root)

    def _work(self, artifacts: Mapping[int, Any], root: str) -> FoldWork:
        return FoldWork(
            root=root,
            source=self.reader.source(self.ending.takes_codes),
            names=dict(enumerate(self.job.names)),
            stages=self.job.bound(self.first, self.last, artifacts),
            fits=self.fits,
            sink=self.ending.into,
            code=self.job.code,
            is_for_good=self.is_for_good,
        )

    def learn(self, left: Left, rows: Rows) -> Mapping[int, Learned]:  # noqa: ARG002
        """The states of each fit, merged from left to right in the order of the tasks."""
        found = {}
        for number in self.fits:
            fit = fit_of(self.job.stages[number])
            states = (row.states[str(number)] for row in rows)
            found[number] = Learned(fit.finish(reduce(fit.merge, states, fit.pack(fit.start()))))
        return found

    def count(self, account: Account, rows: Rows) -> Account:
        if not self.is_for_good:
            return account
        counted = dict(self.reader.count(account, rows))
        for number in range(self.first, self.last):
            steps = [row.steps[str(number)] for row in rows]
            counted[str(number)] = summed(self.job.names[number], self.job.units[number], steps)
        return counted | self._inner(rows)

    def _inner(self, rows: Rows) -> dict[str, Step]:
        """Values inside rows, from the stage that counts them on. A column that is only called so is not counted."""
        found: dict[str, Step] = {}
        for number in range(self.first, self.last):
            if found or self.job.stages[number].counts:
                steps = [row.steps[inner_key(number)] for row in rows if inner_key(number) in row.steps]
                step, passed_on = summed(self.job.names[number], INNER, steps), sum(each.passed_on for each in steps)
                made = {INNER: passed_on} if passed_on != step.given else {}
                found[inner_key(number)] = replace(step, made=made)
        return found

    def finish(self, left: Left, store: Store) -> Finished:
        return self.ending.finish(left.rows[self.number], store)


def summed(name: str, unit: str, steps: Sequence[Step]) -> Step:
    aside: dict[str, int] = {}
    for reason, count in sorted(pair for step in steps for pair in step.set_aside.items()):
        aside[reason] = aside.get(reason, 0) + count
    return Step(name, unit, sum(step.taken for step in steps), sum(step.given for step in steps), aside)
