"""ArrayRecord: all events of one key as the record that existing readers expect: a one-row Arrow IPC stream.

| column | type | what |
|---|---|---|
| src_id | int64 | the first 15 hex digits of the key's md5 |
| measurements | binary | an IPC stream with the events: time, key, then the other columns |
| n_measurements | int32 | how many |
| time_span_seconds | float64 | from the first to the last |
| first_timestamp, last_timestamp | timestamp[us] | |

Encode and decode sit one above the other. Next: arrayrecord_file.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.base.errors import ConfigError, InputError, OutputError
from penstock.shards.arrow_stream import (
    Array,
    Pieces,
    StreamColumn,
    cut,
    no_nulls,
    plain,
    refuse_larger,
    stream_column,
    streams,
)

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT = "arrayrecord"
MEASUREMENTS = "measurements"
_FACTS = ("src_id", MEASUREMENTS, "n_measurements", "time_span_seconds", "first_timestamp", "last_timestamp")
_UNITS = ("s", "ms", "us")  # those that microseconds hold exactly


def refuse_unfit(schema: pa.Schema, by: tuple[str, ...], order: tuple[str, ...]) -> None:
    """Refuse a job whose rows this format cannot hold; `schema` is that of the rows before they are grouped."""
    import pyarrow as pa

    library()
    if len(by) != 1:
        raise _unfit(f"takes one key, this job groups by {', '.join(by) or 'none'}", "name one column of text")
    kind = schema.field(by[0]).type
    if str(kind.value_type if pa.types.is_dictionary(kind) else kind) not in ("string", "large_string"):
        raise _unfit(f"takes a key of type string; {by[0]!r} is {kind}", "make it text in a stage before")
    times = schema.field(order[0]).type if order else None
    if times is None or not pa.types.is_timestamp(times) or times.unit not in _UNITS:
        found = f"{order[0]!r} is {times}" if order else "this job names no order"
        raise _unfit(f"orders events by a timestamp[s], [ms] or [us] first; {found}", "order by such a column")
    for field in schema:
        if not _holds(field.type):
            raise _unfit(f"cannot hold column {field.name!r} of type {field.type}", "leave it out with `select:`")
        if field.name in _FACTS:
            raise _unfit(f"has a column {field.name!r} of its own", "rename yours with `select: {new_name: old_name}`")


def library() -> Any:
    """The module of array_record that reads and writes; the package around it needs more to import."""
    try:
        from array_record.python import array_record_module
    except ImportError as error:
        raise ConfigError(
            f"the arrayrecord format needs the package array_record, which cannot be imported: {error}",
            where="format: arrayrecord",
            next_step="pip install 'penstock[arrayrecord]'",
        ) from error
    return array_record_module


def _unfit(reason: str, next_step: str) -> ConfigError:
    native = "or leave `format:` out: the native format holds it"
    return ConfigError(
        f"the arrayrecord format {reason}", where="format: arrayrecord", next_step=f"{next_step}, {native}"
    )


def _holds(kind: pa.DataType) -> bool:
    import pyarrow.types as is_a

    if is_a.is_dictionary(kind):
        return _holds(kind.value_type)
    text = is_a.is_string(kind) or is_a.is_large_string(kind) or is_a.is_binary(kind) or is_a.is_large_binary(kind)
    fixed = is_a.is_primitive(kind) or is_a.is_decimal(kind) or is_a.is_fixed_size_binary(kind)
    return bool(text or fixed)


def encode_records(batch: pa.RecordBatch, key: str, order: str) -> Iterator[bytes]:
    """Records of the native format (the key a text, every other column a list) -> one stream of bytes each.

    The bytes depend on the record alone, not on its neighbours in the batch. 1 ms a batch, 7 us a record and 30 ns an
    event: give it hundreds of records at a time.
    """
    import pyarrow as pa

    if not batch.num_rows:
        return iter(())
    keys = plain(batch.column(key))
    lists = {name: batch.column(name) for name in batch.schema.names if name != key}
    rows = _event_counts(lists)
    times = _microseconds(order, lists.pop(order).flatten())
    if times.null_count or keys.null_count:
        raise InputError(
            f"a record without {order if times.null_count else key!r}: every event of the arrayrecord format has one",
            next_step=f"keep such rows out: `filter: {order if times.null_count else key} is not null`",
        )
    repeated = keys.take(pa.array(np.repeat(np.arange(len(rows)), rows)))
    events = [
        stream_column(order, times, rows),
        stream_column(key, repeated, rows),
        *(stream_column(name, array.flatten(), rows) for name, array in lists.items()),
    ]
    return map(bytes, _with_facts(streams(events, rows), keys, times.view(pa.int64()).to_numpy(), rows).pieces)


def _with_facts(measurements: Pieces, keys: pa.Array, times: Array, rows: Array) -> Pieces:
    import pyarrow as pa

    once = np.ones(len(rows), "i8")
    stops = np.cumsum(rows)
    first, last = times[stops - rows], times[stops - 1]
    facts = [
        pa.array(map(source_id, keys.to_pylist()), pa.int64()),
        pa.array(rows, pa.int32()),
        pa.array((last - first) / 1e6, pa.float64()),
        pa.array(first).view(pa.timestamp("us")),
        pa.array(last).view(pa.timestamp("us")),
    ]
    refuse_larger(MEASUREMENTS, int(measurements.sizes.max()))
    offsets = np.stack([np.zeros_like(rows), measurements.sizes], 1).astype("i4")
    buffers = (no_nulls(len(rows)), cut(offsets.reshape(-1), 2 * once), measurements)
    names = [name for name in _FACTS if name != MEASUREMENTS]
    columns = [stream_column(name, fact, once) for name, fact in zip(names, facts, strict=True)]
    columns.insert(1, StreamColumn(pa.field(MEASUREMENTS, pa.binary()), 0 * once, buffers))
    return streams(columns, once)


def source_id(key: str) -> int:
    return int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()[:15], 16)


def _event_counts(lists: dict[str, pa.Array]) -> Array:
    """Events of each record; at least one, and as many in every column."""
    counts = [array.value_lengths().fill_null(0).to_numpy() for array in lists.values()]
    if any((each != counts[0]).any() for each in counts) or (counts[0] < 1).any():
        raise ValueError(f"columns {', '.join(lists)} do not hold the same events: {counts}")
    return np.asarray(counts[0], "i8")


def _microseconds(name: str, times: pa.Array) -> pa.Array:
    """Without a zone: the instant in UTC."""
    import pyarrow as pa

    try:
        return times.cast(pa.timestamp("us", times.type.tz)).view(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise InputError(f"column {name!r} has a time that microseconds cannot count: {error}") from error


def decode_record(data: bytes, where: str) -> dict[str, Any]:
    """One record as numpy scalars and arrays; text as object arrays, nulls masked."""
    facts, events = _open(data, where)
    alone = {name: facts.column(name) for name in facts.column_names if name != MEASUREMENTS}
    record = {name: None if column.null_count else _values(column)[0] for name, column in alone.items()}
    return record | {name: _values(events.column(name)) for name in events.column_names}


def decode_batch(records: list[bytes], where: str) -> pa.RecordBatch:
    """Records as Arrow: their facts, and a list column for each column of their events."""
    import pyarrow as pa

    opened = [_open(data, where) for data in records]
    facts = pa.concat_tables([facts for facts, _ in opened]).drop_columns(MEASUREMENTS).combine_chunks()
    events = pa.concat_tables([events for _, events in opened]).combine_chunks()
    offsets = pa.array(np.cumsum([0, *(len(each) for _, each in opened)]), pa.int32())
    lists = [pa.ListArray.from_arrays(offsets, _one_array(column)) for column in events.columns]
    arrays = [_one_array(column) for column in facts.columns] + lists
    return pa.RecordBatch.from_arrays(arrays, facts.column_names + events.column_names)


def facts_schema() -> pa.Schema:
    """What is known of a file without records."""
    import pyarrow as pa

    kinds = [pa.int64(), pa.int32(), pa.float64(), pa.timestamp("us"), pa.timestamp("us")]
    return pa.schema(list(zip((name for name in _FACTS if name != MEASUREMENTS), kinds, strict=True)))


def _open(data: bytes, where: str) -> tuple[pa.Table, pa.Table]:
    import pyarrow as pa

    try:
        facts = pa.ipc.open_stream(data).read_all()
        if tuple(facts.column_names) == _FACTS and len(facts) == 1:
            return facts, pa.ipc.open_stream(facts.column(MEASUREMENTS)[0].as_buffer()).read_all()
    except (pa.ArrowException, OSError, TypeError, AttributeError):  # the last two: no measurements, or no bytes
        pass
    raise OutputError(
        f"this record is not an Arrow stream of {', '.join(_FACTS)}: it starts with {data[:16]!r}",
        where=where,
        next_step="read it with the program that wrote it, for example array_record's own reader",
    )


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _values(column: pa.ChunkedArray) -> Array:
    import pyarrow as pa

    array, kind = _one_array(column), column.type
    if pa.types.is_time(kind):  # as the native format gives it
        array = array.view(f"int{kind.bit_width}").cast(pa.int64()).view(pa.duration(kind.unit))
    if not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
        return np.array([*array.to_pylist(), None], object)[:-1]  # numpy would make a table of equal-long bytes
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    filled = array.fill_null(pa.scalar(False if pa.types.is_boolean(kind) else 0, array.type))
    return np.ma.MaskedArray(filled.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False))
