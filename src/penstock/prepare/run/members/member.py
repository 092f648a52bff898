"""Member: one machine's part in a run: walk the passes as every other member does, and do of each what can be claimed.
Next: closing.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.errors import FileError, Interrupted, PenstockError, TaskError
from penstock.base.events import Observer
from penstock.base.stores import open_store
from penstock.base.stores.leases import Leases, Renewing
from penstock.base.stores.shared import SharedStore
from penstock.prepare.engines import Opening
from penstock.prepare.engines.choosing import make_engine
from penstock.prepare.engines.proving import EngineDiffers
from penstock.prepare.engines.workers.board import Board, FailedElsewhere
from penstock.prepare.engines.workers.joined import Joined
from penstock.prepare.engines.workers.member_log import MemberLog
from penstock.prepare.ledger import LedgerRow, read_row, row_names
from penstock.prepare.passes import Left
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.finishing import finish
from penstock.prepare.run.members.closing import conclude, finish_once, is_closed, with_members
from penstock.prepare.run.progress import Progress
from penstock.prepare.run.run import holding_others

if TYPE_CHECKING:
    from penstock.base.processes.nursery import Nursery


class _Known(Mapping[str, LedgerRow]):
    """Rows of the ledger by task, as they are when somebody asks."""

    def __init__(self, store: SharedStore) -> None:
        self._store = store
        self._last: LedgerRow | None = None  # asked for twice: whether it is there, and what it says

    def __getitem__(self, task: str) -> LedgerRow:
        if self._last is None or self._last.task != task:
            self._last = read_row(self._store, task)
        if self._last is None:
            raise KeyError(task)
        return self._last

    def __iter__(self) -> Iterator[str]:
        return iter(row_names(self._store))

    def __len__(self) -> int:
        return len(row_names(self._store))


@dataclass(frozen=True)
class Member:
    """`lease`: seconds without a sign of life before others do its tasks."""

    plan: Plan
    store: SharedStore
    lease: float
    started: float  # when the run was begun
    observe: Observer | None = None

    def work(self, nursery: Nursery) -> MemberLog:
        """Return when the dataset is there, with what this member has done."""
        board, leases = Board(self.store), Leases(self.store, self.lease)
        progress = Progress(self.plan, self.store, self.observe, self.started)

        def make(opening: Opening) -> Joined:
            return Joined(make_engine(opening), board, leases)

        log = MemberLog(self.store, progress.watch)
        with self._leaving(board), log, Renewing(leases):
            opening = Opening(self.plan, self.store, log, (), nursery)
            with holding_others(self.plan, shared=True), Doing.start(opening, progress, make, alone=False) as doing:
                left = doing.passes(_Known(self.store))
            finish_once(self.store, board, leases, lambda: self._finish(left, progress))
        return log

    def _finish(self, left: Left, progress: Progress) -> None:
        def run_facts() -> bytes:
            return with_members(progress.run_facts(), self.store, self.store.token)

        with holding_others(self.plan):
            finish(self.plan, self.store, left, run_facts)
        conclude(self.store, self.plan)

    @contextmanager
    def _leaving(self, board: Board) -> Iterator[None]:
        """Tell the others of an error that none of them can avoid. What only concerns this machine is told here."""
        try:
            yield
        except KeyboardInterrupt:
            raise Interrupted(
                "this worker has stopped, and given back its tasks; no incomplete files are left",
                where=self.store.folder,
                next_step="the others go on; the same command joins again",
            ) from None
        except FailedElsewhere as failed:
            raise failed.error from None
        except EngineDiffers as differs:
            raise TaskError(
                f"a library of this machine makes other tokens than the one that defines them: {differs}",
                next_step="install the versions that the other machines have; they go on",
            ) from None
        except Exception as error:
            if not self._is_over(board):
                _tell(board, error)
                raise
        finally:
            with suppress(PenstockError):
                self.store.sweep()

    def _is_over(self, board: Board) -> bool:
        """Whether the dataset is there: then whatever this member was doing failed for that. If the output was taken
        away instead, the error says so."""
        if not self.store.is_fenced:
            return False
        if not is_closed(open_store(self.store.folder)):
            board.refuse_ended()
        return True


def _tell(board: Board, error: Exception) -> None:
    """An error of this machine's disk or of its memory is its own; all others would meet any other."""
    if not isinstance(error, FileError):
        known = error if isinstance(error, PenstockError) else PenstockError(f"{type(error).__name__}: {error}")
        board.fail(known)
