"""Ranged work: what a worker does for one range of a Ranged pass."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Task, Work
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step


@dataclass(frozen=True)
class RangedWork(Work):
    number: int  # of the pass

    @property
    @abstractmethod
    def read(self) -> Sequence[FileFacts]:
        """Files of earlier passes."""

    @abstractmethod
    def ready(self) -> Self:
        """A copy whose tasks can find their ranges. Called if there are several tasks."""

    @cached_property
    def identity(self) -> str:
        return fingerprint([each.digest for each in self.read])

    @property
    def store(self) -> Store:
        return open_store(self.root)

    def row(self, task: Task, kind: str, spill: FileFacts, rows: int, states: Mapping[str, Any]) -> LedgerRow:
        steps = {kind: Step(kind, "", rows, rows)}
        return LedgerRow(
            task.name, task.fingerprint, spill=spill, steps=steps, states=dict(states), boot=self.store.session
        )
