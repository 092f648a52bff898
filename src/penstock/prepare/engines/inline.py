"""Inline engine: tasks, and a trial of a few, one after the other inside the driver (`workers: 0`)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import TaskError
from penstock.base.events.log import EventLog
from penstock.base.memory import own_memory, peak_watched, tree_memory
from penstock.base.stores.scratch import release_scratch
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines import Feed, Listed
from penstock.prepare.engines.events import Effort
from penstock.prepare.engines.task import execute
from penstock.prepare.passes import Task, Work
from penstock.prepare.passes.folds.trying.measure import measure_inside
from penstock.prepare.survey.scouting import scout

if TYPE_CHECKING:
    from penstock.prepare.engines import Done

_SAMPLE_SECONDS = 0.25
_PAUSE_SECONDS = 0.02  # where tasks are done elsewhere, and there is none to do
_WATCHING = 0.05  # of the core that does the work: what is seen is told to people, and decides nothing


class InlineEngine:
    def __init__(self, store: Store, log: EventLog) -> None:
        self._store, self._log = store, log
        self._works: list[Work] = []
        self._rows_done = 0

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self.serve(Listed(tasks), work, settings, done)

    def serve(self, feed: Feed, work: Work, settings: Settings, done: Done) -> None:
        """Do the tasks that come while the pass runs, until no more will."""
        self._works.append(work)
        while not feed.is_over:
            tasks = feed.take(1)
            if not tasks:
                time.sleep(_PAUSE_SECONDS)
            self._do(tasks, work, settings, done)

    def _do(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        for task in tasks:
            watch = _Watch(self._log, task, self._rows_done)
            try:
                with peak_watched(_WATCHING) as peak:
                    row = execute(work, task, settings, watch.report)
            except MemoryError as error:
                raise TaskError(
                    "a task ran out of memory inside the driver",
                    where=str(task.input),
                    next_step="set `workers: 1`: a worker that runs out is tried again with half the batch",
                ) from error
            self._rows_done += row.rows_read
            done(task, row, Effort(watch.seconds))
            self._log.sample(memory=peak.counted, file=own_memory().file, rows=self._rows_done, busy=0, workers=[])

    def held_bytes(self) -> int:
        return tree_memory(os.getpid()).counted

    def close(self) -> None:
        release_scratch(self._store.scratch_folder)
        for work in self._works:  # not before: a pass goes on with what the one before has opened
            work.close()


class _Watch:
    """One task inside the driver: samples when it reports, at most four per second."""

    def __init__(self, log: EventLog, task: Task, rows_before: int) -> None:
        self._log, self._task, self._rows_before = log, task, rows_before
        self._began = self._sampled = time.monotonic()
        self._rows, self._file = 0, ""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._began

    def report(self, rows: int, place: str = "", whole: bool = True) -> None:  # noqa: ARG002
        self._rows, self._file = (self._rows, place) if place else (rows, self._file)
        if time.monotonic() - self._sampled < _SAMPLE_SECONDS:
            return
        memory = own_memory()
        state = {"worker": 0, "task": self._task.name, "slice": str(self._task.input), "file": self._file}
        state |= {"rows": self._rows, "seconds": round(self.seconds, 1)}
        rows_so_far = self._rows_before + self._rows
        self._log.sample(memory=memory.counted, file=memory.file, rows=rows_so_far, busy=1, workers=[state])
        self._sampled = time.monotonic()


class InlineTrial:
    """A trial inside the driver, without a watch."""

    scout = staticmethod(scout)
    measure = staticmethod(measure_inside)

    def __enter__(self) -> InlineTrial:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def get_ready(self) -> None: ...

    def may_hold(self, limit: int) -> None: ...
