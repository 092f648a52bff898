"""Samples: values of a user's samples -> a typed Arrow batch, and why some samples are not in it. Used by held.py.

fitting.py says what fits a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples import batch, fitting
from penstock.prepare.samples.columns import ABSENT, HERE, Column, Converted, column_of
from penstock.prepare.samples.fitting import PLAIN, WRONG_TYPE, Array, Misfit, Shape, held, named
from penstock.prepare.samples.schema import REQUIRED, Path, SampleSchema, arrow_schema

Values = tuple[Any, ...] | Misfit  # of a sample, in the order of `Converter.values_of`, or why there are none
Store = tuple[int, Array, np.dtype[Any], Shape]  # place of a column, its values, and their dtype and shape
_KEPT = PLAIN | {type(HERE)}


@dataclass(frozen=True)
class Problem:
    """Why a sample is not in the batch; the first reason there is."""

    sample: int  # its number in the file
    key: str  # "labels.action_type"; "" where the sample itself is no dict
    reason: str  # the same few words for the same kind of thing: see fitting.py
    detail: str  # "900 values, float32[893] was inferred from games/a.txt, sample 0"


@dataclass(frozen=True)
class Typed:
    """The samples that fit, their numbers (int64), and the problems of the others: the first of each, in order."""

    batch: pa.RecordBatch
    numbers: Array
    problems: tuple[Problem, ...]

    def shifted(self, first: int) -> Typed:
        """Numbers from `first` on."""
        problems = tuple(replace(each, sample=each.sample + first) for each in self.problems)
        return Typed(self.batch, self.numbers + first, problems)

    def before(self, number: int) -> Typed:
        """The samples before a number."""
        count = int(np.searchsorted(self.numbers, number))
        problems = tuple(each for each in self.problems if each.sample < number)
        return Typed(self.batch.slice(0, count), self.numbers[:count], problems)


class _Keys:
    """The keys of one dict of a sample that become columns, and those that hold further dicts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns: list[str] = []
        self.dicts: dict[str, _Keys] = {}

    def under(self, path: Path) -> _Keys:
        keys = self
        for key in path:
            keys = keys.dicts.setdefault(key, _Keys((*keys.path, key)))
        return keys

    def all(self) -> list[_Keys]:
        """These and those of the dicts inside, in a fixed order."""
        return [self, *chain.from_iterable(keys.all() for keys in self.dicts.values())]

    @property
    def names(self) -> list[str]:
        return [*self.columns, *self.dicts]


class Converter:
    def __init__(self, schema: SampleSchema) -> None:
        self._schema = schema
        self._arrow = arrow_schema(schema)
        self._columns: list[Column] = [column_of(each) for each in schema]
        self._dimensions = max(each.dimensions for each in schema)
        top = _Keys(())
        for each in schema:
            top.under(each.path[:-1]).columns.append(each.path[-1])
        self._keys = top.all()
        self._getters = [(keys.path, len(keys.names), _getter(keys.columns)) for keys in self._keys]
        # Values are held dict by dict, which need not be the order of the columns.
        order = [(*keys.path, key) for keys in self._keys for key in keys.columns]
        self._places = [order.index(each.path) for each in schema]
        placed = list(zip(self._places, self._columns, strict=True))
        self._of_any_size = [(place, each) for place, each in placed if each.field.has_any_size]
        self._of_arrays = [(place, each.field.shape) for place, each in placed if each.field.is_array]
        self.row_bytes = max(1, sum(each.row_bytes for each in schema))

    def values_of(self, sample: Any) -> list[Any] | Misfit:
        """Values of the sample, or columns of a batch, as they are."""
        values: list[Any] = []
        try:
            for path, size, getter in self._getters:
                node = sample
                for key in path:
                    node = node[key]
                if type(node) is not dict or len(node) != size:
                    return self._unusual_values(sample)
                values += getter(node)
        except KeyError:
            return self._unusual_values(sample)
        return values

    def _unusual_values(self, sample: Any) -> list[Any] | Misfit:
        """Values of a sample that has more keys or less, or dicts that are not plain ones."""
        try:
            values = [value for keys in self._keys for value in _found(sample, keys)]
        except Misfit as misfit:
            return misfit.with_traceback(None)  # which would keep the sample
        for place, each in zip(self._places, self._schema, strict=True):
            if values[place] is ABSENT and each.missing is REQUIRED:
                return Misfit(fitting.MISSING_KEY, each.told, each.key)
        return values

    def stores(self, values: list[Any], rows: int) -> list[Store]:
        """Room for the arrays of samples that are like this one."""
        return [
            (place, np.empty((rows, *shape), values[place].dtype), values[place].dtype, shape)
            for place, shape in self._of_arrays
            if type(values[place]) is np.ndarray and values[place].shape == shape and values[place].dtype.kind in "biuf"
        ]

    def kept(self, values: list[Any]) -> Values:
        """The values, which nobody else can change any more."""
        if _KEPT.issuperset(map(type, values)):
            return tuple(values)
        deepest = self._dimensions
        return tuple([value if type(value) in _KEPT else held(value, deepest) for value in values])

    def size(self, values: Values | list[Any]) -> int:
        """Bytes of the values whose size differs from sample to sample: few samples may be large."""
        if not self._of_any_size or isinstance(values, Misfit):
            return 0
        return sum(column.size(values[place]) for place, column in self._of_any_size)

    def last_within(self, columns: list[Any], first: int, last: int, most_bytes: int) -> tuple[int, int]:
        """(behind the last sample of a batch that is taken before more than `most_bytes` are, their bytes)."""
        values = [(column, batch.elements(columns[place], first, last)) for place, column in self._of_any_size]
        size = 0
        for number in range(last - first) if values else ():
            size += sum(column.size(each[number]) for column, each in values)
            if size > most_bytes:
                return first + number + 1, size
        return last, size

    def convert(self, samples: Sequence[Values], stores: Sequence[Store]) -> Typed:
        """Samples that were taken one by one."""
        misfits = {index: each for index, each in enumerate(samples) if isinstance(each, Misfit)}
        taken = [each for each in samples if not isinstance(each, Misfit)] if misfits else samples
        rows = np.delete(np.arange(len(samples)), list(misfits))
        values = list(zip(*taken, strict=True)) if taken else [()] * len(self._schema)
        stored = {place: array[rows] if misfits else array[: len(rows)] for place, array, _, _ in stores}
        found = [
            column.convert_stored(values[place], stored[place]) if place in stored else column.convert(values[place])
            for place, column in zip(self._places, self._columns, strict=True)
        ]
        return self._typed(found, rows, misfits)

    def convert_batch(self, columns: list[Any], first: int, last: int) -> Typed:
        """Samples `first` to `last` of a batch."""
        placed = zip(self._places, self._columns, strict=True)
        found = [column.convert_batch(columns[place], first, last) for place, column in placed]
        return self._typed(found, np.arange(last - first), {})

    def _typed(self, found: list[Converted], rows: Array, misfits: dict[int, Misfit]) -> Typed:
        for each in found:
            for row, misfit in each.wrong.items():
                misfits.setdefault(int(rows[row]), misfit)
        fits = ~np.isin(rows, list(misfits)) if misfits else np.ones(len(rows), np.bool_)
        made = pa.RecordBatch.from_arrays([each.arrow(fits) for each in found], schema=self._arrow)
        problems = [Problem(index, each.key, each.reason, each.detail) for index, each in sorted(misfits.items())]
        return Typed(made, rows[fits], tuple(problems))

    def joined(self, pieces: Sequence[Typed]) -> Typed:
        """Pieces of one run of samples."""
        if len(pieces) == 1:
            return pieces[0]
        table = pa.Table.from_batches([each.batch for each in pieces], schema=self._arrow).combine_chunks()
        made = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=self._arrow)
        numbers = np.concatenate([np.zeros(0, np.int64), *(each.numbers for each in pieces)])
        return Typed(made, numbers, tuple(problem for each in pieces for problem in each.problems))


def _getter(keys: list[str]) -> Callable[[dict[str, Any]], Iterable[Any]]:
    if len(keys) > 1:
        return itemgetter(*keys)
    return lambda node: [node[key] for key in keys]  # itemgetter would give no tuple


def _found(sample: Any, keys: _Keys) -> list[Any]:
    """The values of one dict of a sample; Misfit where it is no dict, or has a key that is not in the schema."""
    node = sample
    for depth, key in enumerate(keys.path):
        node = node.get(key, {})
        if not isinstance(node, dict):
            dotted = ".".join(keys.path[: depth + 1])
            raise Misfit(WRONG_TYPE, f"{named(node)}, a dict with {', '.join(keys.names)} is expected", dotted)
    if not isinstance(node, dict):
        raise Misfit(fitting.NOT_A_SAMPLE, f"{named(node)}, not a dict")
    for key in node:
        if key not in keys.names:
            dotted = ".".join((*keys.path, str(key)))
            raise Misfit(fitting.UNEXPECTED_KEY, f"the schema has {', '.join(keys.names)}", dotted)
    return [node.get(key, ABSENT) for key in keys.columns]


def refuse_nulls(rows: Rows, optional: frozenset[str] = frozenset()) -> None:
    """Refuse nulls in the columns of arrays. Rows of `optional` columns may be null, values inside their lists not."""
    for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
        missing = _null_rows(column, name in optional)
        if len(missing):
            row = int(missing[0])
            inside = "a value inside a list of " if column[row].is_valid else ""
            raise InputError(
                f"{inside}column {name!r} is null, and an array cannot hold nulls",
                where=f"{rows.path_of(row)}, position {int(rows.ordinals[row]):,}",
                next_step="fill it in a stage of your own, or drop such rows: `filter: " + f"{name} is not null`",
            )


def _null_rows(column: pa.Array, is_optional: bool) -> Array:
    """Numbers of the rows that are null and may not be, or else of the lists that have a null inside."""
    if column.null_count and not is_optional:
        return np.flatnonzero(np.asarray(column.is_null()))
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not column.flatten().null_count:
        return np.zeros(0, "i8")
    rows: Array = np.asarray(pc.list_parent_indices(column))[np.asarray(column.flatten().is_null())]
    return rows
