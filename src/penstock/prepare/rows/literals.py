"""Literals: the value of a condition, as a person wrote it -> a scalar of the column's type. Used by filter.py.

The value means what the column's type would hold for it: 0.1 beside float32 is the float32 next to 0.1. What that type
cannot hold at all (2.5 beside int64, 1e39 beside float32) is refused.
"""

from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.numbers import WrittenFloat


def shown_value(value: Any) -> str:
    """A value as a person wrote it, for errors: 2024-06-01, not datetime.date(2024, 6, 1)."""
    return str(value) if isinstance(value, date) else repr(value)


def scalar_of(value: Any, kind: pa.DataType) -> pa.Scalar:
    """The value in the column's type; raises where that would be another value. Floats are answered as float64."""
    is_a = pa.types
    if is_a.is_integer(kind) or is_a.is_floating(kind) or is_a.is_decimal(kind):
        return _number(value, kind)
    if is_a.is_temporal(kind):
        return _time(value, kind)
    try:
        return pa.scalar(value, kind)
    except TypeError as error:  # Arrow's words name classes of Python
        raise TypeError("text is needed") from error


def _number(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError("a number is needed")
    if pa.types.is_floating(kind):
        return pa.scalar(_rounded(value, kind.bit_width), pa.float64())
    exact = value.exact if isinstance(value, WrittenFloat) else Decimal(value)
    if pa.types.is_decimal(kind):  # 0.1 of a job is a tenth, as it was written
        return pa.scalar(Decimal(repr(value)) if type(value) is float else exact, kind)
    if not exact.is_finite() or exact != exact.to_integral_value():
        raise ValueError("a whole number is needed")
    return pa.scalar(int(exact), kind)


def _rounded(value: float, bits: int) -> float:
    """The nearest float with this number of bits."""
    wide = float(value)
    is_infinite = isinstance(value, WrittenFloat) and "inf" in value.text.lower()
    with np.errstate(over="ignore", under="ignore"):
        narrow = float(np.dtype(f"f{bits // 8}").type(wide))
    if np.isinf(narrow) and not is_infinite:
        raise ValueError(f"it is beyond the range of float{bits}")
    if narrow == 0 and (value.exact if isinstance(value, WrittenFloat) else value) != 0:
        raise ValueError(f"float{bits} has no number this small except 0")
    return narrow


def _time(value: Any, kind: pa.DataType) -> pa.Scalar:
    is_a = pa.types
    if isinstance(value, float):
        raise TypeError("a time, or a whole number in the column's unit, is needed")
    if is_a.is_time(kind) and isinstance(value, str):
        return pa.scalar(time.fromisoformat(value), pa.time64("us")).cast(kind)
    if isinstance(value, str) and (is_a.is_date(kind) or is_a.is_timestamp(kind)):
        from penstock.prepare.rows.written import read_literal

        value = read_literal(value)  # between quotes: '2024-06-01'
        if not isinstance(value, date):
            raise TypeError("a day or a time is needed, such as 2024-06-01 or 2024-06-01T12:30:00")
    if is_a.is_date(kind) and isinstance(value, datetime):
        raise TypeError("a day without a time is needed")
    if is_a.is_timestamp(kind) and isinstance(value, date):
        value = value if isinstance(value, datetime) else datetime.combine(value, time())
        if value.tzinfo and not kind.tz:
            raise TypeError("the column has no zone, and a time without one is needed")
        return pa.scalar(value, pa.timestamp("us", kind.tz)).cast(kind)
    return pa.scalar(value, kind)
