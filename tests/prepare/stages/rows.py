"""Rows and stages as a job makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.stage import Stage


def make_rows(columns: dict[str, Any], path: str = "part-0.parquet") -> Rows:
    batch = pa.RecordBatch.from_pydict(columns)
    return Rows(batch, 0, (path,), np.arange(batch.num_rows))


def checked_stage(name: str, written: Any, rows: Rows) -> Stage:
    """The stage, after it has looked at the columns it is going to be given, as at the survey."""
    stage = build_stage(name, written)
    stage.output_schema(rows.batch.schema, rows.batch)
    return stage
