"""Direct: samples on their way straight into the files of the dataset, where every row's place is known in advance."""

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.arrays.parts import PartsInto
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import EDGES, Edges, Layout, Placer
from penstock.shards.record import encoders
from penstock.shards.schema import Schema

Placers = dict[str, dict[str, Placer]]  # by split and column


@dataclass(frozen=True)
class DirectInto(Into):
    schema: Schema
    layout: Layout

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        encoding = {split: encoders(self.schema) for split in self.layout}
        placers: Placers = {}
        for split, columns in self.layout.items():
            placers[split] = {each.column: Placer(store, each, each.starts[number]) for each in columns}
            for placer in placers[split].values():
                stack.callback(placer.close)

        def write(rows: Rows) -> None:
            refuse_nulls(rows)
            for number, split in enumerate(self.layout):
                batch = rows.take_split(number)
                for encoder, values in zip(encoding[split], batch.columns, strict=True):
                    for column, piece in encoder.encode(values):
                        placers[split][column].write(bytes_of(piece))

        return Sink(write, lambda: self._finish(number, placers))

    def _finish(self, number: int, placers: Placers) -> Produced:
        shards: dict[str, ShardFacts] = {}
        edges: Edges = {}
        for split, columns in self.layout.items():
            for column in columns:
                placer, stop = placers[split][column.column], column.starts[number + 1]
                if placer.items != stop:
                    raise PenstockError(f"defect: {placer.items:,} items of {column.file} were placed, not {stop:,}")
                edges[column.file] = placer.finish()
            records = columns[0].starts[number + 1] - columns[0].starts[number]
            shards[split] = ShardFacts(split, records, tuple(column.placing for column in columns))
        return Produced(shards=shards, states={EDGES: edges}, lasting=False)

    def for_trial(self) -> Into:
        """Write parts in a trial: they cost the same, and places are known only for whole slices."""
        return PartsInto(self.schema, tuple(self.layout), 1, ())
