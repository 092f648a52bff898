"""Inline engine: the tasks one after the other inside the driver (`workers: 0`), for debuggers and fault sweeps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.base.events import EventLog
from penstock.base.files import Folder
from penstock.base.memory import own_memory, peak_watched
from penstock.prepare.means import Settings
from penstock.prepare.passes import Task, Work
from penstock.prepare.task import execute

if TYPE_CHECKING:
    from penstock.prepare.engines import Done


def _nobody_watches(rows: int, place: str = "", whole: bool = True) -> None:  # noqa: ARG001
    return None


class InlineEngine:
    def __init__(self, folder: Folder, log: EventLog) -> None:
        self._folder, self._log = folder, log
        self._works: list[Work] = []

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self._works.append(work)
        for task in tasks:
            with peak_watched() as peak:
                done(task, execute(work, task, settings, _nobody_watches))
            self._log.say("sample", memory=peak[0], file=own_memory().file, rows=0, busy=1)

    def close(self) -> None:
        self._folder.release_scratch()
        for work in self._works:
            work.close()  # the process may go on to other things
