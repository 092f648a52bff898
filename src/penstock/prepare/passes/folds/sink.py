"""Sink: where the rows of a task end up. Each writes as rows come and appears when the task is done, or not at all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.base.stores.store import STATE, Store
from penstock.prepare.budget.costs import Point
from penstock.prepare.budget.means import Settings
from penstock.prepare.rows.marks import with_origins
from penstock.prepare.rows.rows import Rows
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts

PARTS = f"{STATE}/parts"


@dataclass(frozen=True)
class Produced:
    """Files and states that a task's sink has written."""

    shards: dict[str, ShardFacts] = field(default_factory=dict)
    spill: FileFacts | None = None
    states: dict[str, Any] = field(default_factory=dict)  # for the ledger, beside those of fits
    lasting: bool = True  # else it is there as long as the session of the store


class Sink(NamedTuple):
    """Takes the rows of a task, and finishes its files. By itself, that of a pass that only measures."""

    write: Callable[[Rows], None] = lambda _: None
    finish: Callable[[], Produced] = Produced


@dataclass(frozen=True)
class Into(ABC):
    """The worker's half of an ending: how to write what a task gives."""

    @abstractmethod
    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink: ...

    def for_trial(self) -> Into:
        """The writer for a trial: some rows of some slices, before there is a plan."""
        return self

    def weighed(self, point: Point, store: Store, number: int, shards: Mapping[str, ShardFacts]) -> Point:  # noqa: ARG002
        """The point of trial `number`, with what is told by the files it wrote."""
        return point

    def left(self, tasks: int) -> tuple[str, ...]:  # noqa: ARG002
        """Names of the files that so many tasks leave for a reader."""
        return ()


@dataclass(frozen=True)
class OriginsInto(Into):
    """Writes rows with the columns of their origins, or of those of their documents. `bits` are those of a position."""

    into: Into
    bits: int
    columns: tuple[str, ...]
    per_segment: bool

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:
        sink = self.into.open(store, number, stack, settings)
        how = (self.bits, self.columns, self.per_segment)
        return sink._replace(write=lambda rows: sink.write(with_origins(rows, *how)))

    def for_trial(self) -> Into:
        return replace(self, into=self.into.for_trial())

    def weighed(self, point: Point, store: Store, number: int, shards: Mapping[str, ShardFacts]) -> Point:
        return self.into.weighed(point, store, number, shards)

    def left(self, tasks: int) -> tuple[str, ...]:
        return self.into.left(tasks)
