"""Large rows: those of Parquet and Arrow with more text than memory has room for are set aside by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.prepare.rows import Rows, SetAside, rejected_line
from penstock.prepare.slices import Segment
from penstock.prepare.sources.bad_records import TOO_LARGE_RECORD


def is_bytes(kind: pa.DataType) -> bool:
    is_a = pa.types
    return any(ask(kind) for ask in (is_a.is_string, is_a.is_large_string, is_a.is_binary, is_a.is_large_binary))


def without_large_rows(rows: Rows, segment: Segment, most_bytes: int) -> Rows:
    """Set aside rows with more than `most_bytes` of text. Their text is not kept: there is no room for it."""
    if rows.batch.nbytes <= most_bytes:
        return rows
    texts = [array for array in rows.batch.columns if is_bytes(array.type)]
    sizes = np.array([sum(array.slice(row, 1).nbytes for array in texts) for row in range(len(rows))])
    if not (sizes > most_bytes).any():
        return rows
    aside = [
        too_large(segment, int(rows.ordinals[row]), int(sizes[row]), most_bytes)
        for row in np.flatnonzero(sizes > most_bytes)
    ]
    fits = sizes <= most_bytes
    return replace(
        rows,
        batch=rows.batch.filter(pa.array(fits)),
        ordinals=rows.ordinals[fits],
        set_aside=(*rows.set_aside, *aside),
    )


def too_large(segment: Segment, ordinal: int, size: int, most_bytes: int) -> SetAside:
    detail = f"its text has {size:,} bytes, and this memory allows a row of {most_bytes:,}"
    line = rejected_line(segment.source, segment.path, ordinal, TOO_LARGE_RECORD, detail=detail)
    return SetAside(TOO_LARGE_RECORD, 1, (line,))
