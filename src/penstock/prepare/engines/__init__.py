"""Engine: runs the tasks of a pass, and reports each that is done. It does not affect the output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

if TYPE_CHECKING:  # a worker starts half again as fast without what only planning needs
    from penstock.base.events.log import EventLog
    from penstock.base.processes.nursery import Nursery
    from penstock.base.stores.store import Store
    from penstock.prepare.budget.means import Settings
    from penstock.prepare.engines.events import Effort
    from penstock.prepare.ledger import LedgerRow
    from penstock.prepare.passes import Task, Work
    from penstock.prepare.plan.plan import Plan

    Done = Callable[[Task, LedgerRow, Effort], None]


class Opening(NamedTuple):
    """What an engine is opened with. `lock` has the descriptors that hold the output."""

    plan: Plan
    store: Store
    log: EventLog
    lock: tuple[int, ...]
    nursery: Nursery


class Engine(Protocol):
    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        """Return when every task is in the ledger; raise the error of the first that cannot be."""
        ...

    def held_bytes(self) -> int:
        """Memory that counts against `memory:` now; on several machines, that of the one that holds most."""
        ...

    def close(self) -> None:
        """End all processes, in any state of the tasks."""
        ...


class Feed(Protocol):
    """Gives an engine its tasks, some at a time. It is asked several times per second while a pass runs."""

    def take(self, room: int) -> Sequence[Task]:
        """New tasks. `room` of them could begin now."""
        ...

    def lost(self) -> Collection[str]:
        """Names of tasks that were taken here, and that another member does now."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no more tasks will come."""
        ...


@runtime_checkable
class Fed(Engine, Protocol):
    """An engine that does tasks as they come."""

    def serve(self, feed: Feed, work: Work, settings: Settings, done: Done) -> None: ...


class Listed:
    """A feed of tasks that are all known from the start."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = tasks

    def take(self, room: int) -> Sequence[Task]:  # noqa: ARG002
        tasks, self._tasks = self._tasks, ()
        return tasks

    def lost(self) -> Collection[str]:
        return ()

    @property
    def is_over(self) -> bool:
        return not self._tasks
