"""Engine: runs the tasks of a pass, and reports each that is done. It does not affect the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

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

    def close(self) -> None:
        """End all processes, in any state of the tasks."""
        ...
