"""Samples: what a user's function yields -> typed Arrow batches, and why a sample is not in one.

    held = [converter.take(sample) for sample in samples(path)]
    batch, numbers, problems = converter.convert(held, first=0)

`take` must be called as each sample is yielded: a function may fill the same array or dict again for the next one, and
`take` copies what could be changed. `convert` takes any run of what it gave; how samples are cut into runs decides
nothing but speed. fitting.py says what fits a type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples import fitting
from penstock.prepare.samples.fitting import PLAIN, WRONG_TYPE, Array, Misfit, held, named
from penstock.prepare.samples.schema import REQUIRED, Path, SampleField, SampleSchema, arrow_schema
from penstock.shards.arrays import array_from_fixed

Held = tuple[Any, ...] | Misfit  # a sample's values, as `take` orders them, or why there are none


class _Absent:
    """Stands for a key that is not there, and need not be."""


_ABSENT = _Absent()


@dataclass(frozen=True)
class Problem:
    """Why a sample is not in the batch; the first reason there is."""

    sample: int  # its number in the file
    key: str  # "labels.action_type"; "" where the sample itself is no dict
    reason: str  # the same few words for the same kind of thing: see fitting.py
    detail: str  # "900 values, float32[893] was inferred from games/a.txt, sample 0"


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
        self._dimensions = max(len(each.shape) for each in schema)
        top = _Keys(())
        for each in schema:
            top.under(each.path[:-1]).columns.append(each.path[-1])
        self._keys = top.all()
        self._getters = [(keys.path, len(keys.names), _getter(keys.columns)) for keys in self._keys]
        # Values are held dict by dict, which need not be the order of the columns.
        order = [(*keys.path, key) for keys in self._keys for key in keys.columns]
        self._places = [order.index(each.path) for each in schema]

    def take(self, sample: Any) -> Held:
        """The sample's values, which nobody else can change any more."""
        values: list[Any] = []
        try:
            for path, size, getter in self._getters:
                node = sample
                for key in path:
                    node = node[key]
                if type(node) is not dict or len(node) != size:
                    return self._take_unusual(sample)
                values += getter(node)
        except KeyError:
            return self._take_unusual(sample)
        return self._held(values)

    def _held(self, values: list[Any]) -> Held:
        deepest = self._dimensions
        # The two most usual cases without a call; `held` would do the same.
        return tuple(
            [
                value if type(value) in PLAIN else value.copy() if type(value) is np.ndarray else held(value, deepest)
                for value in values
            ]
        )

    def _take_unusual(self, sample: Any) -> Held:
        """`take` for a sample that has more keys or less, or dicts that are not plain ones."""
        try:
            values = [value for keys in self._keys for value in _found(sample, keys)]
        except Misfit as misfit:
            return misfit.with_traceback(None)  # which would keep the sample
        for place, each in zip(self._places, self._schema, strict=True):
            if values[place] is _ABSENT and each.missing is REQUIRED:
                return Misfit(fitting.MISSING_KEY, each.told, each.key)
        return self._held(values)

    def convert(self, samples: Sequence[Held], first: int) -> tuple[pa.RecordBatch, Array, list[Problem]]:
        """(the samples that fit, their numbers in the file (int64), the problems of the others: the first of each).

        `first` is the number of the first of them. Not the samples themselves, but what `take` made of them.
        """
        misfits = {index: each for index, each in enumerate(samples) if isinstance(each, Misfit)}
        rows = np.array([index for index in range(len(samples)) if index not in misfits], np.int64)
        taken = [each for each in samples if not isinstance(each, Misfit)]
        values = list(zip(*taken, strict=True)) if taken else [()] * len(self._schema)
        columns = []
        for place, each in zip(self._places, self._schema, strict=True):
            converted, wrong = _column(values[place], each)
            columns.append(converted)
            for row, misfit in wrong.items():
                misfits.setdefault(int(rows[row]), misfit)
        fits = np.array([index not in misfits for index in rows.tolist()], np.bool_)
        arrays = [_arrow(column, each, fits) for column, each in zip(columns, self._schema, strict=True)]
        problems = [
            Problem(first + index, misfit.key, misfit.reason, misfit.detail) for index, misfit in misfits.items()
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        return batch, rows[fits] + first, sorted(problems, key=lambda problem: problem.sample)


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
    return [node.get(key, _ABSENT) for key in keys.columns]


def _column(values: Sequence[Any], field: SampleField) -> tuple[Any, dict[int, Misfit]]:
    """(an array of numbers or a list of texts, and the misfits by place; what stands in their places is of no use)."""
    if _Absent in set(map(type, values)):
        return _filled(values, field)
    return _texts(values, field) if field.parsed.is_text else _numbers(values, field)


def _filled(values: Sequence[Any], field: SampleField) -> tuple[Any, dict[int, Misfit]]:
    """The column with the field's `missing` where the key is absent."""
    if field.parsed.is_text:
        return _texts([field.missing if value is _ABSENT else value for value in values], field)
    present = np.array([value is not _ABSENT for value in values])
    numbers, wrong = _numbers([value for value in values if value is not _ABSENT], field)
    filled = np.empty((len(values), *field.shape), field.number)
    filled[present] = numbers
    filled[~present] = field.filling()
    places = np.flatnonzero(present).tolist()
    return filled, {places[place]: misfit for place, misfit in wrong.items()}


def _numbers(values: Sequence[Any], field: SampleField) -> tuple[Array, dict[int, Misfit]]:
    """All at once; or else those of a kind at once, such as int and np.int64 in turn; or else one by one."""
    all_at_once = fitting.together(values, field.shape, field.number, field.rounds)
    if all_at_once is not None:
        return all_at_once, {}
    kinds: dict[Any, list[int]] = {}
    for place, value in enumerate(values):
        kind = (value.dtype, value.shape) if type(value) is np.ndarray else type(value)
        kinds.setdefault(kind, []).append(place)
    numbers = np.zeros((len(values), *field.shape), field.number)
    wrong: dict[int, Misfit] = {}
    for places in kinds.values():
        some = [values[place] for place in places]
        found = fitting.together(some, field.shape, field.number, field.rounds) if len(kinds) > 1 else None
        if found is not None:
            numbers[places] = found
        else:
            wrong |= _one_by_one(some, places, numbers, field)
    return numbers, wrong


def _one_by_one(values: list[Any], places: list[int], into: Array, field: SampleField) -> dict[int, Misfit]:
    wrong = {}
    for place, value in zip(places, values, strict=True):
        try:
            alone = fitting.together([value], field.shape, field.number, field.rounds)
            into[place] = fitting.exact(value, field.shape, field.number, field.rounds) if alone is None else alone[0]
        except Misfit as misfit:
            wrong[place] = _explained(misfit, field)
    return wrong


def _texts(values: Sequence[Any], field: SampleField) -> tuple[Sequence[str], dict[int, Misfit]]:
    if set(map(type, values)) == {str} and fitting.is_utf8("".join(values)):
        return values, {}
    texts, wrong = [], {}
    for place, value in enumerate(values):
        try:
            texts.append(fitting.exact_text(value))
        except Misfit as misfit:
            texts.append("")
            wrong[place] = _explained(misfit, field)
    return texts, wrong


def _explained(misfit: Misfit, field: SampleField) -> Misfit:
    return Misfit(misfit.reason, f"{misfit.detail}, {field.told}", field.key)


def _arrow(column: Any, field: SampleField, fits: Array) -> pa.Array:
    if field.parsed.is_text:
        return pa.array([text for text, fit in zip(column, fits, strict=True) if fit], pa.string())
    return array_from_fixed(column if fits.all() else column[fits], field.parsed, None)


def refuse_nulls(rows: Rows) -> None:
    for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
        missing = _null_rows(column)
        if len(missing):
            row = int(missing[0])
            inside = "" if column.null_count else "a value inside a list of "
            raise InputError(
                f"{inside}column {name!r} is null, and an array has no place for that",
                where=f"{rows.path_of(row)}, position {int(rows.ordinals[row]):,}",
                next_step="fill it in a stage of your own, or drop such rows: `filter: " + f"{name} is not null`",
            )


def _null_rows(column: pa.Array) -> Array:
    """Numbers of the rows that are null, or else of the lists that have a null inside."""
    if column.null_count:
        return np.flatnonzero(np.asarray(column.is_null()))
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not column.flatten().null_count:
        return np.zeros(0, "i8")
    rows: Array = np.asarray(pc.list_parent_indices(column))[np.asarray(column.flatten().is_null())]
    return rows
