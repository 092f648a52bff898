"""Measuring: columns of a shard and some of its records -> bytes, lengths and spans of each record.

Only the ends of ranges are looked up in the columns, never the values between them: memory depends on the number of
records asked for, however long they are. Blocks that are touched are verified.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.shards.columns import BLOCK, Column
from penstock.shards.schema import Field, Schema

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Column]
_OFFSET_BYTES = 8


def record_bytes(columns: Columns, edges: Array, schema: Schema) -> Array:
    """Stored bytes of the records between neighbouring `edges`; a dictionary's texts, which are shared, left out."""
    total = np.zeros(len(edges) - 1, "i8")
    for field in schema:
        total += _field_bytes(columns, field, edges)
    return total


def _field_bytes(columns: Columns, field: Field, edges: Array) -> Array:
    kind, counts = field.parsed, np.diff(edges)
    each = 1 if f"{field.name}/valid" in columns else 0
    inner: Array = np.zeros_like(counts)
    if kind.is_fixed:
        array = columns[field.name].array
        each += array.itemsize * math.prod(array.shape[1:])
    elif kind.is_dictionary:
        each += columns[f"{field.name}/codes"].array.itemsize
    else:
        bounds = values_at(columns[f"{field.name}/offsets"], edges)
        each += _OFFSET_BYTES
        inner = _field_bytes(columns, field.inner, bounds) if kind.is_list else np.diff(bounds)
    return np.asarray(counts * each + inner)


def lengths(columns: Columns, edges: Array, name: str) -> Array:
    """Values of a list, or bytes of a text, in each record."""
    return np.diff(values_at(columns[f"{name}/offsets"], edges))


def spans(columns: Columns, edges: Array, name: str) -> Array:
    """Last minus first value of a list of whole numbers; records that have neither are left out."""
    bounds = values_at(columns[f"{name}/offsets"], edges)
    first, last = bounds[:-1], bounds[1:] - 1
    known = last >= first
    first, last = first[known], last[known]
    if f"{name}/values/valid" in columns:
        valid = columns[f"{name}/values/valid"]
        known = (values_at(valid, first) != 0) & (values_at(valid, last) != 0)
        first, last = first[known], last[known]
    values = columns[f"{name}/values"]
    ends = [values_at(values, where).astype("i8") for where in (first, last)]
    low, high = np.minimum(*ends), np.maximum(*ends)
    # Of two int64 the difference fits into uint64; the few that are beyond int64 count as the largest of it.
    return np.asarray(np.minimum(high.view("u8") - low.view("u8"), np.uint64(2**63 - 1)), "i8")


def values_at(column: Column, positions: Array) -> Array:
    """Values at these rows of a flat column, after the blocks they lie in were verified."""
    for block in np.unique(positions * column.array.itemsize // BLOCK).tolist():
        column.check_block(block)
    return np.asarray(column.array[positions])
