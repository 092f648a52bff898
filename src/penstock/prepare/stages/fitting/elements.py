"""Elements: a column of numbers, or of fixed-size lists of them, as an array of (rows, elements), and back.

A list of any number of dimensions is flattened in row-major order; a plain number is a list of one element.
"""

import math
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.stages.stage import require_columns

Array = np.ndarray[Any, Any]
_PIECE_ELEMENTS = 1 << 19  # 4 MiB as float64: workers have 60 MiB for everything
_MOST_ROWS = 8192


def shape_of(kind: pa.DataType) -> tuple[int, ...]:
    """The lengths of the lists, outermost first; a plain number has none."""
    return (kind.list_size, *shape_of(kind.value_type)) if pa.types.is_fixed_size_list(kind) else ()


def element_type(kind: pa.DataType) -> pa.DataType:
    return element_type(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind


def with_element_type(kind: pa.DataType, element: pa.DataType) -> pa.DataType:
    """Lists of the same shape and field names, of other elements."""
    if not pa.types.is_fixed_size_list(kind):
        return element
    inner = kind.value_field
    return pa.list_(inner.with_type(with_element_type(inner.type, element)), kind.list_size)


def rows_at_once(elements: int) -> int:
    """Rows that are worked on together: 512 of 893 elements. A sum depends on it, so it depends on the shape alone."""
    rows = _PIECE_ELEMENTS // max(1, elements)
    return min(_MOST_ROWS, 1 << (rows.bit_length() - 1)) if rows else 1


def require_numbers(schema: pa.Schema, columns: tuple[str, ...]) -> None:
    require_columns(schema, list(columns))
    for name in columns:
        kind = element_type(schema.field(name).type)
        if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
            raise ConfigError(
                f"column {name!r} is {schema.field(name).type}, not a number or a fixed-size list of numbers",
                next_step="leave it out; arrays of different lengths cannot be measured element by element",
            )


def floating_columns(schema: pa.Schema) -> tuple[str, ...]:
    return tuple(field.name for field in schema if pa.types.is_floating(element_type(field.type)))


def elements_of(array: pa.Array) -> tuple[Array, Array | None]:
    """(values, which of them are not null, None if all are), both of (rows, elements). Values are a view."""
    rows, elements = len(array), math.prod(shape_of(array.type))
    valid = None
    while True:
        if array.null_count:
            here = np.repeat(array.is_valid().to_numpy(zero_copy_only=False), math.prod(shape_of(array.type)))
            valid = here if valid is None else valid & here
        if not pa.types.is_fixed_size_list(array.type):
            break
        array = _inside(array)
    return _flat(array).reshape(rows, elements), None if valid is None else valid.reshape(rows, elements)


def array_of(values: Array, like: pa.Array) -> pa.Array:
    """Flat values as an array with the lists and the nulls of `like`."""
    nulls = ~like.is_valid().to_numpy(zero_copy_only=False) if like.null_count else None
    if not pa.types.is_fixed_size_list(like.type):
        return pa.array(values, mask=nulls)
    inner = array_of(values, _inside(like))
    kind = with_element_type(like.type, element_type(inner.type))
    return pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=None if nulls is None else pa.array(nulls))


def _inside(array: pa.Array) -> pa.Array:
    """The values of all lists, those of null ones too: `flatten` would leave these out."""
    return array.values.slice(array.offset * array.type.list_size, len(array) * array.type.list_size)


def _flat(array: pa.Array) -> Array:
    dtype = np.dtype(array.type.to_pandas_dtype())
    data = array.buffers()[1]
    if data is None:  # Arrow need not have a buffer for no values
        return np.zeros(len(array), dtype)
    return np.frombuffer(data, dtype, len(array), array.offset * dtype.itemsize)
