"""Record: one row of a dataset. Encode Arrow arrays into flat columns; decode columns into values or Arrow.

A list or a dictionary has its own columns and those of a field within it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.shards import arrays
from penstock.shards import arrow as pa
from penstock.shards.arrays import Array
from penstock.shards.columns import BLOCK, Column
from penstock.shards.dictionary import Windows, indexed
from penstock.shards.schema import Field, Schema, Type, type_to_arrow

Columns = Mapping[str, Column]
Pieces = Iterator[tuple[str, Array]]
_FILLED = 2**20  # rows of validity filled in at a time, so that memory does not grow with the shard


class Encoder:
    """Turns successive arrays of one field into pieces of its columns.

    What it remembers between arrays is bounded: the row count, where ragged data ends, a window of a dictionary.
    """

    def __init__(self, field: Field) -> None:
        self.field = field
        self._type = field.parsed
        self._rows = 0
        self._end = 0
        self._has_nulls = False
        self._windows = Windows()
        self._inner = Encoder(field.inner) if self._type.is_list or self._type.is_dictionary else None

    def start(self) -> Pieces:
        """Pieces of no rows, so that an empty shard still has its columns; ragged data begins at offset 0."""
        name, kind = self.field.name, self._type
        if kind.is_dictionary:
            yield f"{name}/codes", np.empty(0, "i4")
        elif kind.is_list:
            yield f"{name}/offsets", np.zeros(1, "i8")
        elif kind.is_text:
            yield f"{name}/bytes", np.empty(0, "u1")
            yield f"{name}/offsets", np.zeros(1, "i8")
        else:
            yield name, arrays.no_values(kind)
        if self._inner:
            yield from self._inner.start()

    def encode(self, array: pa.Array) -> Pieces:
        if self._type.is_dictionary:
            yield from self._encode_dictionary(array)
        else:
            yield from self._encode_validity(arrays.valid_values(array), len(array))
            if self._type.is_list:
                yield from self._encode_list(array)
            elif self._type.is_text:
                flat, offsets = arrays.text_parts(arrays.fill_nulls(array, self._type))
                yield f"{self.field.name}/bytes", flat
                yield f"{self.field.name}/offsets", self._shift(offsets)
            else:
                yield self.field.name, self._fixed(array)
        self._rows += len(array)

    def _fixed(self, array: pa.Array) -> Array:
        try:
            return arrays.fixed_values(arrays.fill_nulls(array, self._type), self._type)
        except InputError as error:  # nulls inside lists
            error.where = f"column {self.field.name!r}"
            raise

    def finish(self) -> Pieces:
        """The last window of a dictionary."""
        yield from self._encode_windows(self._windows.finish())
        if self._inner:
            yield from self._inner.finish()

    def _encode_validity(self, valid: Array | None, rows: int) -> Pieces:
        """A shard without nulls has no validity column; at the first null the rows before it are filled in."""
        if valid is not None and not self._has_nulls:
            self._has_nulls = True
            for start in range(0, self._rows, _FILLED):
                yield f"{self.field.name}/valid", np.ones(min(_FILLED, self._rows - start), "u1")
        if self._has_nulls:
            yield f"{self.field.name}/valid", np.ones(rows, "u1") if valid is None else valid.view("u1")

    def _encode_list(self, array: pa.Array) -> Pieces:
        assert self._inner
        values, offsets = arrays.list_parts(array)
        yield f"{self.field.name}/offsets", self._shift(offsets)
        yield from self._inner.encode(values)

    def _encode_dictionary(self, array: pa.Array) -> Pieces:
        """A null has code 0; the dictionary holds no value for it."""
        assert self._type.inner
        indices, values = indexed(array, type_to_arrow(self._type.inner))
        valid = indices >= 0
        yield from self._encode_validity(None if valid.all() else valid, len(array))
        yield from self._encode_windows(self._windows.add(indices, values))

    def _encode_windows(self, windows: Iterator[tuple[Array, pa.Array]]) -> Pieces:
        for codes, values in windows:
            assert self._inner
            yield f"{self.field.name}/codes", codes
            yield from self._inner.encode(values)

    def _shift(self, offsets: Array) -> Array:
        """Offsets of these rows, after those of the rows before them."""
        shifted: Array = np.add(offsets[1:], self._end - int(offsets[0]), dtype="i8")
        self._end += int(offsets[-1] - offsets[0])
        return shifted


def encoders(schema: Schema) -> list[Encoder]:
    return [Encoder(field) for field in schema]


def decode_record(schema: Schema, columns: Columns, row: int) -> dict[str, Any]:
    """One record as numpy scalars and arrays, str, bytes and None.

    A list is an array: of numbers or rows of them, masked where some are null, or of objects (text, decimals) with None
    for a null.
    """
    return {field.name: _decode_value(field, columns, row) for field in schema}


def decode_range(schema: Schema, columns: Columns, start: int, stop: int) -> pa.RecordBatch:
    """Records `start` to `stop` as Arrow, in the types they came in. Of a dictionary the part that their codes span."""
    found = [_decode_array(field, columns, start, stop) for field in schema]
    return pa.RecordBatch.from_arrays(found, names=[field.name for field in schema])


def decode_batches(
    schema: Schema, columns: Columns, start: int, stop: int, most: int = arrays.MOST_RAGGED
) -> Iterator[pa.RecordBatch]:
    """Like `decode_range`, in as many batches as 32-bit offsets need: `most` bytes of text or list values in each."""
    pending = [(start, stop)]
    while pending:
        low, high = pending.pop()
        if high - low > 1 and any(_ragged_items(field, columns, low, high) > most for field in schema):
            middle = (low + high) // 2
            pending += [(middle, high), (low, middle)]
        elif high > low:
            yield decode_range(schema, columns, low, high)


def _ragged_items(field: Field, columns: Columns, start: int, stop: int) -> int:
    """The most bytes or values that one array of 32-bit offsets, the field's or one within it, has to count."""
    kind, items = field.parsed, 0
    if kind.is_dictionary:
        return _ragged_items(field.inner, columns, *_code_span(*_read_codes(field, columns, start, stop)))
    if kind.is_text or kind.is_list:
        offsets = columns[f"{field.name}/offsets"]
        low, high = int(offsets.read(start, start + 1)[0]), int(offsets.read(stop, stop + 1)[0])
        items = 0 if kind.is_large else high - low
        if kind.is_list:
            items = max(items, _ragged_items(field.inner, columns, low, high))
    return items


def record_count(schema: Schema, columns: Columns) -> int:
    """Number of records in the columns; without fields there are none."""
    if not schema:
        return 0
    name, kind = schema[0].name, schema[0].parsed
    if kind.is_text or kind.is_list:
        return len(columns[f"{name}/offsets"]) - 1
    return len(columns[f"{name}/codes" if kind.is_dictionary else name])


# Decoding a field.


def _decode_array(field: Field, columns: Columns, start: int, stop: int) -> pa.Array:
    kind, name = field.parsed, field.name
    if kind.is_dictionary:
        return _decode_dictionary(field, columns, start, stop)
    valid = _read_validity(field, columns, start, stop)
    if kind.is_text:
        return arrays.array_from_text(*_read_text(field, columns, start, stop), kind, valid)
    if kind.is_list:
        offsets = columns[f"{name}/offsets"].read(start, stop + 1)
        values = _decode_array(field.inner, columns, int(offsets[0]), int(offsets[-1]))
        return arrays.array_from_list(values, offsets, kind, valid)
    return arrays.array_from_fixed(columns[name].read(start, stop), kind, valid)


def _decode_dictionary(field: Field, columns: Columns, start: int, stop: int) -> pa.Array:
    codes, valid = _read_codes(field, columns, start, stop)
    low, high = _code_span(codes, valid)
    mask = None if valid is None else ~valid
    return pa.DictionaryArray.from_arrays(
        pa.array(codes - np.int32(low), mask=mask), _decode_array(field.inner, columns, low, high)
    )


def _read_validity(field: Field, columns: Columns, start: int, stop: int) -> Array | None:
    if f"{field.name}/valid" not in columns:
        return None
    valid = columns[f"{field.name}/valid"].read(start, stop).view(bool)
    return None if valid.all() else valid


def _read_text(field: Field, columns: Columns, start: int, stop: int) -> tuple[Array, Array]:
    offsets = columns[f"{field.name}/offsets"].read(start, stop + 1)
    return columns[f"{field.name}/bytes"].read(int(offsets[0]), int(offsets[-1])), offsets


def _read_codes(field: Field, columns: Columns, start: int, stop: int) -> tuple[Array, Array | None]:
    return columns[f"{field.name}/codes"].read(start, stop), _read_validity(field, columns, start, stop)


def _code_span(codes: Array, valid: Array | None) -> tuple[int, int]:
    """The first code and one more than the last: records near each other have codes of the same windows."""
    codes = codes if valid is None else codes[valid]
    return (int(codes.min()), int(codes.max()) + 1) if len(codes) else (0, 0)


def _decode_value(field: Field, columns: Columns, row: int) -> Any:
    kind, name = field.parsed, field.name
    if f"{name}/valid" in columns and not columns[f"{name}/valid"].read(row, row + 1)[0]:
        return None
    if kind.is_dictionary:
        return _decode_value(field.inner, columns, int(columns[f"{name}/codes"].read(row, row + 1)[0]))
    if kind.is_text:
        return _text(_read_text(field, columns, row, row + 1)[0], kind)
    if kind.is_list:
        start, stop = columns[f"{name}/offsets"].read(row, row + 2).tolist()
        return _decode_items(field.inner, columns, start, stop)
    values = columns[name].read(row, row + 1)[0]
    if kind.is_fixed_list:
        return _typed(values, kind.number)
    if kind.name == "fixed_size_binary":
        return values.tobytes()
    if kind.name == "decimal128":
        return arrays.array_from_fixed(values.reshape(1, -1), kind, None)[0].as_py()
    return _typed(values, kind)


def _decode_items(field: Field, columns: Columns, start: int, stop: int) -> Array:
    """The values of one list: numbers or rows of them, masked if some are null, or objects with None for a null."""
    kind = field.parsed
    if kind.is_number or kind.is_fixed_list:
        values: Array = _typed(columns[field.name].read(start, stop), kind.number)
        valid = _read_validity(field, columns, start, stop)
        if valid is None:
            return values
        null = (~valid).reshape(-1, *(1 for _ in kind.shape))
        return np.ma.MaskedArray(values, np.broadcast_to(null, values.shape))
    if kind.is_dictionary:
        codes, valid = _read_codes(field, columns, start, stop)
        return _decode_codes(field.inner, columns, codes, valid)
    return np.asarray(_decode_array(field, columns, start, stop).to_numpy(zero_copy_only=False))


def _decode_codes(values: Field, columns: Columns, codes: Array, valid: Array | None) -> Array:
    """Text by its codes, each distinct code decoded once."""
    objects = np.full(len(codes), None, object)
    own = np.ones(len(codes), bool) if valid is None else valid
    distinct, places = np.unique(codes[own], return_inverse=True)
    texts = np.empty(len(distinct), object)
    texts[:] = _decode_texts(values, columns, distinct)
    objects[own] = texts[places]
    return objects


def _decode_texts(field: Field, columns: Columns, rows: Array) -> list[str | bytes]:
    """Text of some rows, which are in order. No block is touched but theirs."""
    offsets, flat = columns[f"{field.name}/offsets"], columns[f"{field.name}/bytes"]
    starts, stops, texts = np.empty_like(rows, "i8"), np.empty_like(rows, "i8"), []
    for near in _near(rows, rows + 2, BLOCK // offsets.array.itemsize):
        first = int(rows[near][0])
        edges = offsets.read(first, int(rows[near][-1]) + 2)
        starts[near], stops[near] = edges[rows[near] - first], edges[rows[near] - first + 1]
    for near in _near(starts, stops, BLOCK):
        first = int(starts[near][0])
        data = flat.read(first, int(stops[near][-1]))
        bounds = zip((starts[near] - first).tolist(), (stops[near] - first).tolist(), strict=True)
        texts += [_text(data[start:stop], field.parsed) for start, stop in bounds]
    return texts


def _near(starts: Array, stops: Array, block: int) -> Iterator[slice]:
    """Ranges less than a block apart, to be read in one go: no block lies between two of them."""
    far = np.flatnonzero(starts[1:] - stops[:-1] >= block) + 1
    cuts = [0, *far.tolist(), len(starts)]
    return (slice(low, high) for low, high in itertools.pairwise(cuts) if high > low)


def _text(flat: Array, kind: Type) -> str | bytes:
    return flat.tobytes().decode() if "string" in kind.name else flat.tobytes()


_NUMPY_TIMES = {"timestamp": "M8", "duration": "m8", "time32": "m8", "time64": "m8"}  # in the unit that the type has
_NUMPY_TIMES |= {"date32": "M8[D]", "date64": "M8[ms]"}


def _typed(values: Any, kind: Type) -> Any:
    """Numbers as they are, times as numpy's datetime64 (UTC where a zone is given) and timedelta64."""
    if kind.name == "bool":
        return values.astype(bool)
    if kind.name in _NUMPY_TIMES:
        unit = f"[{kind.arguments[0]}]" if kind.arguments else ""
        return values.astype("i8").view(f"{_NUMPY_TIMES[kind.name]}{unit}")
    return values
