"""Placing: the parts that tasks have left -> the dataset's .npy files, every row at its place.

Tasks write into the same files, each its own ranges; doing one again writes the same bytes to the same place.
"""

from dataclasses import dataclass
from functools import cached_property

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task, Work
from penstock.prepare.passes.arrays.moving import Changes, place_copy, place_views
from penstock.prepare.passes.arrays.parts import open_part_of
from penstock.prepare.samples.groups import PartsByTask
from penstock.shards.manifest import ShardFacts, Step
from penstock.shards.placed import EDGES, Edges, Layout, PlacedColumn


@dataclass(frozen=True)
class Part:
    """The parts of tasks `number` up to `last` of the pass before: one, or all of them."""

    number: int
    last: int

    def __str__(self) -> str:
        return f"part {self.number}" if self.last == self.number + 1 else f"parts {self.number} to {self.last - 1}"


@dataclass(frozen=True)
class PlaceWork(Work):
    parts: PartsByTask
    layout: Layout
    changes: Changes
    in_memory: bool  # gather everything before the first byte is written: merge_strategy: accumulative

    @cached_property
    def identity(self) -> str:
        """Name of the places of everything: what was placed by another layout must not stay."""
        columns = [
            (each.file, each.dtype, each.row_shape, each.starts, each.bases)
            for of in self.layout.values()
            for each in of
        ]
        return fingerprint([columns, {name: scale.artifact for name, scale in self.changes.scales.items()}])

    @property
    def bytes(self) -> int:
        return sum(column.data_bytes for columns in self.layout.values() for column in columns)

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        part, store = task.input, open_store(self.root)
        assert isinstance(part, Part)
        held: list[tuple[PlacedColumn, int, list[memoryview]]] = []
        edges: Edges = {}
        records = 0
        for number in range(part.number, part.last):
            file = open_part_of(store, self.parts[number])
            for split, shard in self.parts[number].items():
                for placed in self.layout[split]:
                    column = file.column(split, placed.column)
                    if not (len(column.pieces) or (placed.is_validity and shard.records)):
                        continue
                    found = edges.setdefault(placed.file, [])
                    if self.in_memory:
                        views = [memoryview(bytes(each)) for each in self.changes.made(column, placed, number)]
                        held.append((placed, number, views))
                    elif self.changes.concern(column, placed):
                        found += place_views(store, placed, number, self.changes.made(column, placed, number))
                    else:
                        found += place_copy(store, placed, number, column, file.name)
                records += shard.records
                report(records)
            name, end = file.name, file.file.first_array
            del file, column  # or the map would hold the pages
            store.forget_pages(name, end)
        for placed, number, views in held:
            edges[placed.file] += place_views(store, placed, number, views)
        crash_point("place.before_ledger")
        shards = {split: self._shard(split, part) for split in self.layout}
        steps, states = {"place": Step("place", "", records, records)}, {EDGES: edges}
        return LedgerRow(task.name, task.fingerprint, shards, steps=steps, states=states, boot=store.session)

    def _shard(self, split: str, part: Part) -> ShardFacts:
        records = sum(each[split].records for each in self.parts[part.number : part.last] if split in each)
        return ShardFacts(split, records, tuple(column.placing for column in self.layout[split]))
