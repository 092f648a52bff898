"""Normalize: shift and scale columns to mean 0 and standard deviation 1, as measured on the training rows."""

import math
import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError, PlanError, TaskError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.fitting import elements
from penstock.prepare.stages.fitting.elements import Array, shape_of
from penstock.prepare.stages.fitting.moments import Moments
from penstock.prepare.stages.interfaces import Applies, Fit
from penstock.prepare.stages.stage import Stage, require_columns

_RANGE = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, kw_only=True)
class Normalize(Applies):
    """`normalize: [rtt, size]`, or `normalize: {columns: [features], skip: [id, 7, '10:20'], type: float32}`.

    Computes (value - mean) / std; a value that never varies becomes 0. Each element of a fixed-size list is normalized
    separately. Without `columns`, it takes all floating-point columns and lists of floats. `skip` leaves columns, or
    elements of lists, unchanged. Mean and std come from the training rows only. Nulls, NaN and infinities are kept.
    The input is read twice, once to measure and once to apply; with `format: arrays` it is read once.
    """

    version: ClassVar[int] = 2

    columns: tuple[str, ...] | None = None
    method: Literal["standard"] = "standard"
    skip: tuple[int | str, ...] = ()
    type: Literal["float32", "float64", "float16"] = "float32"

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        if written is None:
            raise ConfigError(
                "no columns are named",
                next_step="normalize: [a, b]; for all floating-point columns normalize: {method: standard}",
            )
        return {"columns": written} if isinstance(written, list) else super().options_from_yaml(written)

    def __post_init__(self) -> None:
        for entry, (first, last) in self._ranges.items():
            if not 0 <= first < last:
                raise ConfigError(f"skip: {entry!r} holds no element: elements are counted from 0, '2:5' is 2, 3 and 4")

    @property
    def _ranges(self) -> dict[int | str, tuple[int, int]]:
        """The entries of `skip` that mean elements, each as first and behind the last."""
        ranges: dict[int | str, tuple[int, int]] = {}
        for entry in self.skip:
            if isinstance(entry, int):
                ranges[entry] = (entry, entry + 1)
            elif match := _RANGE.fullmatch(entry):
                ranges[entry] = (int(match[1]), int(match[2]))
        return ranges

    @property
    def _left_alone(self) -> frozenset[str]:
        return frozenset(str(entry) for entry in self.skip if entry not in self._ranges)

    def fit(self) -> Fit:
        columns = None if self.columns is None else tuple(name for name in self.columns if name not in self._left_alone)
        return Moments(columns, self._left_alone)

    def bind(self, artifact: Any) -> Stage:
        return Scale(normalize=self, artifact=artifact)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_columns(schema, sorted(self._left_alone))
        columns = self.columns_of(schema)
        if self.columns is None and not columns:
            raise ConfigError(f"no floating-point column is left to normalize. Columns: {', '.join(schema.names)}")
        elements.require_numbers(schema, columns)
        self._refuse_elements(schema, columns)
        element = getattr(pa, self.type)()
        retyped = {name: elements.with_element_type(schema.field(name).type, element) for name in columns}
        return pa.schema([each.with_type(retyped[each.name]) if each.name in retyped else each for each in schema])

    def _refuse_elements(self, schema: pa.Schema, columns: tuple[str, ...]) -> None:
        """Elements to skip must be there in every list that is named."""
        lists = {name: math.prod(shape) for name in columns if (shape := shape_of(schema.field(name).type))}
        for entry, (_, last) in self._ranges.items():
            if not lists:
                raise ConfigError(f"skip: {entry!r} names elements of a list, but no column to normalize is a list")
            for name, length in lists.items():
                if last > length:
                    raise ConfigError(
                        f"skip: {entry!r} is outside of column {name!r}, whose elements are 0 to {length - 1}",
                        next_step="a range such as '10:20' means elements 10 to 19",
                    )

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None or self.columns is None else after | frozenset(self.columns) | self._left_alone

    def columns_of(self, schema: pa.Schema) -> tuple[str, ...]:
        """The columns that are normalized when these are given."""
        columns = elements.floating_columns(schema) if self.columns is None else self.columns
        return tuple(name for name in columns if name not in self._left_alone)

    def skipped(self, shape: tuple[int, ...]) -> Array:
        """Mask of the elements of a column that stay as they are; a plain number is no list, and has none."""
        mask = np.zeros(math.prod(shape), bool)
        for first, last in self._ranges.values() if shape else ():
            mask[first:last] = True
        return mask


@dataclass(frozen=True)
class Factors:
    """Numbers by which the elements of a column are shifted and divided."""

    column: str
    mean: Array
    std: Array
    type: str
    skipped: Array


@dataclass(frozen=True, kw_only=True)
class Scale(Stage):
    """Normalize, once the statistics are known."""

    normalize: Normalize
    artifact: dict[str, Any]

    def __call__(self, rows: Rows) -> Rows:
        chosen = self.normalize.columns_of(rows.batch.schema)
        arrays = [
            self._array(name, array) if name in chosen else array
            for name, array in zip(rows.batch.schema.names, rows.batch.columns, strict=True)
        ]
        return rows.with_batch(pa.RecordBatch.from_arrays(arrays, names=rows.batch.schema.names))

    def apply(self, name: str, values: Array) -> Array:
        """Values of (rows, *shape) of a column, scaled: the bytes of the column, however rows are cut."""
        factors = self._factors(name)
        return scaled(values.reshape(len(values), len(factors.mean)), factors).reshape(values.shape)

    def _array(self, name: str, array: pa.Array) -> pa.Array:
        values, valid = elements.elements_of(array)
        return elements.array_of(scaled(values, self._factors(name), valid).reshape(-1), array)

    def _factors(self, name: str) -> Factors:
        if name not in self._known:
            self._known[name] = self._read(name)
        return self._known[name]

    @cached_property
    def _known(self) -> dict[str, Factors]:
        return {}

    def _read(self, name: str) -> Factors:
        facts = self.artifact.get(name, {"mean": None, "std": None})
        shape = tuple(facts.get("shape", ()))
        mean, std = (np.array(facts[key], "f8").reshape(-1) for key in ("mean", "std"))  # None becomes NaN
        skipped = self.normalize.skipped(shape)
        unknown = np.flatnonzero(np.isnan(mean) & ~skipped)
        if len(unknown):
            raise PlanError(
                f"normalize: {_place(name, shape, unknown[0])} has no training value to measure",
                next_step="leave it out of `normalize`, or check the stages before it",
            )
        return Factors(
            name, np.where(skipped, 0.0, mean), np.where(skipped | (std == 0), 1.0, std), self.normalize.type, skipped
        )


def scaled(values: Array, factors: Factors, valid: Array | None = None) -> Array:
    """(value - mean) / std of (rows, elements) in float64, then rounded; NaN where not `valid`."""
    answer = np.empty(values.shape, factors.type)
    step = elements.rows_at_once(values.shape[1])
    for start in range(0, len(values), step):
        piece = slice(start, start + step)
        wide = values[piece].astype("f8")
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused below
            wide -= factors.mean
            wide /= factors.std
            if valid is not None:
                wide[~valid[piece]] = np.nan
            answer[piece] = wide
        if np.isinf(answer[piece]).any():
            _refuse_overflow(values[piece], answer[piece], factors)
        if values.dtype.kind in "iu" and factors.skipped.any():
            _refuse_rounded(values[piece], factors, True if valid is None else valid[piece])
    return answer


def _refuse_rounded(values: Array, factors: Factors, valid: Array | bool) -> None:
    """A skipped whole number stays what it is, or is refused."""
    most = 2 ** (np.finfo(factors.type).nmant + 1)  # every whole number up to here has a float of its own
    for row, element in np.argwhere(factors.skipped & valid & ((values > most) | (values < -most))):
        value = int(values[row, element])
        if int(np.dtype(factors.type).type(value)) != value:
            raise TaskError(
                f"normalize: {value} in {_place(factors.column, factors.mean.shape, element)} is skipped, and "
                f"{factors.type} cannot hold it",
                next_step="choose a wider `type`, or keep such numbers in a column of their own",
            )


def _refuse_overflow(values: Array, answer: Array, factors: Factors) -> None:
    found = np.argwhere(np.isinf(answer) & np.isfinite(values))
    if len(found):
        row, element = found[0]
        place = _place(factors.column, answer.shape[1:] if answer.shape[1] > 1 else (), element)
        raise TaskError(
            f"normalize: the value {values[row, element].item()!r} of {place} becomes "
            f"{(float(values[row, element]) - factors.mean[element]) / factors.std[element]:g}, "
            f"and {factors.type} ends at {np.finfo(factors.type).max:g}",
            next_step="choose a wider `type`, or remove such rows with `filter` before it",
        )


def _place(name: str, shape: tuple[int, ...], element: int) -> str:
    return f"element {element} of column {name!r}" if shape else f"column {name!r}"
