"""Arrow stream: cut columns into one IPC stream per record, the very bytes pyarrow writes for that record alone.

Slices of a batch will not do: pyarrow writes up to 63 bytes of the next record as padding. The metadata of a batch
message has one size and one layout for a schema, so pyarrow makes it once and its numbers are set for all records
together; the body is pieces of the flat columns. A fresh batch per record costs 400 us (100 events), this 9 us.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.shards import arrow as pa

Array = np.ndarray[Any, Any]
MOST_BYTES = 2**31 - 1  # what the offsets of Arrow's string and binary can count
_ALIGNMENT = 8
_PADDING = [bytes(length) for length in range(_ALIGNMENT)]
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


@dataclass(frozen=True)
class Pieces:
    """One buffer of every record: how many bytes each record has there, and the bytes, to be taken once."""

    sizes: Array
    pieces: Iterable[bytes | memoryview]


@dataclass(frozen=True)
class StreamColumn:
    """One column of every stream, as the buffers that Arrow's layout gives its type."""

    field: pa.Field
    null_counts: Array
    buffers: tuple[Pieces, ...]


@dataclass(frozen=True)
class _Head:
    """The metadata of a batch message in words of 8 bytes, and at which words its numbers start."""

    words: Array
    body: int
    rows: int
    nodes: int  # (rows, nulls) per column
    buffers: int  # (start, size) per buffer


def streams(columns: list[StreamColumn], rows: Array) -> Pieces:
    """One IPC stream per record, of one batch with `rows[i]` rows."""
    schema = pa.schema([column.field for column in columns])
    head = _head(schema)
    heads = np.tile(head.words, (len(rows), 1))
    heads[:, head.rows] = rows
    heads[:, head.nodes : head.nodes + 2 * len(columns) : 2] = rows[:, None]
    heads[:, head.nodes + 1 : head.nodes + 1 + 2 * len(columns) : 2] = np.stack(
        [each.null_counts for each in columns], 1
    )
    parts: list[Iterable[bytes | memoryview]] = []
    end = np.zeros(len(rows), "i8")
    buffers = [buffer for column in columns for buffer in column.buffers]
    for number, buffer in enumerate(buffers):
        padding = -buffer.sizes % _ALIGNMENT
        heads[:, head.buffers + 2 * number] = end
        heads[:, head.buffers + 2 * number + 1] = buffer.sizes
        end += buffer.sizes + padding
        parts.append(buffer.pieces)
        if padding.any():
            parts.append(map(_PADDING.__getitem__, padding.tolist()))
    heads[:, head.body] = end
    start = schema.serialize().to_pybytes()
    metadata = cut(heads.reshape(-1), np.full(len(rows), len(head.words)))
    whole = zip(repeat(start), metadata.pieces, *parts, repeat(_END_OF_STREAM), strict=False)
    return Pieces(len(start) + metadata.sizes + end + len(_END_OF_STREAM), map(b"".join, whole))


def _head(schema: pa.Schema) -> _Head:
    """Walk pyarrow's message of one row of nulls (no number in it is 0, which flatbuffers would leave out)."""
    batch = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in schema], schema=schema)
    message = batch.serialize().to_pybytes()
    message = message[: 8 + int.from_bytes(message[4:8], "little")]  # without the body

    def offset(at: int, size: int = 4) -> int:
        return int.from_bytes(message[at : at + size], "little", signed=True)

    def member(table: int, number: int) -> int:
        return table + offset(table - offset(table) + 4 + 2 * number, 2)

    def follow(at: int) -> int:
        return at + offset(at)

    root = follow(8)  # Message: version, header_type, header, bodyLength
    header = follow(member(root, 2))  # RecordBatch: length, nodes, buffers
    places = [member(root, 3), member(header, 0), *(follow(member(header, number)) + 4 for number in (1, 2))]
    return _Head(np.frombuffer(message, "<i8"), *(place // 8 for place in places))


def cut(flat: Array, counts: Array) -> Pieces:
    """The first `counts[0]` items of `flat`, the next `counts[1]`, ..."""
    sizes = counts * flat.itemsize
    stops = np.cumsum(sizes)
    view = flat.view("u1").data
    return Pieces(sizes, map(view.__getitem__, map(slice, (stops - sizes).tolist(), stops.tolist())))


def stream_column(name: str, array: pa.Array, rows: Array) -> StreamColumn:
    """The rows of all records one after the other -> a column of their streams. Text leaves as plain string."""
    array = plain(array)
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    null_counts, validity = _validity(valid, rows)
    if pa.types.is_large_string(array.type) or pa.types.is_large_binary(array.type):
        kind = pa.string() if pa.types.is_large_string(array.type) else pa.binary()
        return StreamColumn(pa.field(name, kind), null_counts, (validity, *_text(name, array, rows)))
    if pa.types.is_boolean(array.type):
        values = _bits(array.fill_null(False).to_numpy(zero_copy_only=False), rows)
    else:
        values = cut(_fixed(array, valid), rows * (array.type.bit_width // 8))
    return StreamColumn(pa.field(name, array.type), null_counts, (validity, values))


def plain(array: pa.Array) -> pa.Array:
    """Dictionaries decoded; text with 64-bit offsets, which the rows of many records may need."""
    if pa.types.is_dictionary(array.type):
        return plain(array.dictionary).take(array.indices)
    if pa.types.is_string(array.type):
        return array.cast(pa.large_string())
    return array.cast(pa.large_binary()) if pa.types.is_binary(array.type) else array


def no_nulls(records: int) -> Pieces:
    """The validity of a column without nulls: no bytes."""
    return Pieces(np.zeros(records, "i8"), repeat(b"", records))


def _validity(valid: Array | None, rows: Array) -> tuple[Array, Pieces]:
    """(nulls of each record, its bitmap): a record without nulls has none, whatever its neighbours have."""
    if valid is None:
        return np.zeros(len(rows), "i8"), no_nulls(len(rows))
    null_counts = np.add.reduceat(~valid, np.cumsum(rows) - rows, dtype="i8")
    bits = _bits(valid, rows)
    pieces = (piece if nulls else b"" for piece, nulls in zip(bits.pieces, null_counts.tolist(), strict=True))
    return null_counts, Pieces(np.where(null_counts, bits.sizes, 0), pieces)


def _bits(flags: Array, rows: Array) -> Pieces:
    """One bit per row; every record begins at a byte."""
    sizes = -(-rows // 8)
    shift = np.cumsum(sizes * 8 - rows) - (sizes * 8 - rows)
    spread = np.zeros(int(sizes.sum()) * 8, bool)
    spread[np.arange(len(flags)) + np.repeat(shift, rows)] = flags
    return cut(np.packbits(spread, bitorder="little"), sizes)


def _fixed(array: pa.Array, valid: Array | None) -> Array:
    """The bytes of the values, zero under a null: Arrow leaves those undefined, and output must not be."""
    width = array.type.bit_width // 8
    data = np.frombuffer(array.buffers()[1], "u1")[array.offset * width : (array.offset + len(array)) * width]
    if valid is not None:
        data = data.copy()
        data.reshape(-1, width)[~valid] = 0
    return data


def _text(name: str, array: pa.Array, rows: Array) -> Iterator[Pieces]:
    """Offsets, which in every record begin at 0, and the bytes."""
    array = array.fill_null("" if array.type == "large_string" else b"")  # a null has no bytes
    _, offset_buffer, data = array.buffers()
    offsets = np.frombuffer(offset_buffer, "i8")[array.offset :][: len(array) + 1]
    bounds = offsets[np.concatenate([[0], np.cumsum(rows)])]
    sizes = np.diff(bounds)
    refuse_larger(name, int(sizes.max()))
    own = offsets[np.arange(len(array) + len(rows)) - np.repeat(np.arange(len(rows)), rows + 1)]
    yield cut((own - np.repeat(bounds[:-1], rows + 1)).astype("i4"), rows + 1)
    yield cut(np.frombuffer(data or b"", "u1")[int(bounds[0]) : int(bounds[-1])], sizes)


def refuse_larger(name: str, size: int) -> None:
    if size > MOST_BYTES:
        raise InputError(
            f"one record has {size:,} bytes in column {name!r}; Arrow's offsets count to {MOST_BYTES:,}",
            next_step="cut the records shorter",
        )
