"""Board: what the members of a run share: the rows of the ledger, and the error that ends the run."""

import json
import time
from dataclasses import dataclass
from typing import Any, Self

from penstock.base import errors
from penstock.base.errors import OutputError, PenstockError
from penstock.base.stores.shared import FAILURES, SharedStore, run_folder
from penstock.prepare.ledger import LedgerRow, done_tasks, read_row
from penstock.prepare.passes import Task, Work
from penstock.shards.manifest import MANIFEST, read_manifest


class TakenAway(OutputError):
    """The output belongs to another run now, or to none: the run of this member is over."""

    @classmethod
    def from_member(cls, output: str) -> Self:
        return cls(
            "another run has taken the output, so this worker has stopped; it leaves no files there",
            where=output,
            next_step="`penstock work` joins the new run, if that was started with `--engine workers`",
        )


class FailedElsewhere(Exception):
    """Another member has met an error that no member can avoid."""

    def __init__(self, error: PenstockError) -> None:
        super().__init__(str(error))
        self.error = error


@dataclass(frozen=True)
class Board:
    store: SharedStore

    def refuse_ended(self) -> None:
        """Raise if the output was taken away, or if a task failed for good somewhere."""
        if self.store.is_fenced:
            raise TakenAway.from_member(self.store.folder)
        for name in self.store.entries(run_folder(self.store.token, FAILURES)):
            raise FailedElsewhere(_read_error(self.store, name))

    def refuse_result_of_another(self, job: str) -> None:
        """Raise if the dataset is gone, or another job has made it, while this member was stopped."""
        if not self.store.exists(MANIFEST) or read_manifest(self.store).job != job:
            raise TakenAway.from_member(self.store.folder)

    def fail(self, error: PenstockError) -> None:
        """Tell all members that the run has failed. Running the job again clears it."""
        facts = {**error.as_dict(), "member": self.store.member}
        name = run_folder(self.store.token, f"{FAILURES}/{self.store.member}.json")
        self.store.commit_bytes(name, json.dumps(facts).encode())  # ASCII: paths may be no UTF-8

    def clear_failures(self) -> None:
        for name in self.store.entries(run_folder(self.store.token, FAILURES)):
            self.store.remove(name)

    def done(self) -> set[str]:
        """Names of the tasks that have a row."""
        return done_tasks(self.store)

    def row(self, task: Task, work: Work) -> LedgerRow | None:
        """The task's row, if this job and the same earlier tasks wrote it."""
        row = read_row(self.store, task.name)
        is_right = row is not None and task.is_done_by(row.fingerprint) and row.identity == work.identity
        return row if is_right else None


def _read_error(store: SharedStore, name: str) -> PenstockError:
    try:
        return _error_of(json.loads(store.read(name)))
    except (ValueError, KeyError, TypeError):
        return PenstockError(
            "a worker has failed, and the file that says why is damaged",
            where=store.where(name),
            next_step="look at what that worker printed; run the job again to go on",
        )


def _error_of(facts: dict[str, Any]) -> PenstockError:
    kind = getattr(errors, str(facts["error"]), PenstockError)
    error: PenstockError = kind(str(facts["what"]), facts["where"], facts["next_step"])
    for note in (*facts["notes"], f"on worker {facts['member']}"):
        error.add_note(note)
    return error


class Pause:
    """Time between two looks: short while something happens, then up to a second."""

    _LEAST, _MOST = 0.05, 1.0

    def __init__(self) -> None:
        self._seconds, self._next = self._LEAST, 0.0

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._next

    @property
    def left(self) -> float:
        return max(0.0, self._next - time.monotonic())

    def begin(self, found: bool) -> None:
        """`found`: whether the last look showed something new."""
        self._seconds = self._LEAST if found else min(self._MOST, 1.5 * self._seconds)
        self._next = time.monotonic() + self._seconds
