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
from functools import cache
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, InputError, OutputError
from penstock.shards import arrow as pa
from penstock.shards.foreign import arrow_stream
from penstock.shards.foreign.arrow_stream import Array, Pieces

FORMAT = "arrayrecord"
MEASUREMENTS = "measurements"
_FACTS = ("src_id", MEASUREMENTS, "n_measurements", "time_span_seconds", "first_timestamp", "last_timestamp")


def refuse_unfit(schema: pa.Schema, by: tuple[str, ...], order: tuple[str, ...]) -> None:
    """Refuse a job whose rows this format cannot hold; `schema` is that of the rows before they are grouped."""
    library()
    if len(by) != 1:
        raise _unfit(f"takes one key, this job groups by {', '.join(by) or 'none'}", "name one column of text")
    kind = schema.field(by[0]).type
    if str(kind.value_type if pa.types.is_dictionary(kind) else kind) not in ("string", "large_string"):
        raise _unfit(f"takes a key of type string; {by[0]!r} is {kind}", "make it text in a stage before")
    times = schema.field(order[0]).type if order else None
    if times is None or not pa.types.is_timestamp(times):
        found = f"{order[0]!r} is {times}" if order else "this job names no order"
        raise _unfit(f"orders events by a timestamp first; {found}", "order by such a column")
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
    is_a = pa.types
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
    if not batch.num_rows:
        return iter(())
    keys = arrow_stream.plain(batch.column(key))
    lists = {name: batch.column(name) for name in batch.schema.names if name != key}
    rows = _event_counts(lists)
    times = _microseconds(order, lists.pop(order).flatten())
    _refuse_nulls(key, keys, order, times, rows)
    repeated = keys.take(pa.array(np.repeat(np.arange(len(rows)), rows)))
    events = [
        arrow_stream.stream_column(order, times, rows),
        arrow_stream.stream_column(key, repeated, rows),
        *(arrow_stream.stream_column(name, array.flatten(), rows) for name, array in lists.items()),
    ]
    return map(
        bytes, _with_facts(arrow_stream.streams(events, rows), keys, times.view(pa.int64()).to_numpy(), rows).pieces
    )


def _with_facts(measurements: Pieces, keys: pa.Array, times: Array, rows: Array) -> Pieces:
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
    arrow_stream.refuse_larger(MEASUREMENTS, int(measurements.sizes.max()))
    offsets = np.stack([np.zeros_like(rows), measurements.sizes], 1).astype("i4")
    buffers = (arrow_stream.no_nulls(len(rows)), arrow_stream.cut(offsets.reshape(-1), 2 * once), measurements)
    names = [name for name in _FACTS if name != MEASUREMENTS]
    columns = [arrow_stream.stream_column(name, fact, once) for name, fact in zip(names, facts, strict=True)]
    columns.insert(1, arrow_stream.StreamColumn(pa.field(MEASUREMENTS, pa.binary()), 0 * once, buffers))
    return arrow_stream.streams(columns, once)


def source_id(key: str) -> int:
    return int(hashlib.md5(key.encode(), usedforsecurity=False).hexdigest()[:15], 16)


def _event_counts(lists: dict[str, pa.Array]) -> Array:
    """Events of each record; at least one, and as many in every column."""
    counts = [array.value_lengths().fill_null(0).to_numpy() for array in lists.values()]
    if any((each != counts[0]).any() for each in counts) or (counts[0] < 1).any():
        raise ValueError(f"columns {', '.join(lists)} do not hold the same events: {counts}")
    return np.asarray(counts[0], "i8")


def _refuse_nulls(key: str, keys: pa.Array, order: str, times: pa.Array, rows: Array) -> None:
    if not times.null_count and not keys.null_count:
        return
    name, array = (order, times) if times.null_count else (key, keys)
    place = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
    record = int(np.searchsorted(np.cumsum(rows), place, side="right")) if name == order else place
    events = f"{array.null_count:,} such events" if name == order else f"{rows[record]:,} events"
    raise InputError(
        f"a record without {name!r}: every event of the arrayrecord format has one",
        where=f"{key} {keys[record].as_py()!r}, record {record:,} of {len(rows):,} in its batch, {events}",
        next_step=f"filter such rows out before `group`: `- filter: {name} is not null`",
    )


def _microseconds(name: str, times: pa.Array) -> pa.Array:
    """Without a zone: the instant in UTC."""
    try:
        return times.cast(pa.timestamp("us", times.type.tz)).view(pa.timestamp("us"))
    except pa.ArrowInvalid as error:
        raise InputError(
            f"column {name!r} has a time that does not fit into microseconds: {error}",
            next_step=f"cut it to microseconds before `group`: `- cast: {{columns: {{{name}: 'timestamp[us]'}}, "
            "lossy: true}`, or leave `format:` out",
        ) from error


def decode_record(data: bytes, where: str) -> dict[str, Any]:
    """One record as numpy scalars and arrays; text as object arrays, nulls masked."""
    facts, events = _open(data, where)
    alone = {name: facts.column(name) for name in facts.column_names}
    record = {name: None if column.null_count else _values(column)[0] for name, column in alone.items()}
    return record | {name: _values(events.column(name)) for name in events.column_names}


def decode_batch(records: list[bytes], path: str, first: int, like: pa.Schema | None = None) -> pa.RecordBatch:
    """Records of a file from number `first` on as Arrow: their facts, and a list for each column of their events.

    All have events of the same columns, which are those of `like`, the schema of an earlier batch, if there is one.
    """
    opened = [_open(data, f"{path}, record {first + number:,}") for number, data in enumerate(records)]
    columns = {field.name: field.type.value_type for field in like or () if field.name not in _FACTS}
    columns = columns or _columns(opened[0][1].schema)
    for number, schema in enumerate(events.schema for _, events in opened):
        same = number > 0 and schema.equals(opened[0][1].schema)
        if not same and list(_columns(schema).items()) != list(columns.items()):
            raise _unlike(columns, _columns(schema), f"{path}, record {first + number:,}")
    try:
        offsets = pa.array(np.cumsum([0, *(len(events) for _, events in opened)]), pa.int32())
        arrays = _joined([facts for facts, _ in opened])
        arrays += [pa.ListArray.from_arrays(offsets, array) for array in _joined([events for _, events in opened])]
    except pa.ArrowException as error:  # more than Arrow's offsets can count
        raise OutputError(
            f"{len(records):,} records do not fit into one table: {error}",
            where=f"{path}, records {first:,} to {first + len(records) - 1:,}",
            next_step="take fewer at a time, or one by one: dataset[i]",
        ) from error
    return pa.RecordBatch.from_arrays(arrays, [*facts_schema().names, *columns])


def facts_schema() -> pa.Schema:
    """The schema of a file without records."""
    return _record_schema().remove(_FACTS.index(MEASUREMENTS))


@cache
def _record_schema() -> pa.Schema:
    kinds = [pa.int64(), pa.binary(), pa.int32(), pa.float64(), pa.timestamp("us"), pa.timestamp("us")]
    return pa.schema(list(zip(_FACTS, kinds, strict=True)))


def _open(data: bytes, where: str) -> tuple[pa.Table, pa.Table]:
    """(facts without the measurements, events). Any program may have written them: all is checked, for 25 us."""
    broken = (pa.ArrowException, OSError, UnicodeDecodeError)  # the last: names of columns
    try:
        facts = pa.ipc.open_stream(data).read_all()
        facts.validate(full=True)
        shaped = (facts.schema.equals(_record_schema()) or tuple(facts.column_names) == _FACTS) and len(facts) == 1
    except broken:
        shaped = False
    if not shaped:
        raise _foreign(f"is not an Arrow stream of {', '.join(_FACTS)}: it starts with {data[:16]!r}", where)
    if not facts.schema.equals(_record_schema()):
        for name, found, kind in zip(_FACTS, facts.schema.types, _record_schema().types, strict=True):
            if found != kind:
                raise _foreign(f"has {name} of type {found}, and the format {kind}", where)
    measurements = facts.column(MEASUREMENTS)[0].as_buffer() or b""
    try:
        events = pa.ipc.open_stream(measurements).read_all()
        events.validate(full=True)
        names = [*_FACTS, *events.column_names]
    except broken as error:
        raise _foreign(f"has {MEASUREMENTS} that are no sound Arrow stream: {error}", where) from error
    if len(set(names)) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        raise _foreign(f"has more than one column {', '.join(repeated)}", where)
    _refuse_contradiction(facts, len(events), where)
    return facts.drop_columns(MEASUREMENTS), events


def _refuse_contradiction(facts: pa.Table, events: int, where: str) -> None:
    told = facts.column("n_measurements")[0].as_py()
    for name, column in zip(_FACTS, facts.columns, strict=True):
        if column.null_count and (told != 0 or name == "src_id"):  # no events, no first time
            raise _foreign(f"has no {name}: it is null", where)
    if told != events:
        raise _foreign(f"has an n_measurements of {told:,}, and {events:,} events", where)


def _foreign(reason: str, where: str) -> OutputError:
    next_step = "read it with the program that wrote it, for example array_record's own reader"
    return OutputError(f"this record {reason}", where=where, next_step=next_step)


def _columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    return dict(zip(schema.names, schema.types, strict=True))


def _unlike(before: dict[str, pa.DataType], found: dict[str, pa.DataType], where: str) -> OutputError:
    one, other = (", ".join(f"{name}: {kind}" for name, kind in each.items()) for each in (found, before))
    return OutputError(
        f"the events of this record have other columns than the records before it: {one}, not {other}",
        where=where,
        next_step="open files with equal columns together; read such records one by one: dataset[i]",
    )


def _joined(tables: list[pa.Table]) -> list[pa.Array]:
    """The columns of all tables, which have the same: concat_tables would also have `not null` alike."""
    return [
        pa.chunked_array([chunk for table in tables for chunk in table.column(place).chunks], kind).combine_chunks()
        for place, kind in enumerate(tables[0].schema.types)
    ]


def _values(column: pa.ChunkedArray) -> Array:
    array, kind = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks(), column.type
    if pa.types.is_time(kind):  # as the native format gives it
        array = array.view(f"int{kind.bit_width}").cast(pa.int64()).view(pa.duration(kind.unit))
    if not (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)) or pa.types.is_interval(kind):
        return np.array([*array.to_pylist(), None], object)[:-1]  # numpy would make a table of equal-long bytes
    if not array.null_count:
        return np.asarray(array.to_numpy(zero_copy_only=False))
    filled = array.fill_null(pa.scalar(False if pa.types.is_boolean(kind) else 0, array.type))
    return np.ma.MaskedArray(filled.to_numpy(zero_copy_only=False), array.is_null().to_numpy(zero_copy_only=False))
