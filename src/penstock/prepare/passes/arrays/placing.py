"""Placing: the parts that map tasks have put down -> the dataset's .npy files, every row at its place. Next: ledger.py.

A part is copied inside the kernel, a normalised column scaled on the way. Tasks write into the same files, each its own
ranges; doing one again writes the same bytes to the same place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Report, Task
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.part import PartColumn, open_part
from penstock.prepare.samples.groups import PartsByTask
from penstock.prepare.stages.normalize import Scale
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import ShardFacts, Step
from penstock.shards.placed import OFFSETS, Edge, Edges, Layout, PlacedColumn, Placer, columns_of, lay_out
from penstock.shards.schema import Schema

Array = np.ndarray[Any, Any]
EDGES = "edges"  # in the states of a ledger row: what the task wrote of blocks that it shares
_BYTES_AT_ONCE = 2 << 20


@dataclass(frozen=True)
class Part:
    """What tasks `number` up to `last` of the pass before have put down. One, or all of them."""

    number: int
    last: int

    def describe(self) -> list[int]:
        return [self.number, self.last]

    def __str__(self) -> str:
        return f"part {self.number}" if self.last == self.number + 1 else f"parts {self.number} to {self.last - 1}"


@dataclass(frozen=True)
class FromParts:
    """The input of a pass that places parts."""

    parts: PartsByTask
    layout: Layout
    scales: dict[str, Scale]  # by column
    types: dict[str, str]  # dtype of each column in the parts
    in_memory: bool  # gather everything before the first byte is written: merge_strategy: accumulative

    @cached_property
    def identity(self) -> str:
        """Where everything goes: what was placed by another layout must not stay."""
        columns = [
            (each.file, each.dtype, each.row_shape, each.starts, each.bases)
            for of in self.layout.values()
            for each in of
        ]
        return fingerprint([columns, {name: scale.artifact for name, scale in self.scales.items()}])

    @property
    def bytes(self) -> int:
        return sum(column.data_bytes for columns in self.layout.values() for column in columns)


def lay_out_parts(store: Store, splits: tuple[str, ...], written: Schema, output: Schema, parts: PartsByTask) -> Layout:
    """Where every part's rows will be: known as soon as all parts are there. `written` is what parts hold."""
    types = {name: dtype for name, dtype, _ in columns_of(output)}
    facts = columns_of(written)
    layout = {}
    for split in splits:
        files = (open_part(store, _file_of(part)) for part in parts)  # one at a time: their indexes add up
        columns = lay_out(split, facts, ([file.column(split, name).size for name, _, _ in facts] for file in files))
        layout[split] = tuple(replace(column, dtype=types[column.column]) for column in columns)
    return layout


def _file_of(part: dict[str, ShardFacts]) -> FileFacts:
    """All splits of a part are in one file."""
    return next(iter(part.values())).files[0]


def place(task: Task, root: str, source: FromParts, report: Report) -> LedgerRow:
    part, store = task.input, open_store(root)
    assert isinstance(part, Part)
    held: list[tuple[PlacedColumn, int, list[bytes]]] = []
    edges: Edges = {}
    records = 0
    for number in range(part.number, part.last):
        file = open_part(store, _file_of(source.parts[number]))
        for split, shard in source.parts[number].items():
            for placed in source.layout[split]:
                column = file.column(split, placed.column)
                if not len(column.pieces):
                    continue
                if source.in_memory:
                    held.append((placed, number, [bytes(each) for each in _changed(column, placed, number, source)]))
                else:
                    edges.setdefault(placed.file, []).extend(_place_column(store, column, placed, number, source))
            records += shard.records
            report(records)
        del file, column  # or the map would hold the pages
        store.forget_pages(_file_of(source.parts[number]).file)
    for placed, number, pieces in held:
        with _placer(store, placed, number) as placer:
            for piece in pieces:
                placer.write(memoryview(piece))
            edges.setdefault(placed.file, []).extend(placer.finish())
    crash_point("place.before_ledger")
    files = [(split, column.placing) for split, columns in source.layout.items() for column in columns]
    return LedgerRow(
        task=task.name,
        fingerprint=task.fingerprint,
        shards={
            split: ShardFacts(split, _records(source, part, split), tuple(file for of, file in files if of == split))
            for split in source.layout
        },
        spill=None,
        rejected=None,
        steps={"place": Step("place", "", records, records)},
        states={"layout": source.identity, EDGES: edges},
        lost_files=(),
        boot=store.session,
    )


def _records(source: FromParts, part: Part, split: str) -> int:
    return sum(each[split].records for each in source.parts[part.number : part.last] if split in each)


def _placer(store: Store, placed: PlacedColumn, number: int) -> closing[Placer]:
    return closing(Placer(store, placed, placed.starts[number]))


def _place_column(store: Store, column: PartColumn, placed: PlacedColumn, number: int, source: FromParts) -> list[Edge]:
    with ExitStack() as stack:
        placer = stack.enter_context(_placer(store, placed, number))
        if _is_changed(placed, source):
            for view in _changed(column, placed, number, source):
                placer.write(view)
        else:
            file = stack.enter_context(store.open(_file_of(source.parts[number]).file))
            for start, view in column.read():
                placer.copy(file, start, view)
        crash_point("place.in_column")
        return placer.finish()
    raise AssertionError  # for the type checker, which cannot know that the block does not swallow errors


def _is_changed(placed: PlacedColumn, source: FromParts) -> bool:
    return placed.column.endswith(OFFSETS) or placed.column in source.scales


def _changed(column: PartColumn, placed: PlacedColumn, number: int, source: FromParts) -> Iterator[memoryview]:
    """The part's bytes as they will stand in the file, a few at a time."""
    for _, view in column.read():
        if placed.column.endswith(OFFSETS):
            yield bytes_of(np.frombuffer(view, "<i8") + placed.bases[number])
        elif placed.column in source.scales:
            yield from _scaled(view, placed, source)
        else:
            yield view


def _scaled(view: memoryview, placed: PlacedColumn, source: FromParts) -> Iterator[memoryview]:
    dtype = np.dtype(source.types[placed.column]).newbyteorder("<")
    values = np.frombuffer(view, dtype).reshape(-1, *placed.row_shape)
    rows = max(1, _BYTES_AT_ONCE // max(placed.item_bytes, 1))
    for start in range(0, len(values), rows):
        yield bytes_of(source.scales[placed.column].apply(placed.column, values[start : start + rows]))
