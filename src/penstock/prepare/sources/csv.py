"""CSV and TSV: a header line, then rows. Types come from the first megabyte of the first file, or from `types:`."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.csv as arrow_csv

from penstock.base.errors import InputError
from penstock.prepare.rows import Rows
from penstock.prepare.slices import Segment
from penstock.prepare.sources import File, FileSurvey, Reading, SourceOptions
from penstock.prepare.sources.text import (
    head_of,
    parse_chunk,
    pieces_of,
    plain_type,
    read_chunks,
    record_ends,
)
from penstock.shards.schema import parse_type, type_to_arrow

_SAMPLE_BYTES = 1 << 20


@dataclass(frozen=True)
class _Dialect:
    names: list[str]
    header_bytes: int
    delimiter: str
    quoted: bool
    null_values: list[str]


def survey(file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
    sample = head_of(file, _SAMPLE_BYTES)
    dialect = _dialect(sample, file.location, options)
    declared = {name: type_to_arrow(parse_type(word)) for name, word in options.types.items()}
    inferred = _infer(sample[dialect.header_bytes :], dialect, declared, file)
    schema = pa.schema([(field.name, declared.get(field.name, plain_type(field.type))) for field in inferred])
    return FileSurvey(schema, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))


def _dialect(sample: bytes, location: str, options: SourceOptions) -> _Dialect:
    ends = record_ends(sample, options.newlines_in_values)
    if not len(ends):
        raise InputError(
            "the file is empty: not even a header line",
            where=location,
            next_step="remove it, or set `on_bad_input: set_aside` to go on without it",
        )
    delimiter = options.delimiter or ("\t" if ".tsv" in location.lower() else ",")
    try:
        header = arrow_csv.read_csv(
            io.BytesIO(sample[: ends[0]].removeprefix(b"\xef\xbb\xbf")),
            parse_options=arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
        )
    except pa.ArrowException as error:
        raise InputError(f"its header line cannot be read: {error}", where=f"{location}, line 1") from error
    names = header.schema.names
    return _Dialect(names, int(ends[0]), delimiter, options.newlines_in_values, list(options.null_values))


def _infer(body: bytes, dialect: _Dialect, declared: dict[str, pa.DataType], file: File) -> pa.Schema:
    if not body.strip():
        return pa.schema([(name, declared.get(name, pa.null())) for name in dialect.names])
    try:
        return _parse(memoryview(body), dialect, declared, dialect.names).schema
    except pa.ArrowException:
        pass  # a bad row in the sample: it is left for the reading to report
    expected = len(dialect.names)
    rows = [row for row in body.splitlines() if row.count(dialect.delimiter.encode()) == expected - 1]
    try:
        return _parse(memoryview(b"\n".join(rows)), dialect, declared, dialect.names).schema
    except pa.ArrowException as error:
        raise InputError(
            f"cannot tell the types from the first {len(body):,} bytes: {error}",
            where=file.location,
            next_step="declare them: input: {path: ..., types: {column: int64, ...}}",
        ) from error


def read(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows]:
    if excluded:  # it has one part, the whole file
        return
    options = reading.options[segment.source]
    file = File(segment.source, segment.path, segment.location, "csv")
    dialect = _dialect(head_of(file, _SAMPLE_BYTES), segment.location, options)
    wanted = pa.schema([reading.schema.field(name) for name in reading.columns])
    types = {field.name: field.type for field in wanted}
    ordinal = segment.ordinal
    for chunk in read_chunks(segment, reading.bytes_at_once, dialect.quoted):
        rows = parse_chunk(
            chunk,
            segment,
            ordinal,
            lambda data: _parse(data, dialect, types, wanted.names),
            dialect.quoted,
            wanted,
        )
        yield rows
        ordinal += len(rows) + sum(aside.count for aside in rows.set_aside)


def _parse(data: memoryview, dialect: _Dialect, types: dict[str, pa.DataType], columns: list[str]) -> pa.RecordBatch:
    table = arrow_csv.read_csv(
        io.BytesIO(data),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=dialect.names),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.delimiter, newlines_in_values=dialect.quoted, ignore_empty_lines=True
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types, include_columns=columns, null_values=dialect.null_values
        ),
    ).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
