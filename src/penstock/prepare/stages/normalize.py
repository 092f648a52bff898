"""Normalize: shift and scale columns to mean 0 and standard deviation 1, as measured on the training rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.base.errors import PlanError
from penstock.prepare.rows import Rows
from penstock.prepare.stage import Fit, Stage
from penstock.prepare.stages.statistics import Moments, require_numbers


@dataclass(frozen=True, kw_only=True)
class Normalize(Stage):
    """`normalize: [rtt, size]`: (value - mean) / std as float32; a column that never varies becomes 0.

    The input is read twice: once to measure, once to apply. Nulls stay null, NaN stays NaN.
    """

    uses_artifact: ClassVar[bool] = True

    columns: tuple[str, ...]

    @classmethod
    def options_from_yaml(cls, written: Any) -> dict[str, Any]:
        return {"columns": written} if isinstance(written, list) else super().options_from_yaml(written)

    def fit(self) -> Fit:
        return Moments(self.columns)

    def bind(self, artifact: Any) -> Stage:
        return Scale(columns=self.columns, artifact=artifact)

    def output_schema(self, schema: pa.Schema, sample: pa.RecordBatch) -> pa.Schema:  # noqa: ARG002
        require_numbers(schema, self.columns)
        fields = [pa.field(each.name, pa.float32()) if each.name in self.columns else each for each in schema]
        return pa.schema(fields)

    def needs(self, after: frozenset[str] | None) -> frozenset[str] | None:
        return None if after is None else after | frozenset(self.columns)


@dataclass(frozen=True, kw_only=True)
class Scale(Stage):
    """What Normalize does once the statistics are known."""

    columns: tuple[str, ...]
    artifact: dict[str, Any]

    def __call__(self, rows: Rows) -> Rows:
        arrays = [
            self._scaled(name, array) if name in self.columns else array
            for name, array in zip(rows.batch.schema.names, rows.batch.columns, strict=True)
        ]
        return rows.with_batch(pa.RecordBatch.from_arrays(arrays, names=rows.batch.schema.names))

    def _scaled(self, name: str, array: pa.Array) -> pa.Array:
        mean, std = self.artifact[name]["mean"], self.artifact[name]["std"]
        if mean is None:
            raise PlanError(
                f"normalize: column {name!r} has no training value to measure",
                next_step="leave it out of `normalize`, or check the stages before it",
            )
        valid = array.is_valid().to_numpy(zero_copy_only=False)
        values = array.fill_null(0).to_numpy(zero_copy_only=False).astype("f8")
        scaled = ((values - mean) / (std or 1.0)).astype(np.float32)
        return pa.array(scaled, mask=None if valid.all() else ~valid)
