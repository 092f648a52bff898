"""Event record: the measurements of one key, in order of time -> the bytes of the older system's ArrayRecord records.

A record is an Arrow IPC stream of one row; its `measurements` is an IPC stream itself. The two baselines share it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

MEASUREMENT = pa.schema(
    [
        ("event_time", pa.timestamp("us")),
        ("src_addr", pa.string()),
        ("dst_addr", pa.string()),
        ("ip_version", pa.int8()),
        ("rtt", pa.float32()),
    ]
)
RECORD = pa.schema(
    [
        ("src_id", pa.int64()),
        ("measurements", pa.binary()),
        ("n_measurements", pa.int32()),
        ("time_span_seconds", pa.float64()),
        ("first_timestamp", pa.timestamp("us")),
        ("last_timestamp", pa.timestamp("us")),
    ]
)
WRITER_OPTIONS = "group_size:1"
MAX_RECORD_BYTES = 8 * 2**20


def records_of_dicts(rows: list[dict[str, Any]]) -> Iterator[bytes]:
    """`rows` as Python objects, as `fetchall` and `to_pylist` give them."""
    yield from records_of_batch(pa.RecordBatch.from_pylist(rows, schema=MEASUREMENT))


def records_of_batch(rows: pa.RecordBatch) -> Iterator[bytes]:
    """One record, or more of equal lengths where one would be above MAX_RECORD_BYTES."""
    encoded = _ipc_stream(rows)
    if len(encoded) <= MAX_RECORD_BYTES:
        yield _record(rows, encoded)
        return
    parts = int(len(encoded) / (0.95 * MAX_RECORD_BYTES)) + 1  # rows differ in size by a few bytes: leave them room
    length = -(-rows.num_rows // parts)
    for start in range(0, rows.num_rows, length):
        part = rows.slice(start, length)
        yield _record(part, _ipc_stream(part))


def decode_record(encoded: bytes) -> tuple[dict[str, Any], pa.Table]:
    """The facts of a record, and its measurements."""
    (facts,) = pa.ipc.open_stream(encoded).read_all().to_pylist()
    return facts, pa.ipc.open_stream(facts.pop("measurements")).read_all()


def sorted_by_time(rows: pa.RecordBatch) -> pa.RecordBatch:
    return rows.take(pc.sort_indices(rows["event_time"]))


def source_id(address: str) -> int:
    """60 bits of the address's MD5."""
    return int(hashlib.md5(address.encode()).hexdigest()[:15], 16)


def _record(rows: pa.RecordBatch, encoded: bytes) -> bytes:
    times = rows["event_time"]
    first, last = times[0].as_py(), times[-1].as_py()
    facts = {
        "src_id": source_id(rows["src_addr"][0].as_py()),
        "measurements": encoded,
        "n_measurements": rows.num_rows,
        "time_span_seconds": (last - first).total_seconds(),
        "first_timestamp": first,
        "last_timestamp": last,
    }
    return _ipc_stream(pa.RecordBatch.from_pylist([facts], schema=RECORD))


def _ipc_stream(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    return sink.getvalue().to_pybytes()
