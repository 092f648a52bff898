"""Parts: the samples of each task in a file of its own; when all are there, the place of every row. Next: place.py."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced, Sink
from penstock.prepare.rows.part import PartFile, PartWriter, open_part
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.groups import Groups, PartsByTask
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import VALID, Facts, Layout, Size, columns_of, lay_out
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class PartsInto(Into):
    """Writes the samples of a task into a part, with the groups of them that each split has."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int
    group_by: tuple[str, ...]
    optional: frozenset[str] = frozenset()  # columns that may be null

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        name = f"{PARTS}/{number:05d}-of-{self.task_count:05d}"
        writer = PartWriter(store, name, self.schema, self.splits, stack)
        groups = Groups(self.splits, self.group_by)

        def write(rows: Rows) -> None:
            refuse_nulls(rows, self.optional)
            groups.add(rows)
            for number, split in enumerate(self.splits):
                batch = rows.take_split(number)
                if batch.num_rows:
                    writer.write(split, batch)

        def finish() -> Produced:
            file = writer.finish(groups.encoded())
            return Produced({split: ShardFacts(split, count, (file,)) for split, count in writer.records.items()})

        return Sink(write, finish)


def open_part_of(store: Store, shards: Mapping[str, ShardFacts]) -> PartFile:
    """The part of one task: all splits are in one file."""
    return open_part(store, next(iter(shards.values())).files[0])


class LaidOut:
    """Keeps the layout of parts: making it reads a little of each, and from the disk when they have been placed."""

    def __init__(self) -> None:
        self._parts: PartsByTask = ()
        self._layout: Layout = {}

    def layout(
        self,
        store: Store,
        splits: tuple[str, ...],
        written: Schema,
        output: Schema,
        parts: PartsByTask,
        optional: frozenset[str] = frozenset(),
    ) -> Layout:
        if not self._layout or self._parts != parts:
            self._layout, self._parts = lay_out_parts(store, splits, written, output, parts, optional), parts
        return self._layout


def lay_out_parts(
    store: Store,
    splits: tuple[str, ...],
    written: Schema,
    output: Schema,
    parts: PartsByTask,
    optional: frozenset[str] = frozenset(),
) -> Layout:
    """Places of every part's rows: known as soon as all parts are there. `written` is the schema of the parts.

    A split has the column `a/valid` if one of its parts has it: one without nulls does without.
    """
    types = {name: dtype for name, dtype, _ in columns_of(output, optional)}
    facts = columns_of(written, optional)
    layout = {}
    for split in splits:
        sizes = [_sizes(open_part_of(store, part), split, facts) for part in parts]  # their indexes would add up
        has_nulls = {name for part in sizes for name, (size, _) in part.items() if name.endswith(VALID) and size}
        own = [fact for fact in facts if fact[0] in has_nulls or not fact[0].endswith(VALID)]
        for part, written_sizes in zip(parts, sizes, strict=True):
            written_sizes |= dict.fromkeys(has_nulls, (part[split].records, 0))
        columns = lay_out(split, own, ([each[name] for name, _, _ in own] for each in sizes))
        layout[split] = tuple(replace(column, dtype=types[column.column]) for column in columns)
    return layout


def _sizes(file: PartFile, split: str, facts: list[Facts]) -> dict[str, Size]:
    """Sizes of the columns in a part, by name; of no validity where the part has no nulls."""
    return {name: file.column(split, name).size for name, _, _ in facts}
