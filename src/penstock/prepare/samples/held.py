"""Held: the samples of a user's function, as they are yielded -> typed batches of them.

    held = Held(Converter(schema), rows=1024, most_bytes=4 << 20)
    for sample in samples(path):
        held.take(sample)
    typed = held.typed()

Values are copied as they are taken: a function may fill the same array or dict again for the next sample. How samples
are cut into batches, the function's own or ours, decides nothing but speed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.prepare.samples.batch import Batch, length_of, sample_of
from penstock.prepare.samples.columns import HERE
from penstock.prepare.samples.fitting import Misfit
from penstock.prepare.samples.samples import Converter, Store, Typed, Values

_ARRAY = np.ndarray


@dataclass(frozen=True)
class Rest:
    """Samples of a batch that are still to be taken, from `first` on. Without `columns` none of them fits."""

    batch: Batch
    columns: list[Any] | None
    first: int
    length: int


class Held:
    """Samples on their way into one typed batch: `rows` at most, and not many more bytes than `most_bytes`."""

    def __init__(self, converter: Converter, rows: int, most_bytes: int) -> None:
        self._converter = converter
        self._rows = max(1, min(rows, most_bytes // converter.row_bytes))
        self._most_bytes = most_bytes
        self._size = 0  # bytes of values that differ in size
        self._alone: list[Values] = []  # samples that came one by one, after all others
        self._stores: list[Store] | None = None  # arrays of these
        self._typed: list[Typed] = []
        self._count = 0  # of the samples in `_typed`

    def __len__(self) -> int:
        return self._count + len(self._alone)

    @property
    def is_full(self) -> bool:
        return self._count + len(self._alone) >= self._rows or self._size > self._most_bytes

    def take(self, yielded: Any) -> Rest | None:
        """Take a sample, or as much of a batch as there is room for. Returns the rest of the batch."""
        if isinstance(yielded, Batch):
            return self._take_batch(yielded)
        if isinstance(yielded, Rest):
            return self._take_rest(yielded)
        values = self._converter.values_of(yielded)
        if isinstance(values, Misfit):
            self._alone.append(values)
            return None
        if self._stores is None:
            self._stores = self._converter.stores(values, self._rows - self._count)
        row = len(self._alone)
        for place, array, dtype, shape in self._stores:
            value = values[place]
            if type(value) is _ARRAY and value.dtype is dtype and value.shape == shape:
                array[row] = value
                values[place] = HERE
        self._alone.append(self._converter.kept(values))
        self._size += self._converter.size(self._alone[-1])
        return None

    def _take_batch(self, batch: Batch) -> Rest | None:
        try:
            length = length_of(batch)
        except Misfit as misfit:  # nobody can say how many samples these are: they count as one
            self._alone.append(misfit.with_traceback(None))
            return None
        columns = self._converter.values_of(batch.columns)
        rest = Rest(batch, None if isinstance(columns, Misfit) else columns, 0, length)
        return self._take_rest(rest) if length else None

    def _take_rest(self, rest: Rest) -> Rest | None:
        last = min(rest.length, rest.first + self._rows - len(self))
        if rest.columns is None:
            for number in range(rest.first, last):
                self.take(sample_of(rest.batch, number))
        else:
            room = self._most_bytes - self._size
            last, size = self._converter.last_within(rest.columns, rest.first, last, room)
            self._convert_alone()
            self._add(self._converter.convert_batch(rest.columns, rest.first, last), last - rest.first)
            self._size += size
        return replace(rest, first=last) if last < rest.length else None

    def _convert_alone(self) -> None:
        if self._alone:
            self._add(self._converter.convert(self._alone, self._stores or ()), len(self._alone))
            self._alone, self._stores = [], None

    def _add(self, typed: Typed, count: int) -> None:
        self._typed.append(typed.shifted(self._count))
        self._count += count

    def typed(self) -> Typed:
        """All samples that were taken, numbered from 0."""
        self._convert_alone()
        return self._converter.joined(self._typed)
