"""Layouts: Arrow's views and run-end encoding -> the plain types of the same values, which everything behind can take.

They differ from `string`, `binary`, `list` and plain numbers only in how values lie in memory, and Arrow itself cannot
filter or take rows of some of them.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.shards.arrays import is_string


def plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([each.with_type(plain_type(each.type)) for each in schema])


def without_metadata(schema: pa.Schema) -> pa.Schema:
    """The schema without metadata of other programs."""
    return pa.schema([each.remove_metadata() for each in schema])


def plain_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain types; the same object if nothing changes."""
    if all(plain_type(each.type) == each.type for each in batch.schema):
        return batch
    return pa.RecordBatch.from_arrays([plain_array(each) for each in batch.columns], names=batch.schema.names)


def plain_type(kind: pa.DataType) -> pa.DataType:
    return plain_type(kind.value_type) if pa.types.is_run_end_encoded(kind) else _inner_type(kind)


def may_be_text(kind: pa.DataType) -> bool:
    """Whether a column of this type holds text; one in which nothing but null was seen may."""
    if pa.types.is_dictionary(kind):
        return may_be_text(kind.value_type)
    return is_string(plain_type(kind)) or bool(pa.types.is_null(kind))


def _inner_type(kind: pa.DataType) -> pa.DataType:
    """Like `plain_type`, but runs inside of lists and structs stay: Arrow has no way to decode them there."""
    is_a = pa.types
    if is_a.is_string_view(kind):
        return pa.string()
    if is_a.is_binary_view(kind):
        return pa.binary()
    if is_a.is_list(kind) or is_a.is_list_view(kind):
        return pa.list_(_inner_field(kind.value_field))
    if is_a.is_large_list(kind) or is_a.is_large_list_view(kind):
        return pa.large_list(_inner_field(kind.value_field))
    if is_a.is_fixed_size_list(kind):
        return pa.list_(_inner_field(kind.value_field), kind.list_size)
    return pa.struct([_inner_field(each) for each in kind]) if is_a.is_struct(kind) else kind


def _inner_field(field: pa.Field) -> pa.Field:
    return field.with_type(_inner_type(field.type))


def plain_array(array: pa.Array) -> pa.Array:
    """Lists and structs are rebuilt: Arrow's own cast of a list view, also inside them, makes invalid arrays."""
    is_a, wanted = pa.types, plain_type(array.type)
    if array.type == wanted:
        return array
    if is_a.is_run_end_encoded(array.type):
        return _decoded(array)
    nulls = array.is_null() if array.null_count else None
    if is_a.is_struct(array.type):
        fields = [plain_array(array.field(number)) for number in range(array.type.num_fields)]
        return pa.StructArray.from_arrays(fields, fields=list(wanted), mask=nulls)
    if is_a.is_fixed_size_list(array.type):
        values = array.values.slice(array.offset * wanted.list_size, len(array) * wanted.list_size)
        return pa.FixedSizeListArray.from_arrays(plain_array(values), type=wanted, mask=nulls)
    if is_a.is_list(wanted) or is_a.is_large_list(wanted):
        return _rebuilt(array, wanted, nulls)
    return array.cast(wanted)


def _decoded(array: pa.Array) -> pa.Array:
    """Each run's value as often as it is there; Arrow's own kernel takes no views and no dictionaries."""
    rows = np.arange(array.offset, array.offset + len(array))
    runs = np.searchsorted(np.asarray(array.run_ends), rows, side="right")
    return plain_array(array.values).take(pa.array(runs))


def _rebuilt(array: pa.Array, wanted: pa.DataType, nulls: pa.Array | None) -> pa.Array:
    is_large = pa.types.is_large_list(wanted)
    ends = np.append(0, np.cumsum(array.value_lengths().fill_null(0)))
    make = pa.LargeListArray if is_large else pa.ListArray
    offsets = pa.array(ends, pa.int64() if is_large else pa.int32())
    return make.from_arrays(offsets, plain_array(array.flatten()), type=wanted, mask=nulls)


def refuse_other_layouts(schema: pa.Schema, columns: tuple[str, ...]) -> None:
    """Refuse views and runs in places where `plain_array` leaves them, such as maps and dictionaries."""
    for name in columns:
        if any(map(_is_other, _within(schema.field(name).type))):
            raise InputError(
                f"column {name!r} has type {schema.field(name).type}, which contains a layout that cannot be read here",
                next_step="leave it out with `select:`, or write the file with plain types (string instead of "
                "string_view)",
            )


def _within(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for number in range(kind.num_fields):
        yield from _within(kind.field(number).type)
    if pa.types.is_dictionary(kind):
        yield from _within(kind.value_type)


def _is_other(kind: pa.DataType) -> bool:
    is_a = pa.types
    is_view = is_a.is_string_view(kind) or is_a.is_binary_view(kind) or is_a.is_list_view(kind)
    return bool(is_view or is_a.is_large_list_view(kind) or is_a.is_run_end_encoded(kind))
