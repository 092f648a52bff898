"""Claims: the tasks of a pass, as one member sees them: done, claimed by another, or free. A Feed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from penstock.base.stores.leases import Leases
from penstock.prepare.engines.events import Effort
from penstock.prepare.engines.workers.board import Board, Pause
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Task, Work

if TYPE_CHECKING:
    from penstock.prepare.engines import Done

ELSEWHERE = Effort(0.0, 0)  # for a task that another member has done


class Claims:
    """`done` is called once per task, whoever does it."""

    def __init__(self, tasks: Sequence[Task], work: Work, board: Board, leases: Leases, done: Done) -> None:
        self._open = {task.name: task for task in tasks}  # no row is known yet
        self._mine: set[str] = set()
        self._taken: set[str] = set()  # claimed by others, as of the last look
        self._expired: dict[str, int] = {}  # generations of claims that have expired or were given back
        self._work, self._board, self._leases, self._done = work, board, leases, done
        self._pause = Pause()

    @property
    def is_over(self) -> bool:
        return not self._open

    def take(self, room: int) -> Sequence[Task]:
        """Claim as many tasks as there is room for."""
        if self._pause.is_over:
            self._pause.begin(found=self._look())
        claimed: list[Task] = []
        for name, task in [*self._open.items()] if room > 0 else ():
            if len(claimed) == room:
                break
            if name not in self._mine and name not in self._taken and self._claim(task):
                claimed.append(task)
        return claimed

    def _look(self) -> bool:
        """Read new rows and claims. Returns whether anything is new."""
        self._board.refuse_ended()
        known = len(self._open)
        done = self._board.done() & self._open.keys() - self._mine
        for name in sorted(done):
            self._learn(self._open[name])
        claims = {name: each for name, each in self._leases.latest().items() if name in self._open.keys() - self._mine}
        before = self._taken
        self._expired = {name: each for name, each in claims.items() if self._leases.is_expired(name, each)}
        self._taken = claims.keys() - self._expired.keys()
        return len(self._open) < known or self._taken != before

    def _claim(self, task: Task) -> bool:
        if not self._leases.claim(task.name, self._expired.pop(task.name, 0)):
            self._taken.add(task.name)  # by another, since the last look
            return False
        if self._learn(task):  # done since the last look
            self._leases.settle(task.name)
            return False
        self._mine.add(task.name)
        return True

    def _learn(self, task: Task) -> bool:
        """Report the task as done if it has a row by now. Returns whether it has."""
        row = self._board.row(task, self._work)
        if row is None:
            return False
        del self._open[task.name]
        self._done(task, row, ELSEWHERE)
        return True

    def finished(self, task: Task, row: LedgerRow, effort: Effort) -> None:
        """This member has done it."""
        self._leases.settle(task.name)
        self._mine.discard(task.name)
        if self._open.pop(task.name, None):
            self._done(task, row, effort)

    def lost(self) -> Collection[str]:
        """Tasks whose claims other members have taken over: they do them now."""
        lost = self._leases.take_lost() & self._mine
        self._mine -= lost
        return lost
