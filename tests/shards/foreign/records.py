"""Records as another program might write them into an .arrayrecord file, sound or not."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from array_record.python.array_record_module import ArrayRecordWriter

MOMENT = datetime(2024, 5, 6, 7, 8, 9)
TWO = {
    "event_time": pa.array([MOMENT, MOMENT], pa.timestamp("us")),
    "src_addr": pa.array(["k", "k"]),
    "rtt": pa.array([0.5, 1.5], pa.float32()),
}
_KINDS = {
    "src_id": pa.int64(),
    "measurements": pa.binary(),
    "n_measurements": pa.int32(),
    "time_span_seconds": pa.float64(),
    "first_timestamp": pa.timestamp("us"),
    "last_timestamp": pa.timestamp("us"),
}


def foreign(
    events: dict[str, pa.Array] | None = None, batches: int = 1, schema: pa.Schema | None = None, **facts: Any
) -> bytes:
    """A record of two events, or of `events`; facts may be others, a text also of another type."""
    inner = pa.RecordBatch.from_pydict(events or TWO, schema=schema)
    values = {
        "src_id": 7,
        "measurements": stream(inner, batches),
        "n_measurements": 2,
        "time_span_seconds": 0.0,
        "first_timestamp": MOMENT,
        "last_timestamp": MOMENT,
        **facts,
    }
    arrays = {
        name: pa.array([values[name]], pa.string() if isinstance(values[name], str) else kind)
        for name, kind in _KINDS.items()
    }
    return stream(pa.RecordBatch.from_pydict(arrays))


def stream(batch: pa.RecordBatch, batches: int = 1) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue().to_pybytes()


def broken_text(name: str = "k", data: bytes | None = None) -> bytes:
    """Two events the first of whose texts ends beyond the bytes; or with `data`, bytes that are no text."""
    offsets = [0, 1, 2] if data else [0, 1_000_000, 2]
    buffers = [None, pa.py_buffer(np.array(offsets, "i4").tobytes()), pa.py_buffer(data or b"kk")]
    return stream(pa.RecordBatch.from_pydict({**TWO, name: pa.Array.from_buffers(pa.string(), 2, buffers)}))


def write_records(path: Path, records: list[bytes]) -> str:
    writer = ArrayRecordWriter(str(path), "group_size:1")
    for record in records:
        writer.write(record)
    writer.close()
    return str(path)
