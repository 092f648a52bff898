"""Arrays: an Arrow array taken apart into flat numpy arrays, and put together again. Used by record.py.

Nothing is copied that need not be: parts are views of Arrow's buffers, and buffers views of mapped columns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.shards import arrow as pa
from penstock.shards.schema import NUMBERS, Type, type_to_arrow

Array = np.ndarray[Any, Any]
MOST_RAGGED = 2**31 - 1  # what the offsets of Arrow's string, binary and list can count


def is_string(kind: pa.DataType) -> bool:
    """Whether it is text, with offsets of 32 or 64 bits."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def is_list(kind: pa.DataType) -> bool:
    """Whether it is a list, of any length or of one."""
    is_a = pa.types
    return bool(is_a.is_list(kind) or is_a.is_large_list(kind) or is_a.is_fixed_size_list(kind))


# Fixed width: numbers, times, decimals, fixed lists.


def no_values(kind: Type) -> Array:
    return np.empty((0, *kind.shape), NUMBERS[kind.number.name])


def fixed_dtype(kind: Type) -> np.dtype[Any]:
    """The dtype of a fixed column for other programs: times are their numbers, decimals their bytes."""
    return np.dtype("?" if kind.number.name == "bool" else f"<{NUMBERS[kind.number.name]}")


def fixed_values(array: pa.Array, kind: Type) -> Array:
    if not len(array):  # Arrow need not have a buffer for it
        return no_values(kind)
    if kind.is_fixed_list:
        assert kind.inner
        inner = array.flatten()
        if inner.null_count:
            raise InputError(
                f"a {kind.name} has {inner.null_count} nulls inside its lists, which flat columns cannot hold",
                next_step="fill them in a stage of your own, for example with NaN",
            )
        return fixed_values(inner, kind.inner).reshape(-1, *kind.shape)
    if kind.name == "bool":
        flags: Array = array.to_numpy(zero_copy_only=False)
        return flags.view("u1")
    dtype = np.dtype(NUMBERS[kind.number.name])
    width = dtype.itemsize * math.prod(kind.shape)
    data = np.frombuffer(array.buffers()[1], "u1")[array.offset * width : (array.offset + len(array)) * width]
    return data.view(dtype).reshape(-1, *kind.shape)


def array_from_fixed(values: Array, kind: Type, valid: Array | None) -> pa.Array:
    arrow_type = type_to_arrow(kind)
    if kind.is_fixed_list:
        assert kind.inner
        flat = array_from_fixed(values.reshape(-1, *kind.inner.shape), kind.inner, None)
        mask = None if valid is None else pa.array(~valid)
        return pa.FixedSizeListArray.from_arrays(flat, type=arrow_type, mask=mask)
    if kind.name == "bool":
        return pa.array(values.astype(bool), mask=None if valid is None else ~valid)
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(arrow_type, len(values), [_bitmap(valid), data])


# Ragged: text and lists.


def _offsets(array: pa.Array, is_large: bool) -> Array:
    """Offsets as in Arrow: the first may be other than 0."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(1, "i8")
    return np.frombuffer(buffer, "i8" if is_large else "i4")[array.offset :][: len(array) + 1]


def text_parts(array: pa.Array) -> tuple[Array, Array]:
    """(bytes of these rows, their offsets)."""
    offsets = _offsets(array, pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type))
    data = array.buffers()[2]
    return (np.frombuffer(data, "u1") if data else np.empty(0, "u1"))[int(offsets[0]) : int(offsets[-1])], offsets


def list_parts(array: pa.Array) -> tuple[pa.Array, Array]:
    """(values of these rows, their offsets). Arrow lets a null list have values; they are left out."""
    offsets = _offsets(array, pa.types.is_large_list(array.type))
    valid = valid_values(array)
    if valid is not None and np.any(np.diff(offsets)[~valid]):
        return array.flatten(), np.append(0, np.cumsum(np.where(valid, np.diff(offsets), 0), dtype="i8"))
    return array.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0])), offsets


def array_from_text(flat: Array, offsets: Array, kind: Type, valid: Array | None) -> pa.Array:
    buffers = [_bitmap(valid), _arrow_offsets(offsets, kind), pa.py_buffer(flat)]
    return pa.Array.from_buffers(type_to_arrow(kind), len(offsets) - 1, buffers)


def array_from_list(values: pa.Array, offsets: Array, kind: Type, valid: Array | None) -> pa.Array:
    buffers = [_bitmap(valid), _arrow_offsets(offsets, kind)]
    return pa.Array.from_buffers(type_to_arrow(kind), len(offsets) - 1, buffers, children=[values])


def _arrow_offsets(offsets: Array, kind: Type) -> pa.Buffer:
    items = int(offsets[-1] - offsets[0])
    if not kind.is_large and items > MOST_RAGGED:
        raise ValueError(f"{items:,} bytes or values of {kind.name} do not fit one Arrow array: take fewer records")
    return pa.py_buffer(np.ascontiguousarray(offsets - offsets[0], "i8" if kind.is_large else "i4"))


# Nulls.


def valid_values(array: pa.Array) -> Array | None:
    """A mask of the values that are not null; None if all are not."""
    return array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None


def _bitmap(valid: Array | None) -> pa.Buffer | None:
    return None if valid is None else pa.array(valid).buffers()[1]


def fill_nulls(array: pa.Array, kind: Type) -> pa.Array:
    """Put a fixed value under every null: Arrow leaves those bytes undefined, and output must not be."""
    if not array.null_count:
        return array
    if kind.is_fixed_list:
        filler = array_from_fixed(np.zeros((1, *kind.shape), NUMBERS[kind.number.name]), kind, None).cast(array.type)
        indices = pa.array(np.where(array.is_valid(), np.arange(len(array)), len(array)))
        return pa.concat_arrays([array, filler]).take(indices)
    if kind.name == "decimal128":  # Arrow's own fill_null multiplies a decimal of negative scale
        values = fixed_values(array, kind).copy()
        values[np.asarray(array.is_null())] = 0
        return array_from_fixed(values, kind, None)
    return pa.compute.fill_null(array, pa.scalar(_zero(kind), array.type))


def _zero(kind: Type) -> Any:
    if kind.name == "fixed_size_binary":
        return b"\0" * kind.width
    if kind.is_text:
        return "" if "string" in kind.name else b""
    return False if kind.name == "bool" else 0.0 if kind.name.startswith("float") else 0
