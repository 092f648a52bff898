"""Shards: the sink of a fold whose rows are the dataset: a file per task and split."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Point
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced, Sink
from penstock.prepare.rows.order import Exchange
from penstock.prepare.rows.rows import Rows
from penstock.shards.columns import Container, Hold, open_columns
from penstock.shards.foreign.arrayrecord_file import PartWriter, merge_parts
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import Schema
from penstock.shards.shard import ShardWriter


@dataclass(frozen=True)
class ShardsInto(Into):
    schema: Schema
    splits: tuple[str, ...]
    container: Container | Literal["arrayrecord"]
    task_count: int
    exchange: Exchange | None  # by which its records were grouped

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:
        shards = Shards(store, self, number, stack, settings.hold_bytes)
        return Sink(shards.write, shards.finish)

    def weighed(self, point: Point, store: Store, number: int, shards: Mapping[str, ShardFacts]) -> Point:
        """The point with its bytes as they will be in the dataset, and whose they are, by the names of columns."""
        if self.container == "arrayrecord":
            merged = [merge_parts(store, f"{split}{number}", (part,)) for split, part in shards.items()]
            return replace(point, written=sum(shard.files[0].bytes for shard in merged), parts=point.written)
        columns = [column for shard in shards.values() for column in open_columns(store, shard.files).items()]
        sizes = [(name, column.array.nbytes) for name, column in columns]
        dictionary = sum(size for name, size in sizes if "/dictionary/" in name)
        rows = sum(size for name, size in sizes if "/values" in name and "/dictionary/" not in name)
        return replace(point, rows_bytes=rows, dictionary_bytes=dictionary)


class Shards:
    """The shards of one task, one per split, each opened when its first record comes."""

    def __init__(self, store: Store, into: ShardsInto, number: int, stack: ExitStack, hold_bytes: int) -> None:
        self._store, self._into, self._number = store, into, number
        self._writers: dict[str, ShardWriter | PartWriter] = {}
        self._hold = Hold(hold_bytes)
        stack.callback(self._close)

    def write(self, rows: Rows) -> None:
        for number, split in enumerate(self._into.splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self.add(split, batch)

    def add(self, split: str, batch: pa.RecordBatch) -> None:
        if split not in self._writers:
            self._writers[split] = self._open(split)
        self._writers[split].write(batch)

    def _open(self, split: str) -> ShardWriter | PartWriter:
        into, name = self._into, f"{split}/{self._number:05d}-of-{self._into.task_count:05d}"
        if into.container == "arrayrecord":
            assert into.exchange
            return PartWriter(self._store, f"{PARTS}/{name}", into.exchange.by[0], into.exchange.order[0])
        return ShardWriter(self._store, name, into.schema, into.container, self._hold)

    def finish(self) -> Produced:
        writers = {split: self._writers[split] for split in self._into.splits if split in self._writers}
        return Produced(shards={split: writer.commit() for split, writer in writers.items()})

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
