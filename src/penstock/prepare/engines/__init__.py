"""Engine: runs the tasks of a pass, and reports each that is done. It does not affect the output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # a worker starts half again as fast without what only planning needs
    from penstock.prepare.budget.means import Settings
    from penstock.prepare.engines.events import Effort
    from penstock.prepare.ledger import LedgerRow
    from penstock.prepare.passes import Task, Work

    Done = Callable[[Task, LedgerRow, Effort], None]


class Engine(Protocol):
    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        """Return when every task is in the ledger; raise the error of the first that cannot be."""
        ...

    def close(self) -> None:
        """End all processes, in any state of the tasks."""
        ...
