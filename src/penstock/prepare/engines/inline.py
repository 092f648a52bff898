"""Inline engine: the tasks one after the other inside the driver (`workers: 0`), for debuggers and fault sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.events import EventLog
from penstock.base.memory import own_memory, peak_watched
from penstock.base.stores.scratch import release_scratch
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.task import execute
from penstock.prepare.passes import Task, Work, nobody_watches

if TYPE_CHECKING:
    from penstock.prepare.engines import Done


class InlineEngine:
    def __init__(self, store: Store, log: EventLog) -> None:
        self._store, self._log = store, log
        self._works: list[Work] = []

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self._works.append(work)
        for task in tasks:
            with peak_watched() as peak:
                done(task, execute(work, task, settings, nobody_watches))
            self._log.say("sample", memory=peak[0], file=own_memory().file, rows=0, busy=1)

    def close(self) -> None:
        release_scratch(self._store.scratch_folder)
        for work in self._works:
            work.close()  # the process may go on to other things
