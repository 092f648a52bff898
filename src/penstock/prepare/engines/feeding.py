"""Feeding: where an engine's tasks come from: all of them at once, or as they are claimed while a pass runs."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from penstock.prepare.budget.means import Settings
    from penstock.prepare.engines import Done
    from penstock.prepare.passes import Task, Work


class Feed(Protocol):
    """Asked again and again while a pass runs, some times per second."""

    def take(self, room: int) -> Sequence[Task]:
        """Tasks to begin, `room` of which could begin now."""
        ...

    def lost(self) -> Collection[str]:
        """Names of tasks taken before that another does now."""
        ...

    @property
    def is_over(self) -> bool:
        """Whether no more tasks will come."""
        ...


@runtime_checkable
class Fed(Protocol):
    """An engine that does tasks as they come."""

    def serve(self, feed: Feed, work: Work, settings: Settings, done: Done) -> None: ...
    def close(self) -> None: ...


class Listed:
    """Tasks that are all known, and all this engine's own."""

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
