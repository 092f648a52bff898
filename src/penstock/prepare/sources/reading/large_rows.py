"""Large rows: each has a batch of its own, is set aside where memory has no room for it, or shortened for a look.

A plan must not take longer, nor the driver hold more, because the first document of the input is a giant.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.budget.room import LARGE_ROW
from penstock.prepare.rows.layouts import plain_batch
from penstock.prepare.rows.rows import Array, Rows, SetAside
from penstock.prepare.sources import Reading
from penstock.prepare.sources.reading.bad_records import TOO_LARGE_RECORD
from penstock.prepare.sources.reading.bad_text import as_binary, sound_text
from penstock.prepare.sources.slices import Segment

MOST_GROWTH = 16  # times its size, to which a batch may decode if the file stores text once for many rows


def is_bytes(kind: pa.DataType) -> bool:
    is_a = pa.types
    return any(ask(kind) for ask in (is_a.is_string, is_a.is_large_string, is_a.is_binary, is_a.is_large_binary))


def sound_rows(batch: pa.RecordBatch, ordinal: int, segment: Segment, reading: Reading) -> Iterator[Rows]:
    """The batch as Rows from `ordinal` on: large ones apart, and none whose text is not UTF-8."""
    plain = plain_batch(batch)
    rows = Rows(plain, segment.source, (segment.path,), np.arange(ordinal, ordinal + plain.num_rows))
    for part in apart(rows, segment, reading.most_row_bytes):
        yield sound_text(part, reading.repairs(segment))


def apart(rows: Rows, segment: Segment, most_bytes: int) -> Iterator[Rows]:
    """The rows in order, each large one in a batch of its own: a stage that leaves out a row copies its batch.

    Rows with more than `most_bytes` of text are set aside. Their text is not kept: there is no room for it.
    """
    if rows.batch.nbytes <= min(LARGE_ROW, most_bytes):
        yield rows
        return
    sizes = _text_bytes(rows.batch)
    large = np.flatnonzero(sizes > min(LARGE_ROW, most_bytes))
    for start, stop in pairwise(np.unique([0, *large, *(large + 1), len(rows)]).tolist()):
        part = replace(rows, batch=rows.batch.slice(start, stop - start), ordinals=rows.ordinals[start:stop])
        if sizes[start] > most_bytes:
            aside = too_large(segment, int(part.ordinals[0]), int(sizes[start]), most_bytes)
            part = replace(part, batch=part.batch.slice(0, 0), ordinals=part.ordinals[:0], set_aside=(aside,))
        yield part


def _text_bytes(batch: pa.RecordBatch) -> Array:
    """Bytes of text in each row."""
    sizes = np.zeros(batch.num_rows, "i8")
    for array in batch.columns:
        if is_bytes(array.type):
            sizes += np.asarray(pc.binary_length(array).fill_null(0))
    return sizes


def too_large(segment: Segment, ordinal: int, size: int, most_bytes: int) -> SetAside:
    detail = f"its text has {size:,} bytes, and this memory allows a row of {most_bytes:,}"
    return segment.set_aside(ordinal, TOO_LARGE_RECORD, detail=detail)


def is_giant(batch: pa.RecordBatch) -> bool:
    """Whether it holds a row that is larger than any batch was asked to be."""
    return bool(batch.nbytes > LARGE_ROW)


def shortened(batch: pa.RecordBatch, most_bytes: int) -> pa.RecordBatch:
    """At most about `most_bytes` of text."""
    room = max(1, most_bytes // batch.num_rows // batch.num_columns)
    arrays = [_beginnings(array, room) if is_bytes(array.type) else array for array in batch.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=batch.schema)


def _beginnings(array: pa.Array, room: int) -> pa.Array:
    values = pc.binary_slice(as_binary(array), 0, room)
    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        return values
    # A cut may have gone through a character.
    texts = (None if value is None else value.decode(errors="ignore") for value in values.to_pylist())
    return pa.array(texts, array.type)
