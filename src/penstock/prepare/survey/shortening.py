"""Shortening: a batch with giant texts -> the same rows with the beginning of each text, for a look at the first rows.

A plan must not take longer, nor the driver hold more, because the first document of the input is a giant.
"""

import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.budget.room import LARGE_ROW
from penstock.prepare.sources.reading.bad_text import as_binary
from penstock.prepare.sources.reading.large_rows import is_bytes


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
