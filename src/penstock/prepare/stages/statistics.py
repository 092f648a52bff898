"""Statistics: count, nulls, mean, standard deviation, least and greatest of numeric columns, as an artifact."""

from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.fitting.elements import require_numbers
from penstock.prepare.stages.fitting.moments import Moments
from penstock.prepare.stages.interfaces import Fit, Fits


@dataclass(frozen=True, kw_only=True)
class Statistics(Fits):
    """`statistics: [rtt, size]` measures the training rows that reach it, and writes `artifacts/statistics.json`.

    Rows pass through unchanged. Nulls, NaNs and infinities are counted, and ignored in all other numbers. In a column
    of fixed-size lists, each element has its own numbers.
    """

    version: ClassVar[int] = 2

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
