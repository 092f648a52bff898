"""Statistics: count, nulls, mean, standard deviation, least and greatest of numeric columns, as an artifact."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError, TaskError
from penstock.prepare.rows import Rows
from penstock.prepare.stage import Fit, Stage, require_columns

_COUNTS = ("count", "nulls", "nans", "infinities")
_EMPTY = {**dict.fromkeys(_COUNTS, 0), "mean": 0.0, "m2": 0.0, "min": None, "max": None}


@dataclass(frozen=True, kw_only=True)
class Statistics(Stage):
    """`statistics: [rtt, size]` over the training rows that reach it, into `artifacts/statistics.json`.

    Rows pass through unchanged. Nulls, NaNs and infinities are counted and left out of all else.
    """

    columns: tuple[str, ...]

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        return {"columns": written} if isinstance(written, list) else super().options_from_yaml(written)

    def __call__(self, rows: Rows) -> Rows:
        return rows

    def fit(self) -> Fit:
        return Moments(self.columns)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_numbers(schema, self.columns)
        return schema

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.columns)


@dataclass(frozen=True)
class Moments:
    """Mean and squared deviations of each block, merged pairwise in a fixed order: no sum grows without bound."""

    columns: tuple[str, ...]

    def start(self) -> dict[str, Any]:
        return {name: dict(_EMPTY) for name in self.columns}

    def update(self, state: dict[str, Any], block: pa.RecordBatch) -> dict[str, Any]:
        state = self.merge(state, {name: _moments(block.column(name)) for name in self.columns})
        for name, moments in state.items():
            if not math.isfinite(moments["m2"]):
                raise TaskError(
                    f"the values of column {name!r} are too large to measure: their squares overflow float64",
                    next_step="scale the column in a stage of your own, or leave it out",
                )
        return state

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {name: _merge(left[name], right[name]) for name in self.columns}

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name: _finished(moments) for name, moments in state.items()}


def _moments(array: pa.Array) -> dict[str, Any]:
    values = np.asarray(array.drop_null()).astype("f8")
    finite = values[np.isfinite(values)]
    nans = int(np.isnan(values).sum())
    counts = (len(finite), array.null_count, nans, len(values) - len(finite) - nans)
    state = {**_EMPTY, **dict(zip(_COUNTS, counts, strict=True))}
    if len(finite):
        low, high = _ends(array, finite)
        mean = (
            float(finite.mean()) if low < high else float(low)
        )  # a sum of equal values, divided, may be another value
        state |= {"mean": mean, "m2": float(((finite - mean) ** 2).sum()), "min": low, "max": high}
    return state


def _ends(array: pa.Array, finite: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    """Least and greatest; of whole numbers exactly, where float64 would round."""
    if pa.types.is_integer(array.type):
        ends = pc.min_max(array).as_py()
        return ends["min"], ends["max"]
    return float(finite.min()), float(finite.max())


def _merge(left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
    """Chan's update: exact in the counts, stable in the moments."""
    counted = {key: left[key] + right[key] for key in _COUNTS}
    if not left["count"] or not right["count"]:
        return {**(left if left["count"] else right), **counted}
    delta, count = right["mean"] - left["mean"], counted["count"]
    return {
        **counted,
        "mean": left["mean"] + delta * (right["count"] / count),
        "m2": left["m2"] + right["m2"] + delta * delta * (left["count"] * right["count"] / count),
        "min": min(left["min"], right["min"]),
        "max": max(left["max"], right["max"]),
    }


def _finished(moments: dict[str, Any]) -> dict[str, Any]:
    count = moments["count"]
    known = count > 0
    return {
        **{key: moments[key] for key in _COUNTS},
        "mean": moments["mean"] if known else None,
        "std": math.sqrt(moments["m2"] / count) if known else None,
        "min": moments["min"],
        "max": moments["max"],
    }


def require_numbers(schema: pa.Schema, columns: tuple[str, ...]) -> None:
    require_columns(schema, list(columns))
    for name in columns:
        kind = schema.field(name).type
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ConfigError(f"column {name!r} is {kind}, not a number")
