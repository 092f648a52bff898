"""Own tasks: what passes share that are no folds: their tasks read what one pass before has left."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.passes import Account, Finished, Learned, Left, Rows, Task, Trial
from penstock.prepare.passes.job import Job


@dataclass(frozen=True)
class OwnTasks(ABC):
    """The driver's half. `before` is the pass whose files it reads."""

    number: int
    job: Job
    before: int
    is_for_good = False

    @property
    def read_at_end(self) -> bool:
        return False

    @property
    @abstractmethod
    def task_count(self) -> int: ...

    @property
    def trial(self) -> Trial | None:
        return None

    def in_ranges(self) -> str:
        return f", in {counted(self.task_count, 'range')}" if self.task_count > 1 else ""

    def held_later(self, row_bytes: float) -> int:  # noqa: ARG002
        return 0

    def order(self, tasks: list[Task], store: Store) -> list[Task]:  # noqa: ARG002
        return tasks

    def learn(self, left: Left, rows: Rows) -> Mapping[int, Learned]:  # noqa: ARG002
        return {}

    def count(self, account: Account, rows: Rows) -> Account:  # noqa: ARG002
        return account

    def finish(self, left: Left, store: Store) -> Finished:  # noqa: ARG002
        return Finished()


@dataclass(frozen=True)
class OwnWork:
    """The worker's half."""

    root: str
    code = ()

    @property
    def notes(self) -> list[str]:
        return []

    def close(self) -> None: ...

    def may_lose(self, title: str) -> bool:  # noqa: ARG002
        return False
