"""Direct: samples on their way straight into the files of the dataset, where every row's place is known in advance."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.arrays.parts import PartsInto
from penstock.prepare.passes.folds.sink import Into, Produced
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import EDGES, Edges, Layout, Placer
from penstock.shards.record import encoders
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class DirectInto(Into):
    """Writes samples straight into the files of the dataset, if their number is known in advance."""

    schema: Schema
    layout: Layout

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Direct:  # noqa: ARG002
        return Direct(store, self, number, stack)

    def for_trial(self) -> Into:
        """Places are for all rows of a slice; parts cost the same."""
        return PartsInto(self.schema, tuple(self.layout), 1, ())


class Direct:
    """The samples of one task on their way to their final places."""

    def __init__(self, store: Store, into: DirectInto, number: int, stack: ExitStack) -> None:
        self._into, self._number = into, number
        self._encoders = {split: encoders(into.schema) for split in into.layout}
        self._placers: dict[str, dict[str, Placer]] = {}
        for split, columns in into.layout.items():
            placers = {each.column: Placer(store, each, each.starts[number]) for each in columns}
            self._placers[split] = placers
            for placer in placers.values():
                stack.callback(placer.close)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        for number, split in enumerate(self._into.layout):
            batch = rows.take_split(number)
            for encoder, values in zip(self._encoders[split], batch.columns, strict=True):
                for column, piece in encoder.encode(values):
                    self._placers[split][column].write(bytes_of(piece))

    def finish(self) -> Produced:
        shards: dict[str, ShardFacts] = {}
        edges: Edges = {}
        for split, columns in self._into.layout.items():
            for column in columns:
                placer, stop = self._placers[split][column.column], column.starts[self._number + 1]
                if placer.items != stop:
                    raise PenstockError(f"defect: {placer.items:,} items of {column.file} were placed, not {stop:,}")
                edges[column.file] = placer.finish()
            records = columns[0].starts[self._number + 1] - columns[0].starts[self._number]
            shards[split] = ShardFacts(split, records, tuple(column.placing for column in columns))
        return Produced(shards=shards, states={EDGES: edges}, lasting=False)
