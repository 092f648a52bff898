"""Inline engine: tasks, and a trial of a few, one after the other inside the driver (`workers: 0`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.errors import TaskError
from penstock.base.events import EventLog
from penstock.base.memory import own_memory, peak_watched
from penstock.base.stores.scratch import release_scratch
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.task import execute
from penstock.prepare.passes import Task, Work, nobody_watches
from penstock.prepare.passes.folds.trying.measure import measure
from penstock.prepare.survey.scouting import scout

if TYPE_CHECKING:
    from penstock.prepare.engines import Done


class InlineEngine:
    def __init__(self, store: Store, log: EventLog) -> None:
        self._store, self._log = store, log
        self._works: list[Work] = []

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self._works.append(work)
        for task in tasks:
            try:
                with peak_watched() as peak:
                    done(task, execute(work, task, settings, nobody_watches))
            except MemoryError as error:
                raise TaskError(
                    "a task ran out of memory inside the driver",
                    where=str(task.input),
                    next_step="set `workers: 1`: a worker that runs out is tried again with half the batch",
                ) from error
            self._log.say("sample", memory=peak[0], file=own_memory().file, rows=0, busy=1)

    def close(self) -> None:
        release_scratch(self._store.scratch_folder)
        for work in self._works:  # not before: a pass goes on with what the one before has opened
            work.close()


class InlineTrial:
    """Nobody watches it."""

    scout = staticmethod(scout)
    measure = staticmethod(measure)

    def __enter__(self) -> InlineTrial:
        return self

    def __exit__(self, *exception: object) -> None: ...

    def may_hold(self, limit: int) -> None: ...
