"""Jsonable: values of Arrow -> values of JSON, for the lines of rejected/. One value, or some of a column at once."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Array = np.ndarray[Any, Any]


def jsonable(scalar: pa.Scalar) -> Any:
    """JSON's own types as they are; NaN, bytes, decimals and times by a text that no library's version changes."""
    kind, is_a = scalar.type, pa.types
    if not scalar.is_valid:
        return None
    if is_a.is_temporal(kind):
        return _time_text(scalar)
    if is_a.is_dictionary(kind) or is_a.is_union(kind) or isinstance(kind, pa.BaseExtensionType):
        return jsonable(scalar.value)
    if is_a.is_struct(kind):
        return {name: jsonable(each) for name, each in scalar.items()}
    if isinstance(scalar, pa.ListScalar):  # of any kind of list, a map too
        return [jsonable(each) for each in scalar.values]
    value = scalar.as_py()
    if isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return str(value)


def _time_text(scalar: pa.Scalar) -> str:
    """`2020-01-02T03:04:05.000000` (UTC where there is a zone), `1500 ms` for a duration or a time of day."""
    kind = scalar.type
    if kind.bit_width not in (32, 64):  # an interval of months, days and nanoseconds
        return str(scalar.as_py())
    number = int(scalar.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).as_py())
    if pa.types.is_date(kind):
        return str(np.datetime64(number, "D" if pa.types.is_date32(kind) else "ms").astype("M8[D]"))
    if pa.types.is_timestamp(kind):
        return str(np.datetime64(number, kind.unit))
    return f"{number} {kind.unit}"


def jsonable_values(array: pa.Array, rows: Array) -> list[Any]:
    """`jsonable` of some rows of a column. The usual types are taken at once, which costs a tenth."""
    return (
        _at_once(array.take(pa.array(rows)))
        if _is_usual(array.type)
        else [jsonable(array[row]) for row in rows.tolist()]
    )


def _is_usual(kind: pa.DataType) -> bool:
    is_a = pa.types
    if is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_dictionary(kind):
        return _is_usual(kind.value_type)
    is_plain = is_a.is_integer(kind) or is_a.is_boolean(kind) or is_a.is_string(kind) or is_a.is_large_string(kind)
    return bool(is_plain or is_a.is_float32(kind) or is_a.is_float64(kind) or is_a.is_timestamp(kind))


def _at_once(array: pa.Array) -> list[Any]:
    kind = array.type
    if pa.types.is_dictionary(kind):
        return _at_once(array.dictionary_decode())
    if pa.types.is_timestamp(kind):
        return _times(array)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner, lengths = iter(_at_once(array.flatten())), pc.list_value_length(array).to_pylist()
        return [None if length is None else list(islice(inner, length)) for length in lengths]
    values: list[Any] = array.to_pylist()
    if pa.types.is_floating(kind) and not pc.all(pc.is_finite(array)).as_py():
        return [value if value is None or np.isfinite(value) else str(value) for value in values]
    return values


def _times(array: pa.Array) -> list[Any]:
    numbers = np.asarray(array.cast(pa.int64()).fill_null(0))
    texts = np.datetime_as_string(numbers.view(f"M8[{array.type.unit}]")).tolist()
    return [text if valid else None for text, valid in zip(texts, array.is_valid().to_pylist(), strict=True)]
