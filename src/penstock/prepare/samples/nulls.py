"""Samples checked: arrays have no place for nulls, so rows that become arrays must have none."""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Rows

Array = np.ndarray[Any, Any]


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
