"""Moments: blocks of rows -> count, mean, deviation and ends of every element of some columns. Used by two stages.

Each piece of a block is measured in two passes in float64, and pieces are merged from left to right. Pieces are
counted from the start of a block, by `rows_at_once`; nothing else decides how sums are grouped. Only operations that
IEEE 754 defines to the last bit are used, so that every machine gives the same bytes.
"""

from __future__ import annotations

import base64
import math
from dataclasses import dataclass, fields
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import TaskError
from penstock.prepare.stages.fitting.elements import Array, elements_of, floating_columns, rows_at_once, shape_of

_COUNTS = ("count", "nulls", "nans", "infinities")
_NO_VALUES = {**dict.fromkeys(_COUNTS, 0), **dict.fromkeys(("mean", "std", "min", "max"))}
_SQUARES_FIT = 2.0**300  # below it, and above its inverse, sums of squares neither overflow nor vanish


@dataclass(frozen=True)
class Moments:
    """The fit of `columns`; None: all floating-point columns, and lists of them, but those in `skip`."""

    columns: tuple[str, ...] | None
    skip: frozenset[str] = frozenset()

    def block_rows(self, schema: pa.Schema) -> int:
        """Rows per block: as many as are measured at a time for the widest column."""
        return min(rows_at_once(math.prod(shape_of(schema.field(name).type))) for name in self._of(schema))

    def start(self) -> dict[str, Tally]:
        return {}  # the shape of a column is known when its first rows are

    def update(self, state: dict[str, Tally], block: pa.RecordBatch) -> dict[str, Tally]:
        """Merged piece by piece, so that blocks of any whole number of pieces give the same bytes."""
        return {name: _with(state.get(name), block.column(name)) for name in self._of(block.schema)}

    def pack(self, state: dict[str, Tally]) -> dict[str, Any]:
        return {name: encode(name, tally) for name, tally in state.items()}

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        merged = {**left, **right}
        for name in left.keys() & right.keys():
            merged[name] = encode(name, _merged(decode(left[name]), decode(right[name])))
        return merged

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        names = tuple(state) if self.columns is None else self.columns
        return {name: _finished(decode(state[name])) if name in state else dict(_NO_VALUES) for name in names}

    def _of(self, schema: pa.Schema) -> list[str]:
        columns = floating_columns(schema) if self.columns is None else self.columns
        return [name for name in columns if name not in self.skip]


@dataclass(frozen=True)
class Tally:
    """Facts of the elements of a column after some rows; each array has a number for every element."""

    shape: tuple[int, ...]
    count: Array  # of finite values: the others are counted and left out of all else
    nulls: Array
    nans: Array
    infinities: Array
    mean: Array
    squares: Array  # the sum of squared deviations, each divided by `unit`
    unit: Array  # 1, or a power of two where squares would overflow, or vanish as at 1e-300
    low: Array  # of whole numbers as whole numbers, where float64 would round
    high: Array


_ARRAYS = [each.name for each in fields(Tally)][1:]


def encode(name: str, tally: Tally) -> dict[str, Any]:
    """Encode as JSON, a few bytes per number: the driver holds the states of all slices."""
    unknown = np.flatnonzero(~(np.isfinite(tally.mean) & np.isfinite(tally.squares)))
    if len(unknown):
        which = f"element {unknown[0]} of column {name!r}" if tally.shape else f"column {name!r}"
        raise TaskError(
            f"the values of {which} are too large to measure: their sums overflow float64",
            next_step="scale the column in a stage of your own, or leave it out",
        )
    packed = {key: base64.b64encode(getattr(tally, key).tobytes()).decode() for key in _ARRAYS}
    return {"shape": list(tally.shape), "ends": tally.low.dtype.str, **packed}


def decode(state: dict[str, Any]) -> Tally:
    types = {**dict.fromkeys(_COUNTS, "<i8"), **dict.fromkeys(("low", "high"), state["ends"])}
    arrays = {key: np.frombuffer(base64.b64decode(state[key]), types.get(key, "<f8")) for key in _ARRAYS}
    return Tally(tuple(state["shape"]), **arrays)


def _with(tally: Tally | None, array: pa.Array) -> Tally:
    values, valid = elements_of(array)
    shape, step = shape_of(array.type), rows_at_once(values.shape[1])
    cuts = [slice(start, start + step) for start in range(0, len(values), step)]
    pieces = (_piece(shape, values[cut], None if valid is None else valid[cut]) for cut in cuts)
    return reduce(_merged, pieces, tally or _nothing(shape, values.shape[1], values.dtype))


def _nothing(shape: tuple[int, ...], elements: int, dtype: np.dtype[Any]) -> Tally:
    zeros, no_count = np.zeros(elements), np.zeros(elements, "i8")
    low, high = (np.full(elements, limit, _ends_type(dtype)) for limit in reversed(_limits(dtype)))
    return Tally(shape, no_count, no_count, no_count, no_count, zeros, zeros, zeros + 1.0, low, high)


def _ends_type(dtype: np.dtype[Any]) -> str:
    return {"f": "<f8", "i": "<i8", "u": "<u8"}[dtype.kind]


def _limits(dtype: np.dtype[Any]) -> tuple[Any, Any]:
    return (-math.inf, math.inf) if dtype.kind == "f" else (np.iinfo(dtype).min, np.iinfo(dtype).max)


def _piece(shape: tuple[int, ...], values: Array, valid: Array | None) -> Tally:
    """A few rows. That all are finite, as mostly, shows in their ends: NaN and infinities come through."""
    low, high = values.min(axis=0), values.max(axis=0)
    if valid is None and np.isfinite(low).all() and np.isfinite(high).all():
        counts = dict.fromkeys(_COUNTS, np.zeros(values.shape[1], "i8"))
        counts["count"] = counts["count"] + len(values)
        return _of_finite(shape, counts, values.astype("f8"), None, low, high)
    valid = np.ones(values.shape, bool) if valid is None else valid
    good = np.isfinite(values) & valid
    count, known, nans = (mask.sum(axis=0) for mask in (good, valid, np.isnan(values) & valid))
    first, last = (values.dtype.type(limit) for limit in _limits(values.dtype))
    low, high = np.where(good, values, last).min(axis=0), np.where(good, values, first).max(axis=0)
    wide = np.where(good, values, 0).astype("f8", copy=False)
    counts = dict(zip(_COUNTS, (count, len(values) - known, nans, known - count - nans), strict=True))
    return _of_finite(shape, counts, wide, ~good, low, high)


def _of_finite(
    shape: tuple[int, ...], counts: dict[str, Array], wide: Array, bad: Array | None, low: Array, high: Array
) -> Tally:
    """`wide`, which is 0 where `bad`, is used up: another array of its size would double the memory."""
    low, high = low.astype(_ends_type(low.dtype)), high.astype(_ends_type(high.dtype))
    count = np.maximum(counts["count"], 1)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by `encode`
        rough = wide.sum(axis=0) / count
        wide -= rough
        if bad is not None:
            wide[bad] = 0.0
        rest = wide.sum(axis=0) / count  # what rounding took from the mean
        mean = rough + rest
        unit = _unit(np.maximum(np.abs(high - rough), np.abs(low - rough)))
        squares = _squares(wide, unit) - count * (rest / unit) ** 2
    same, empty = low == high, counts["count"] == 0
    mean = np.where(same, low, np.where(empty, 0.0, mean))  # a sum of equal values, divided, may be another value
    squares = np.where(same | empty, 0.0, np.maximum(squares, 0.0))
    return Tally(shape, **counts, mean=mean, squares=squares, unit=unit, low=low, high=high)


def _squares(wide: Array, unit: Array) -> Array:
    if (unit != 1.0).any():
        wide /= unit
    total: Array = np.multiply(wide, wide, out=wide).sum(axis=0)
    return total


def _unit(sizes: Array) -> Array:
    """A divisor with which squares of these sizes fit: mostly 1, else a power of two, which rounds nothing."""
    odd = ((sizes > _SQUARES_FIT) | (sizes < 1 / _SQUARES_FIT)) & (sizes > 0) & np.isfinite(sizes)
    exponents = np.frexp(np.where(odd, sizes, 1.0))[1]
    return np.where(odd, np.ldexp(1.0, np.clip(exponents, -1000, 1000)), 1.0)


def _merged(left: Tally, right: Tally) -> Tally:
    """Chan's update: exact in the counts, stable in the moments, and no change by a side that has no value."""
    counts = {key: getattr(left, key) + getattr(right, key) for key in _COUNTS}
    count = np.maximum(counts["count"], 1)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused by `encode`
        delta = right.mean - left.mean
        mean = left.mean + delta * (right.count / count)
        weight = left.count * (right.count / count)
        apart = np.where(weight > 0, delta, 0.0)
        sizes = [np.sqrt(left.squares) * left.unit, np.sqrt(right.squares) * right.unit, abs(apart) * np.sqrt(weight)]
        unit = _unit(np.maximum.reduce(sizes))
        squares = _in_unit(left, unit) + _in_unit(right, unit) + (apart / unit) ** 2 * weight
    low, high = np.minimum(left.low, right.low), np.maximum(left.high, right.high)
    return Tally(left.shape, **counts, mean=mean, squares=squares, unit=unit, low=low, high=high)


def _in_unit(tally: Tally, unit: Array) -> Array:
    ratio = tally.unit / unit
    return tally.squares * ratio * ratio  # the ratio's own square may overflow where there are no squares


def _finished(tally: Tally) -> dict[str, Any]:
    """A number of each kind for a plain column, flat lists of them and the shape for a column of lists."""
    known = tally.count > 0
    std = np.sqrt(tally.squares / np.maximum(tally.count, 1)) * tally.unit
    counted = {key: getattr(tally, key).tolist() for key in _COUNTS}
    moments = {"mean": tally.mean, "std": std, "min": tally.low, "max": tally.high}
    numbers = {
        key: [each if has else None for each, has in zip(array.tolist(), known, strict=True)]
        for key, array in moments.items()
    }
    if tally.shape:
        return {"shape": list(tally.shape), **counted, **numbers}
    return {key: each[0] for key, each in {**counted, **numbers}.items()}
