"""First rows: the slices of a job -> a sample of their rows, and stored bytes per row."""

from collections.abc import Iterator
from itertools import islice

import pyarrow as pa

from penstock.prepare.budget.means import give_back_memory
from penstock.prepare.sources import Reading, readable
from penstock.prepare.sources.reading.large_rows import shortened
from penstock.prepare.sources.registry import compression_of
from penstock.prepare.sources.slices import Segment, Slice

SAMPLE_ROWS = 100
SAMPLE_BYTES = 256 * 1024
_SAMPLE_FILES = 20


def first_rows(slices: tuple[Slice, ...], reading: Reading) -> tuple[pa.RecordBatch, float]:
    """(the first rows, stored bytes per row): footers count rows, a text file's first chunk tells its lines."""
    counted = [piece for piece in slices if piece.rows > 0]
    stored = sum(piece.bytes for piece in counted) / max(1, sum(piece.rows for piece in counted))
    for segments in _looked_at(slices):
        found = [rows.batch for each in segments for rows in islice(filter(len, readable(each, reading)), 1)]
        if found:
            sample = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
            return sample.slice(0, SAMPLE_ROWS), stored or _text_row_bytes(segments[0], int(sample.num_rows))
    return no_rows(reading.wanted), stored or 1.0


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows; made of arrays because Arrow makes no union from Python's values."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def beginnings_of(sample: pa.RecordBatch) -> pa.RecordBatch:
    """The sample, and no giant: what the driver holds of the first rows it holds to the end."""
    if sample.nbytes <= 2 * SAMPLE_BYTES:
        return sample
    beginnings = shortened(sample, SAMPLE_BYTES)
    del sample
    give_back_memory()
    return beginnings


def _looked_at(slices: tuple[Slice, ...]) -> Iterator[list[Segment]]:
    """Segments to take the first rows from, until there are any.

    A file that is one row may be larger than what the driver is to hold: some small ones together
    come before the others, and tables before all of them.
    """
    segments = [segment for piece in slices for segment in piece.segments]
    whole_files = [segment for segment in segments if segment.rows == 1]
    yield from ([segment] for segment in segments if segment.rows != 1)
    yield [segment for segment in whole_files if segment.bytes <= SAMPLE_BYTES][:_SAMPLE_FILES]
    yield from ([segment] for segment in sorted(whole_files, key=lambda segment: segment.bytes))


def _text_row_bytes(segment: Segment, rows: int) -> float:
    """Stored bytes per row, from the first chunk; a compressed file is taken to shrink its text to a quarter."""
    if compression_of(segment.location):
        return SAMPLE_BYTES / rows / 4
    return min(segment.bytes, SAMPLE_BYTES) / rows
