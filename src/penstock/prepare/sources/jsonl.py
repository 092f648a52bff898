"""JSONL: one JSON object a line. Types come from the first megabyte of the first file, or from `types:`."""

from __future__ import annotations

import io
import json as python_json
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.json as arrow_json

from penstock.base.errors import InputError
from penstock.prepare.rows import Rows
from penstock.prepare.slices import Segment
from penstock.prepare.sources import File, FileSurvey, Reading, SourceOptions
from penstock.prepare.sources.text import head_of, parse_chunk, pieces_of, plain_type, read_chunks
from penstock.shards.schema import parse_type, type_to_arrow

_SAMPLE_BYTES = 1 << 20


def survey(file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
    declared = {name: type_to_arrow(parse_type(word)) for name, word in options.types.items()}
    sample = head_of(file, _SAMPLE_BYTES)
    inferred = _infer(sample, file) if sample.strip() else pa.schema([])
    fields = {field.name: plain_type(field.type) for field in inferred} | declared
    return FileSurvey(pa.schema(list(fields.items())), pieces_of(file, 0, slice_bytes, whole=False))


def _infer(sample: bytes, file: File) -> pa.Schema:
    """Bad lines are left for the reading to report; only a sample with no good line is an error here."""
    try:
        return _parse(memoryview(sample), None, "infer").schema
    except pa.ArrowException:
        lines = [line for line in sample.splitlines() if _is_object(line)]
    try:
        return _parse(memoryview(b"\n".join(lines)), None, "infer").schema
    except pa.ArrowException as error:
        raise InputError(
            f"cannot tell the columns from the first {len(sample):,} bytes: {error}",
            where=file.location,
            next_step="declare them: input: {path: ..., types: {column: int64, ...}}",
        ) from error


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(python_json.loads(line), dict)
    except ValueError:
        return False


def read(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows]:
    if excluded:  # it has one part, the whole file
        return
    wanted = pa.schema([reading.schema.field(name) for name in reading.columns])
    explicit = reading.schema if reading.strict else wanted
    behaviour = "error" if reading.strict else "ignore"
    ordinal = segment.ordinal
    for chunk in read_chunks(segment, reading.bytes_at_once, quoted=False):
        rows = parse_chunk(
            chunk,
            segment,
            ordinal,
            lambda data: _parse(data, explicit, behaviour).select(wanted.names),
            quoted=False,
            schema=wanted,
        )
        yield rows
        ordinal += len(rows) + sum(aside.count for aside in rows.set_aside)


def _parse(data: memoryview, schema: pa.Schema | None, unexpected: str) -> pa.RecordBatch:
    table = arrow_json.read_json(
        io.BytesIO(data),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    ).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
