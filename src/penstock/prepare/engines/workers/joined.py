"""Joined: the engine of a member. In each pass it does the tasks that it can claim, with the engine of this machine,
and waits for those of others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from penstock.base.stores.leases import Leases
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines import Engine, Fed, Opening
from penstock.prepare.engines.choosing import make_engine
from penstock.prepare.engines.workers.board import Board
from penstock.prepare.engines.workers.claims import Claims
from penstock.prepare.passes import Task, Work

if TYPE_CHECKING:
    from penstock.prepare.engines import Done


def joining(board: Board, leases: Leases) -> Callable[[Opening], Engine]:
    """A function that opens the engine of a member, around that of its machine."""
    return lambda opening: Joined(make_engine(opening), board, leases)


class Joined:
    def __init__(self, engine: Engine, board: Board, leases: Leases) -> None:
        assert isinstance(engine, Fed)
        self._engine, self._board, self._leases = engine, board, leases

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        claims = Claims(tasks, work, self._board, self._leases, done)
        self._engine.serve(claims, work, settings, claims.finished)

    def held_bytes(self) -> int:
        return self._engine.held_bytes()

    def close(self) -> None:
        self._engine.close()
