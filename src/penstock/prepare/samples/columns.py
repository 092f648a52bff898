"""Columns: the values of one key of many samples -> an Arrow array, and why some values are not in it.

`column_of` chooses the column by the field's type. fitting.py and ragged.py say which numbers fit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.prepare.samples import batch, fitting, ragged
from penstock.prepare.samples.fitting import Array, Misfit
from penstock.prepare.samples.schema import SampleField
from penstock.shards.arrays import array_from_fixed, array_from_list
from penstock.shards.schema import type_to_arrow

Wrong = dict[int, Misfit]  # by place
_LISTED_BYTES = 32  # of a number in a list, about


class _Absent:
    """Marks an optional key that is missing."""


class _Here:
    """Marks a value that lies in the array of its column, in the sample's row."""


ABSENT, HERE = _Absent(), _Here()


@dataclass(frozen=True)
class Converted:
    """Values of all samples in the column's type. Values in the places of `wrong` are of no use."""

    column: Column
    values: Any
    wrong: Wrong
    valid: Array | None = None  # which samples have a value; None if all have

    def arrow(self, fits: Array) -> pa.Array:
        """The values of the samples that fit."""
        if fits.all():
            return self.column.arrow(self.values, self.valid)
        valid = None if self.valid is None else self.valid[fits]
        return self.column.arrow(self.column.chosen(self.values, fits), valid)


@dataclass(frozen=True)
class Column(ABC):
    field: SampleField

    def convert(self, values: Sequence[Any]) -> Converted:
        absent = {_Absent, type(None)} if self.field.is_optional else {_Absent}
        if absent.isdisjoint(map(type, values)):
            return Converted(self, *self.fit(values))
        present = np.array([type(value) not in absent for value in values])
        places = np.flatnonzero(present).tolist()
        found, wrong = self.fit([values[place] for place in places])
        wrong = {places[place]: misfit for place, misfit in wrong.items()}
        return Converted(self, self.filled(found, present), wrong, present if self.field.is_optional else None)

    def convert_stored(self, values: Sequence[Any], stored: Array) -> Converted:
        """Like `convert`; where a value is HERE, `stored` has it. The array is taken over."""
        return self.convert([stored[row] if value is HERE else value for row, value in enumerate(values)])

    def convert_batch(self, values: Any, first: int, last: int) -> Converted:
        """Like `convert`, of samples `first` to `last` of a column of a batch."""
        return self.convert(batch.elements(values, first, last))

    @abstractmethod
    def fit(self, values: Sequence[Any]) -> tuple[Any, Wrong]:
        """Values in the column's type."""

    @abstractmethod
    def filled(self, found: Any, present: Array) -> Any:
        """The values that were found, and the field's filling where none is present."""

    @abstractmethod
    def chosen(self, values: Any, fits: Array) -> Any: ...

    @abstractmethod
    def arrow(self, values: Any, valid: Array | None) -> pa.Array: ...

    def size(self, value: Any) -> int:  # noqa: ARG002
        """Bytes of one value as it was yielded, where values differ in size."""
        return 0

    def explained(self, misfit: Misfit) -> Misfit:
        return Misfit(misfit.reason, f"{misfit.detail}, {self.field.told}", self.field.key)


class Numbers(Column):
    """Numbers, or arrays of one shape."""

    def convert_stored(self, values: Sequence[Any], stored: Array) -> Converted:
        """All at once, if all values are stored and fit."""
        found = self._cast(stored) if set(map(type, values)) == {_Here} else None
        return super().convert_stored(values, stored) if found is None else Converted(self, found, {})

    def convert_batch(self, values: Any, first: int, last: int) -> Converted:
        """All at once, if it is an array of numbers and all fit. It is copied: the function may fill it again."""
        array = batch.numbers(values, first, last)
        found = None if array is None or array.shape[1:] != self.field.shape else self._cast(array)
        if array is None or found is None:
            return super().convert_batch(values, first, last)
        return Converted(self, found.copy() if np.may_share_memory(found, array) else found, {})

    def _cast(self, array: Array) -> Array | None:
        return fitting.cast(array, self.field.number, self.field.rounds)

    def fit(self, values: Sequence[Any]) -> tuple[Array, Wrong]:
        """All at once; or else those of a kind at once, such as int and np.int64 in turn; or else one by one."""
        all_at_once = self._together(values)
        if all_at_once is not None:
            return all_at_once, {}
        kinds = _by_kind(values)
        numbers = np.zeros((len(values), *self.field.shape), self.field.number)
        wrong: Wrong = {}
        for places in kinds:
            some = [values[place] for place in places]
            found = self._together(some) if len(kinds) > 1 else None
            if found is not None:
                numbers[places] = found
            else:
                wrong |= self._one_by_one(some, places, numbers)
        return numbers, wrong

    def _together(self, values: Sequence[Any]) -> Array | None:
        return fitting.together(values, self.field.shape, self.field.number, self.field.rounds)

    def _one_by_one(self, values: list[Any], places: list[int], into: Array) -> Wrong:
        wrong, field = {}, self.field
        for place, value in zip(places, values, strict=True):
            try:
                alone = self._together([value])
                found = fitting.exact(value, field.shape, field.number, field.rounds) if alone is None else alone[0]
                into[place] = found
            except Misfit as misfit:
                wrong[place] = self.explained(misfit)
        return wrong

    def filled(self, found: Array, present: Array) -> Array:
        filled = np.empty((len(present), *self.field.shape), self.field.number)
        filled[present] = found
        filled[~present] = self.field.filling()
        return filled

    def chosen(self, values: Array, fits: Array) -> Array:
        return values[fits]

    def arrow(self, values: Array, valid: Array | None) -> pa.Array:
        return array_from_fixed(values, self.field.parsed, valid)


class RaggedNumbers(Column):
    """Arrays that differ in the first dimension."""

    def fit(self, values: Sequence[Any]) -> tuple[ragged.Flat, Wrong]:
        """All at once, or else one by one."""
        field = self.field
        all_at_once = ragged.together(values, field.shape, field.number, field.rounds)
        if all_at_once is not None:
            return all_at_once, {}
        pieces, wrong = [], {}
        for place, value in enumerate(values):
            try:
                pieces.append(self._alone(value))
            except Misfit as misfit:
                pieces.append(np.empty((0, *field.shape), field.number))
                wrong[place] = self.explained(misfit)
        return ragged.joined(pieces, field.shape, field.number), wrong

    def _alone(self, value: Any) -> Array:
        field = self.field
        flat = ragged.together([value], field.shape, field.number, field.rounds)
        return ragged.exact(value, field.shape, field.number, field.rounds) if flat is None else flat.rows

    def filled(self, found: ragged.Flat, present: Array) -> ragged.Flat:
        pieces, filling = iter(found.pieces()), self.field.filling()
        every = [next(pieces) if is_present else filling for is_present in present.tolist()]
        return ragged.joined(every, self.field.shape, self.field.number)

    def chosen(self, values: ragged.Flat, fits: Array) -> ragged.Flat:
        return values.chosen(fits)

    def arrow(self, values: ragged.Flat, valid: Array | None) -> pa.Array:
        kind = self.field.parsed
        assert kind.inner
        return array_from_list(array_from_fixed(values.rows, kind.inner, None), values.offsets, kind, valid)

    def size(self, value: Any) -> int:
        if isinstance(value, np.ndarray):
            return value.nbytes
        return _LISTED_BYTES * len(value) * int(np.prod(self.field.shape)) if isinstance(value, list | tuple) else 0


class Texts(Column):
    def fit(self, values: Sequence[Any]) -> tuple[Sequence[str], Wrong]:
        if set(map(type, values)) == {str} and fitting.is_utf8("".join(values)):
            return values, {}
        return _each(self, values, fitting.exact_text, "")

    def filled(self, found: Sequence[Any], present: Array) -> list[Any]:
        values, filling = iter(found), self.field.filling()
        return [next(values) if is_present else filling for is_present in present.tolist()]

    def chosen(self, values: Sequence[Any], fits: Array) -> list[Any]:
        return [value for value, fit in zip(values, fits.tolist(), strict=True) if fit]

    def arrow(self, values: Sequence[Any], valid: Array | None) -> pa.Array:
        return pa.array(values, type_to_arrow(self.field.parsed), mask=None if valid is None else ~valid)


class Binaries(Texts):
    def fit(self, values: Sequence[Any]) -> tuple[Sequence[Any], Wrong]:
        if set(map(type, values)) == {bytes}:
            return values, {}
        return _each(self, values, fitting.exact_bytes, b"")

    def size(self, value: Any) -> int:
        return len(value) if isinstance(value, bytes) else 0


def column_of(field: SampleField) -> Column:
    if field.is_ragged:
        return RaggedNumbers(field)
    if field.parsed.is_text:
        return Texts(field) if field.parsed.name == "string" else Binaries(field)
    return Numbers(field)


def _by_kind(values: Sequence[Any]) -> list[list[int]]:
    """Places of values that have one type; arrays also one dtype and shape."""
    kinds: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        kind = (value.dtype, value.shape) if type(value) is np.ndarray else type(value)
        kinds.setdefault(kind, []).append(place)
    return list(kinds.values())


def _each(column: Column, values: Sequence[Any], exact: Any, instead: Any) -> tuple[list[Any], Wrong]:
    found, wrong = [], {}
    for place, value in enumerate(values):
        try:
            found.append(exact(value))
        except Misfit as misfit:
            found.append(instead)
            wrong[place] = column.explained(misfit)
    return found, wrong
