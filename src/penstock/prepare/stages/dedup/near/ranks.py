"""Ranks: `keep:` -> a number for each document: of documents that are alike, the one with the least stays.

Documents with equal ranks go by their position. `first` needs no rank: the position is one.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import ConfigError
from penstock.prepare.rows.hashing import Array

_LAST = ~np.uint64(0)
_SIGN = np.uint64(1 << 63)


@dataclass(frozen=True)
class Rank:
    """Rank by the length of the text, or by a column of numbers or times.

    Nulls and NaN come last. They need a rank of their own, so the two highest numbers of 64 bits share one.
    """

    column: str
    order: Literal["desc", "asc"] = "desc"
    by_length: bool = False

    def of(self, batch: pa.RecordBatch) -> Array:
        values = batch.column(batch.schema.get_field_index(self.column))
        if self.by_length:
            values = pc.fill_null(pc.binary_length(values), 0).cast(pa.int64())
        words, valid = _ascending(values)
        highest = np.minimum(words, _LAST - np.uint64(1))  # the last number is for those without a value
        found: Array = np.where(valid, _LAST - np.uint64(1) - highest if self.order == "desc" else highest, _LAST)
        return found


def require_ranks(schema: pa.Schema, column: str) -> None:
    """Raise ConfigError unless the column holds numbers, booleans or times."""
    kind, is_a = schema.field(column).type, pa.types
    is_time = is_a.is_temporal(kind) and not is_a.is_interval(kind)
    if not (is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_boolean(kind) or is_time):
        as_float = f"{{{column}: float64}}"
        steps = {
            is_a.is_null: f"if later files have values, declare it: `input: {{path: ..., types: {as_float}}}`",
            is_a.is_decimal: f"before near_dedup, `cast: {{columns: {as_float}}}`",
        }
        other = "name a column of numbers, or `keep: first` or `keep: longest`"
        raise ConfigError(
            f"keep: column {column!r} is {kind}, but documents are ranked by integers, floats, booleans or times",
            next_step=next((step for is_one, step in steps.items() if is_one(kind)), other),
        )


def _ascending(values: pa.Array) -> tuple[Array, Array]:
    """Unsigned numbers in the order of the values, and which of them are values."""
    valid = np.asarray(values.is_valid())
    kind = values.type
    if pa.types.is_floating(kind):
        numbers: Any = np.asarray(values.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 is 0.0
        bits = np.where(np.isnan(numbers), 0.0, numbers).view("u8")
        return np.where(bits & _SIGN, ~bits, bits | _SIGN), valid & ~np.isnan(numbers)
    if pa.types.is_uint64(kind):
        return np.asarray(values.fill_null(0)).astype("u8"), valid
    if pa.types.is_temporal(kind):
        values = values.cast(pa.int32() if kind.bit_width == 32 else pa.int64())
    return np.asarray(values.cast(pa.int64()).fill_null(0)).view("u8") ^ _SIGN, valid
