"""Leaving: how a member ends: with the dataset, with an error of this machine, or with one that ends the run."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.base.errors import FileError, Interrupted, PenstockError, TaskError
from penstock.base.stores import open_store
from penstock.base.stores.shared import SharedStore
from penstock.prepare.engines.proving import EngineDiffers
from penstock.prepare.engines.workers.board import Board, FailedElsewhere
from penstock.prepare.engines.workers.member_log import say_left
from penstock.prepare.run.members.ended import is_closed
from penstock.shards.manifest import MANIFEST


@contextmanager
def leaving(store: SharedStore, board: Board) -> Iterator[None]:
    """Report an error to the other members if they would meet it too. If it is of this machine alone, they go on, and
    the watcher names it."""
    try:
        with _swept(store):
            yield
    except KeyboardInterrupt:
        stopped = Interrupted(
            "this worker has stopped and given back its tasks; no incomplete files are left",
            where=store.folder,
            next_step="the others go on; the same command joins again",
        )
        say_left(store, stopped)
        raise stopped from None
    except FailedElsewhere as failed:
        raise failed.error from None
    except EngineDiffers as differs:
        wrong = TaskError(
            f"a library of this machine makes other tokens than the one that defines them: {differs}",
            next_step="install the versions that the other machines have. The others go on.",
        )
        say_left(store, wrong)
        raise wrong from None
    except Exception as error:
        if not _is_over(store, board):
            _tell(board, error)
            raise


@contextmanager
def _swept(store: SharedStore) -> Iterator[None]:
    """Remove the unfinished files of this member when it ends. On a full disk, that frees room to log the error."""
    try:
        yield
    finally:
        with suppress(PenstockError):
            store.sweep()


def _is_over(store: SharedStore, board: Board) -> bool:
    """Whether the dataset is there. Then this member failed only because the run was over. Raises if another run has
    taken the output."""
    if not store.is_fenced:
        return store.exists(MANIFEST)  # a run begins by removing it, so it is this run's
    if not is_closed(open_store(store.folder)):
        board.refuse_ended()
    return True


def _tell(board: Board, error: Exception) -> None:
    """Report the error to all members: they would meet it too, unless it comes from this machine's disk."""
    if isinstance(error, FileError):
        say_left(board.store, error)
    else:
        known = error if isinstance(error, PenstockError) else PenstockError(f"{type(error).__name__}: {error}")
        with suppress(PenstockError):  # the disk is full, or the run was just ended; `error` itself is what counts
            board.fail(known)
