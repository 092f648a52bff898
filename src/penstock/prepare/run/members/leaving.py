"""Leaving: how a member's part in a run ends: with the dataset, or with an error that is its own or everybody's."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from penstock.base.errors import FileError, Interrupted, PenstockError, TaskError
from penstock.base.stores import open_store
from penstock.base.stores.shared import SharedStore
from penstock.prepare.engines.proving import EngineDiffers
from penstock.prepare.engines.workers.board import Board, FailedElsewhere
from penstock.prepare.run.members.ended import is_closed
from penstock.shards.manifest import MANIFEST


@contextmanager
def leaving(store: SharedStore, board: Board) -> Iterator[None]:
    """Tell the others of an error that none of them can avoid. What only concerns this machine is told here."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "this worker has stopped, and given back its tasks; no incomplete files are left",
            where=store.folder,
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
        if not _is_over(store, board):
            _tell(board, error)
            raise
    finally:
        with suppress(PenstockError):
            store.sweep()


def _is_over(store: SharedStore, board: Board) -> bool:
    """Whether the dataset is there: then whatever this member was doing failed for that. If the output was taken
    away instead, the error says so."""
    if not store.is_fenced:
        return store.exists(MANIFEST)  # a run begins by removing it, so it is this run's
    if not is_closed(open_store(store.folder)):
        board.refuse_ended()
    return True


def _tell(board: Board, error: Exception) -> None:
    """An error of this machine's disk or of its memory is its own; all others would meet any other."""
    if not isinstance(error, FileError):
        known = error if isinstance(error, PenstockError) else PenstockError(f"{type(error).__name__}: {error}")
        board.fail(known)
