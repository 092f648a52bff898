"""Onlooker: the engine of the watcher. It does no tasks, and reports those that the members do."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.base.events.log import EventLog
from penstock.base.stores.leases import Leases
from penstock.base.stores.shared import SharedStore
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.events import Effort
from penstock.prepare.engines.workers.board import Board, FailedElsewhere, Pause
from penstock.prepare.engines.workers.member_log import Heard, statuses
from penstock.prepare.job.engine_config import WorkersOptions
from penstock.prepare.passes import Task, Work

if TYPE_CHECKING:
    from penstock.prepare.engines import Done, Opening

_SAMPLE_SECONDS = 0.5
_SILENT_SECONDS = 15.0  # the status of a member that is older says nothing about now
_LONELY_SECONDS = 10.0  # without a sign of life until people are told: a worker that joins plans first
_UNTOLD_SECONDS = 2.0  # a new row waits so long for the log of the member that wrote it, which may have died


def open_engine(opening: Opening) -> Onlooker:
    options = opening.plan.config.engine.options
    assert isinstance(opening.store, SharedStore)
    assert isinstance(options, WorkersOptions)
    return Onlooker(opening.store, opening.log, Leases(opening.store, options.lease))


class Onlooker:
    def __init__(self, store: SharedStore, log: EventLog, leases: Leases) -> None:
        self._board, self._log, self._leases = Board(store), log, leases
        self._heard = Heard(store, store.token)
        self._efforts: dict[str, Effort] = {}  # of tasks that members say they have done
        self._rows_done, self._memory, self._sampled = 0, 0, 0.0
        self._sign, self._is_lonely = time.monotonic(), False  # when any worker last showed life
        self._signs: dict[str, tuple[float | None, float]] = {}  # of life: a member's clock, and ours then

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:  # noqa: ARG002
        left, seen, pause = {task.name: task for task in tasks}, dict[str, float](), Pause()
        while left:
            self.listen()
            known = len(left)
            for name in sorted(self._board.done() & left.keys()):
                since = seen.setdefault(name, time.monotonic())
                effort = self._efforts.pop(name, None)
                if effort is None and time.monotonic() - since < _UNTOLD_SECONDS:
                    continue
                row = self._board.row(left[name], work)
                if row:
                    self._rows_done += row.rows_read
                    done(left.pop(name), row, effort or Effort(0.0, 0))
            pause.begin(found=len(left) < known)
            time.sleep(pause.left)

    def listen(self) -> None:
        """Repeat what members have logged; raise the error that ended the run."""
        try:
            self._board.refuse_ended()
        except FailedElsewhere as failed:
            raise failed.error from None
        for _, said in self._heard.new():
            self._tell(said)
        if time.monotonic() - self._sampled >= _SAMPLE_SECONDS:
            self._sampled = time.monotonic()
            self._sample()

    def _tell(self, said: dict[str, Any]) -> None:
        name = said.pop("event")
        said.pop("time", None)
        if name == "task":
            self._efforts[said["task"]] = Effort(said["seconds"], said["attempts"])
        else:
            self._log.say(name, **said)

    def _sample(self) -> None:
        """Memory is that of the machine that holds most: `memory:` is per machine."""
        live = [each for each in statuses(self._board.store, self._board.store.token) if self._is_live(each)]
        workers = [state for each in live for state in each["workers"]]
        workers = [{**state, "worker": number} for number, state in enumerate(workers)]
        self._memory = max((each["memory"] for each in live), default=0)
        self._log.sample(
            memory=self._memory,
            file=max((each["file"] for each in live), default=0),
            rows=self._rows_done + sum(state["rows"] for state in workers),
            busy=len(workers),
            workers=workers,
        )
        self._look_for_life(bool(live))

    def _look_for_life(self, is_live: bool) -> None:
        """Say once that no worker is left. A claim is a sign of life too: of finishing, or of a long batch."""
        if is_live or self._leases.are_held():
            self._sign, self._is_lonely = time.monotonic(), False
        elif not self._is_lonely and time.monotonic() - self._sign >= _LONELY_SECONDS:
            self._is_lonely = True
            self._log.say("no_worker", waits_for=self._board.store.folder)

    def _is_live(self, status: dict[str, Any]) -> bool:
        """Whether the status has changed within some seconds. The clock of its machine may differ by hours."""
        said, now = status.get("time", 0.0), time.monotonic()
        before, since = self._signs.get(status["member"], (None, now))
        since = since if said == before else now
        self._signs[status["member"]] = said, since
        return not status.get("ended") and now - since < _SILENT_SECONDS

    def held_bytes(self) -> int:
        return self._memory

    def close(self) -> None: ...
