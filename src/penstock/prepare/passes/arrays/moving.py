"""Moving: one column of a part -> its place in the dataset's .npy file.

It is copied inside the kernel; offsets are raised on the way, and stages applied that need an artifact: parts hold the
samples before them.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.faults import crash_point
from penstock.base.stores.store import Store
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.part import PartColumn
from penstock.prepare.stages.interfaces import changes_values
from penstock.prepare.stages.normalize import Scale
from penstock.prepare.stages.stage import Stage
from penstock.shards.placed import OFFSETS, Edge, PlacedColumn, Placer, columns_of
from penstock.shards.schema import Schema, schema_from_arrow

_BYTES_AT_ONCE = 2 << 20


@dataclass(frozen=True)
class Changes:
    """Changes of columns on their way."""

    scales: dict[str, Scale]  # by column
    types: dict[str, str]  # dtype of each column in the parts

    def concern(self, column: PartColumn, placed: PlacedColumn) -> bool:
        is_changed = placed.column.endswith(OFFSETS) or placed.column in self.scales
        return is_changed or not len(column.pieces)

    def made(self, column: PartColumn, placed: PlacedColumn, number: int) -> Iterator[memoryview]:
        """The bytes of part `number` as they will stand in the file, a few at a time.

        A part without nulls has no validity; other parts of the split have some.
        """
        if placed.is_validity and not len(column.pieces):
            yield from _all_valid(placed.starts[number + 1] - placed.starts[number])
        for _, view in column.read():
            if placed.column.endswith(OFFSETS):
                yield bytes_of(np.frombuffer(view, "<i8") + placed.bases[number])
            elif placed.column in self.scales:
                yield from self._scaled(view, placed)
            else:
                yield view

    def _scaled(self, view: memoryview, placed: PlacedColumn) -> Iterator[memoryview]:
        dtype = np.dtype(self.types[placed.column]).newbyteorder("<")
        values = np.frombuffer(view, dtype).reshape(-1, *placed.row_shape)
        rows = max(1, _BYTES_AT_ONCE // max(placed.item_bytes, 1))
        for start in range(0, len(values), rows):
            yield bytes_of(self.scales[placed.column].apply(placed.column, values[start : start + rows]))


def _all_valid(rows: int) -> Iterator[memoryview]:
    for start in range(0, rows, _BYTES_AT_ONCE):
        yield bytes_of(np.ones(min(_BYTES_AT_ONCE, rows - start), "u1"))


def part_schema(job: Job) -> Schema:
    """Schema of the samples before normalization."""
    applied = first_applied(job.stages)
    if applied == len(job.stages):
        return job.survey.output
    before = schema_from_arrow(job.survey.given[applied], "the columns before they are normalised")
    return job.survey.stored(before)


def first_applied(stages: tuple[Stage, ...]) -> int:
    """The first stage that needs an artifact to change values; in an arrays job nothing else stands behind it."""
    return next((number for number, stage in enumerate(stages) if changes_values(stage)), len(stages))


def changes_of(job: Job, artifacts: Mapping[int, Any]) -> Changes:
    """The changes that the applied stages make to columns on their way."""
    scales = {
        name: stage
        for number, stage in job.bound(first_applied(job.stages), len(job.stages), artifacts).items()
        if isinstance(stage, Scale)
        for name in stage.normalize.columns_of(job.survey.given[number])
    }
    return Changes(scales, {name: dtype for name, dtype, _ in columns_of(part_schema(job))})


def place_views(store: Store, placed: PlacedColumn, number: int, views: Iterable[memoryview]) -> list[Edge]:
    with closing(Placer(store, placed, placed.starts[number])) as placer:
        for view in views:
            placer.write(view)
        crash_point("place.in_column")
        return placer.finish()


def place_copy(store: Store, placed: PlacedColumn, number: int, column: PartColumn, name: str) -> list[Edge]:
    """Copy a column that lies in file `name`, as it is."""
    with closing(Placer(store, placed, placed.starts[number])) as placer, store.open(name) as file:
        for start, view in column.read():
            placer.copy(file, start, view)
        crash_point("place.in_column")
        return placer.finish()
