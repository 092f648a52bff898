"""Moving: one column of a part -> its place in the dataset's .npy file.

It is copied inside the kernel; offsets are raised and normalized columns scaled on the way.
"""

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from penstock.base.faults import crash_point
from penstock.base.stores.store import Store
from penstock.prepare.rows.container import bytes_of
from penstock.prepare.rows.part import PartColumn
from penstock.prepare.stages.normalize import Scale
from penstock.shards.placed import OFFSETS, Edge, PlacedColumn, Placer

_BYTES_AT_ONCE = 2 << 20


@dataclass(frozen=True)
class Changes:
    """Changes of columns on their way."""

    scales: dict[str, Scale]  # by column
    types: dict[str, str]  # dtype of each column in the parts

    def concern(self, placed: PlacedColumn) -> bool:
        return placed.column.endswith(OFFSETS) or placed.column in self.scales

    def made(self, column: PartColumn, placed: PlacedColumn, number: int) -> Iterator[memoryview]:
        """The bytes of part `number` as they will stand in the file, a few at a time."""
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
