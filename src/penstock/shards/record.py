"""Record: one row of a dataset. Encode Arrow arrays into flat columns; decode columns into values or Arrow.

Encode and decode of each family of types sit one above the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import InputError
from penstock.shards.columns import Column
from penstock.shards.schema import NUMBERS, Field, Schema, Type, type_to_arrow

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
Columns = Mapping[str, Column]
MOST_RAGGED = 2**31 - 1  # what the offsets of Arrow's string, binary and list can count


class Encoder:
    """Turns successive arrays of one field into pieces of its columns.

    What it remembers between arrays is small: the row count, where ragged data ends, the dictionary.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self._type = field.parsed
        self._rows = 0
        self._end = 0
        self._has_nulls = False
        self._codes: dict[Any, int] = {}

    def start(self) -> Iterator[tuple[str, Array]]:
        """Pieces of no rows, so that an empty shard still has its columns; ragged data begins at offset 0."""
        name, kind = self.field.name, self._type
        if kind.is_number:
            yield name, np.empty(0, NUMBERS[kind.name])
        elif kind.name in ("decimal128", "fixed_size_binary"):
            yield name, np.empty((0, kind.width), "u1")
        elif kind.name == "fixed_size_list":
            assert kind.inner
            yield name, np.empty((0, kind.width), NUMBERS[kind.inner.name])
        elif kind.name == "dictionary":
            yield f"{name}/codes", np.empty(0, "i4")
        else:
            flat, dtype = _flat_column(kind)
            yield f"{name}/{flat}", np.empty(0, dtype)
            yield f"{name}/offsets", np.zeros(1, "i8")

    def encode(self, array: pa.Array) -> Iterator[tuple[str, Array]]:
        array = _without_hidden_nulls(array)
        yield from self._encode_validity(array)
        name, kind = self.field.name, self._type
        if array.null_count and kind.name != "dictionary":
            array = _fill_nulls(array, kind)
        if kind.name == "dictionary":
            yield f"{name}/codes", self._encode_codes(array)
        elif kind.is_text or kind.name in ("list", "large_list"):
            flat, offsets = _ragged_parts(array, kind)
            yield f"{name}/{_flat_column(kind)[0]}", flat
            yield f"{name}/offsets", np.add(offsets[1:], self._end - int(offsets[0]), dtype="i8")
            self._end += int(offsets[-1] - offsets[0])
        else:
            yield name, _fixed_values(array, kind)
        self._rows += len(array)

    def finish(self) -> Iterator[tuple[str, Array]]:
        """The dictionary, once all its values are known: in order of first appearance in the shard."""
        if self._type.name == "dictionary":
            import pyarrow as pa

            assert self._type.inner
            values = Encoder(Field(f"{self.field.name}/dictionary", self.field.type[len("dictionary<") : -1]))
            yield from values.start()
            yield from values.encode(pa.array(list(self._codes), type_to_arrow(self._type.inner)))

    def _encode_validity(self, array: pa.Array) -> Iterator[tuple[str, Array]]:
        """A shard without nulls has no validity column; at the first null the rows before it are filled in."""
        if array.null_count and not self._has_nulls:
            self._has_nulls = True
            yield f"{self.field.name}/valid", np.ones(self._rows, "u1")
        if self._has_nulls:
            yield f"{self.field.name}/valid", array.is_valid().to_numpy(zero_copy_only=False).view("u1")

    def _encode_codes(self, array: pa.Array) -> Array:
        """A null has code 0; the dictionary holds no value for it."""
        import pyarrow as pa

        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        indices = array.indices.cast(pa.int64()).fill_null(-1).to_numpy()
        used, first = np.unique(indices, return_index=True)
        translate = np.zeros(len(array.dictionary) + 1, "i4")
        for index in used[np.argsort(first)]:  # in order of first appearance
            if index >= 0:
                value = array.dictionary[int(index)].as_py()
                translate[index] = self._codes.setdefault(value, len(self._codes))
        codes: Array = translate[indices]
        return codes


def encoders(schema: Schema) -> list[Encoder]:
    return [Encoder(field) for field in schema]


def decode_record(schema: Schema, columns: Columns, row: int) -> dict[str, Any]:
    """One record as numpy scalars and arrays, str, bytes and None."""
    return {field.name: _decode_value(field, columns, row) for field in schema}


def decode_range(schema: Schema, columns: Columns, start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop` as Arrow, in the types they came in. A dictionary is handed on whole."""
    import pyarrow as pa

    arrays = [_decode_array(field, columns, start, stop) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in schema])


def decode_batches(
    schema: Schema, columns: Columns, start: int, stop: int, most: int = MOST_RAGGED
) -> Iterator[pa.RecordBatch]:
    """The same in as many batches as 32-bit offsets ask for: `most` bytes of text or list values in each."""
    pending = [(start, stop)]
    while pending:
        low, high = pending.pop()
        if high - low > 1 and _ragged_items(schema, columns, low, high) > most:
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
        elif high > low:
            yield decode_range(schema, columns, low, high)


def _ragged_items(schema: Schema, columns: Columns, start: int, stop: int) -> int:
    items = [0]
    for field in schema:
        if field.parsed.name in ("string", "binary", "list"):
            offsets = columns[f"{field.name}/offsets"]
            items.append(int(offsets.read(stop, stop + 1)[0]) - int(offsets.read(start, start + 1)[0]))
    return max(items)


def record_count(schema: Schema, columns: Columns) -> int:
    """How many records the columns hold; 0 fields hold none."""
    if not schema:
        return 0
    name, kind = schema[0].name, schema[0].parsed
    if kind.is_text or kind.name in ("list", "large_list"):
        return len(columns[f"{name}/offsets"]) - 1
    return len(columns[f"{name}/codes" if kind.name == "dictionary" else name])


# Fixed width: numbers, times, decimals, fixed lists.


def _fixed_values(array: pa.Array, kind: Type) -> Array:
    if kind.name in ("decimal128", "fixed_size_binary"):
        start = array.offset * kind.width
        data = np.frombuffer(array.buffers()[1], "u1")[start : start + len(array) * kind.width]
        return data.reshape(-1, kind.width)
    if kind.name == "fixed_size_list":
        assert kind.inner
        return _fixed_values(_without_inner_nulls(array.flatten(), kind), kind.inner).reshape(-1, kind.width)
    if kind.name == "bool":
        flags: Array = array.to_numpy(zero_copy_only=False)
        return flags.view("u1")
    dtype = np.dtype(NUMBERS[kind.name])
    start = array.offset * dtype.itemsize
    return np.frombuffer(array.buffers()[1], "u1")[start : start + len(array) * dtype.itemsize].view(dtype)


def _array_from_fixed(values: Array, kind: Type, valid: Array | None) -> pa.Array:
    import pyarrow as pa

    arrow_type = type_to_arrow(kind)
    if kind.name == "fixed_size_list":
        assert kind.inner
        flat = _array_from_fixed(values.reshape(-1), kind.inner, None)
        mask = None if valid is None else pa.array(~valid)
        return pa.FixedSizeListArray.from_arrays(flat, type=arrow_type, mask=mask)
    if kind.name == "bool":
        return pa.array(values.astype(bool), mask=None if valid is None else ~valid)
    bitmap = None if valid is None else pa.array(valid).buffers()[1]
    data = pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(arrow_type, len(values), [bitmap, data])


# Ragged: text and lists.


def _flat_column(kind: Type) -> tuple[str, str]:
    if kind.is_text:
        return "bytes", "u1"
    assert kind.inner
    return "values", NUMBERS[kind.inner.name]


def _ragged_parts(array: pa.Array, kind: Type) -> tuple[Array, Array]:
    """(flat values of these rows, their offsets): the first offset need not be 0."""
    wide = kind.name.startswith("large_")
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        offsets = np.zeros(1, "i8")
    else:
        offsets = np.frombuffer(buffer, "i8" if wide else "i4")[array.offset :][: len(array) + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    if kind.is_text:
        data = array.buffers()[2]
        return (np.frombuffer(data, "u1") if data else np.empty(0, "u1"))[first:last], offsets
    assert kind.inner
    values = _without_inner_nulls(array.values.slice(first, last - first), kind)
    return _fixed_values(values, kind.inner), offsets


def _array_from_ragged(flat: Array, offsets: Array, kind: Type, valid: Array | None) -> pa.Array:
    import pyarrow as pa

    wide = kind.name.startswith("large_")
    if not wide and len(flat) > MOST_RAGGED:
        raise ValueError(f"{len(flat):,} bytes or values of {kind.name} do not fit one Arrow array: take fewer records")
    offsets = np.ascontiguousarray(offsets - offsets[0], "i8" if wide else "i4")
    bitmap = None if valid is None else pa.array(valid).buffers()[1]
    arrow_type = type_to_arrow(kind)
    if kind.is_text:
        return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [bitmap, pa.py_buffer(offsets), pa.py_buffer(flat)])
    assert kind.inner
    children = [_array_from_fixed(flat, kind.inner, None)]
    return pa.Array.from_buffers(arrow_type, len(offsets) - 1, [bitmap, pa.py_buffer(offsets)], children=children)


def _without_inner_nulls(values: pa.Array, kind: Type) -> pa.Array:
    if values.null_count:
        raise InputError(
            f"a {kind.name} has {values.null_count} nulls inside its lists, which flat columns cannot hold",
            next_step="fill them in a stage of your own, for example with NaN",
        )
    return values


def _without_hidden_nulls(array: pa.Array) -> pa.Array:
    """A null may also be a value of the dictionary; Arrow does not count those."""
    import pyarrow as pa

    hidden = pa.types.is_dictionary(array.type) and array.dictionary.null_count
    return array.dictionary_decode() if hidden else array


def _fill_nulls(array: pa.Array, kind: Type) -> pa.Array:
    """Put a fixed value under every null: Arrow leaves those bytes undefined, and output must not be."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if kind.name in ("list", "large_list", "fixed_size_list"):
        length = kind.width if kind.name == "fixed_size_list" else 0
        assert kind.inner
        filler = pa.array([[_zero(kind.inner)] * length], array.type)
        indices = pa.array(np.where(array.is_valid(), np.arange(len(array)), len(array)))
        return pa.concat_arrays([array, filler]).take(indices)
    return pc.fill_null(array, pa.scalar(_zero(kind), array.type))


def _zero(kind: Type) -> Any:
    if kind.is_text or kind.name == "fixed_size_binary":
        return b"\0" * kind.width if kind.name == "fixed_size_binary" else ("" if "string" in kind.name else b"")
    if kind.name == "bool":
        return False
    if kind.name.startswith("float"):
        return 0.0
    return 0


# Decoding a field.


def _decode_array(field: Field, columns: Columns, start: int, stop: int) -> pa.Array:
    import pyarrow as pa

    kind, name = field.parsed, field.name
    valid = None
    if f"{name}/valid" in columns:
        valid = columns[f"{name}/valid"].read(start, stop).astype(bool)
    if kind.name == "dictionary":
        values = _dictionary(field, columns)
        codes = pa.array(columns[f"{name}/codes"].read(start, stop), mask=None if valid is None else ~valid)
        return pa.DictionaryArray.from_arrays(codes, values)
    if kind.is_text or kind.name in ("list", "large_list"):
        flat, offsets = _read_ragged(name, kind, columns, start, stop)
        return _array_from_ragged(flat, offsets, kind, valid)
    return _array_from_fixed(columns[name].read(start, stop), kind, valid)


def _dictionary(field: Field, columns: Columns) -> pa.Array:
    inner = Field(f"{field.name}/dictionary", field.type[len("dictionary<") : -1])
    return _decode_array(inner, columns, 0, len(columns[f"{inner.name}/offsets"]) - 1)


def _read_ragged(name: str, kind: Type, columns: Columns, start: int, stop: int) -> tuple[Array, Array]:
    offsets = columns[f"{name}/offsets"].read(start, stop + 1)
    flat = columns[f"{name}/{_flat_column(kind)[0]}"].read(int(offsets[0]), int(offsets[-1]))
    return flat, offsets


def _decode_value(field: Field, columns: Columns, row: int) -> Any:
    kind, name = field.parsed, field.name
    if f"{name}/valid" in columns and not columns[f"{name}/valid"].read(row, row + 1)[0]:
        return None
    if kind.name == "dictionary":
        code = int(columns[f"{name}/codes"].read(row, row + 1)[0])
        inner = Field(f"{name}/dictionary", field.type[len("dictionary<") : -1])
        return _decode_value(inner, columns, code)
    if kind.is_text or kind.name in ("list", "large_list"):
        flat, _ = _read_ragged(name, kind, columns, row, row + 1)
        return _text(flat, kind) if kind.is_text else _typed(flat, kind.inner)
    values = columns[name].read(row, row + 1)[0]
    if kind.name == "fixed_size_list":
        return _typed(values, kind.inner)
    if kind.name == "fixed_size_binary":
        return values.tobytes()
    if kind.name == "decimal128":
        return _array_from_fixed(values.reshape(1, -1), kind, None)[0].as_py()
    return _typed(values, kind)


def _text(flat: Array, kind: Type) -> str | bytes:
    return flat.tobytes().decode() if "string" in kind.name else flat.tobytes()


_NUMPY_TIMES = {"timestamp": "M8", "duration": "m8", "time32": "m8", "time64": "m8"}


def _typed(values: Any, kind: Type | None) -> Any:
    """Numbers as they are, times as numpy's datetime64 (UTC where a zone is given) and timedelta64."""
    assert kind
    if kind.name == "bool":
        return values.astype(bool)
    if kind.name in _NUMPY_TIMES:
        return values.astype("i8").view(f"{_NUMPY_TIMES[kind.name]}[{kind.arguments[0]}]")
    if kind.name in ("date32", "date64"):
        return values.astype("i8").view("M8[D]" if kind.name == "date32" else "M8[ms]")
    return values
