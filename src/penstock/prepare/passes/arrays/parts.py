"""Parts: the samples of each task in a file of its own; when all are there, the place of every row. Next: place.py."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Rows as LedgerRows
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced
from penstock.prepare.rows.part import PartFile, PartWriter, open_part
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.groups import Groups, PartsByTask
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import Layout, columns_of, lay_out
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class PartsInto(Into):
    """Writes samples into parts, which a later pass places."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int
    group_by: tuple[str, ...]

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Parts:  # noqa: ARG002
        return Parts(store, self, number, stack)


class Parts:
    """The samples of one task, with the groups of them that each split has."""

    def __init__(self, store: Store, into: PartsInto, number: int, stack: ExitStack) -> None:
        self._splits = into.splits
        self._writer = PartWriter(
            store, f"{PARTS}/{number:05d}-of-{into.task_count:05d}", into.schema, into.splits, stack
        )
        self._groups = Groups(into.splits, into.group_by)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        self._groups.add(rows)
        for number, split in enumerate(self._splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self._writer.write(split, batch)

    def finish(self) -> Produced:
        file = self._writer.finish(self._groups.encoded())
        return Produced({split: ShardFacts(split, count, (file,)) for split, count in self._writer.records.items()})


def parts_of(rows: LedgerRows) -> PartsByTask:
    return tuple(row.shards for row in rows)


def open_part_of(store: Store, shards: Mapping[str, ShardFacts]) -> PartFile:
    """The part of one task: all splits are in one file."""
    return open_part(store, next(iter(shards.values())).files[0])


def lay_out_parts(store: Store, splits: tuple[str, ...], written: Schema, output: Schema, parts: PartsByTask) -> Layout:
    """Places of every part's rows: known as soon as all parts are there. `written` is the schema of the parts."""
    types = {name: dtype for name, dtype, _ in columns_of(output)}
    facts = columns_of(written)
    layout = {}
    for split in splits:
        files = (open_part_of(store, part) for part in parts)  # one at a time: their indexes add up
        columns = lay_out(split, facts, ([file.column(split, name).size for name, _, _ in facts] for file in files))
        layout[split] = tuple(replace(column, dtype=types[column.column]) for column in columns)
    return layout
