"""Samples: the samples of a user's function -> typed Arrow batches, and the reasons for samples set aside.

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
from penstock.prepare.samples.columns import ABSENT, Column, column_of
from penstock.prepare.samples.fitting import PLAIN, WRONG_TYPE, Array, Misfit, held, named
from penstock.prepare.samples.schema import REQUIRED, Path, SampleSchema, arrow_schema

Held = tuple[Any, ...] | Misfit  # a sample's values, as `take` orders them, or why there are none


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
        self._of_any_size = [(order.index(each.field.path), each) for each in self._columns if each.field.has_any_size]

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
            if values[place] is ABSENT and each.missing is REQUIRED:
                return Misfit(fitting.MISSING_KEY, each.told, each.key)
        return self._held(values)

    def size(self, sample: Held) -> int:
        """Bytes of the values whose size differs from sample to sample: few samples may be large."""
        if isinstance(sample, Misfit):
            return 0
        return sum(column.size(sample[place]) for place, column in self._of_any_size)

    def convert(self, samples: Sequence[Held], first: int) -> tuple[pa.RecordBatch, Array, list[Problem]]:
        """(the samples that fit, their numbers in the file (int64), the problems of the others: the first of each).

        `first` is the number of the first of them. Not the samples themselves, but what `take` made of them.
        """
        misfits = {index: each for index, each in enumerate(samples) if isinstance(each, Misfit)}
        rows = np.array([index for index in range(len(samples)) if index not in misfits], np.int64)
        taken = [each for each in samples if not isinstance(each, Misfit)]
        values = list(zip(*taken, strict=True)) if taken else [()] * len(self._schema)
        found = [column.convert(values[place]) for place, column in zip(self._places, self._columns, strict=True)]
        for each in found:
            for row, misfit in each.wrong.items():
                misfits.setdefault(int(rows[row]), misfit)
        fits = np.array([index not in misfits for index in rows.tolist()], np.bool_)
        arrays = [each.arrow(fits) for each in found]
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
