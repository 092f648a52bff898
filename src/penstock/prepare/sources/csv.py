"""CSV and TSV: a header line, then rows. Types come from the first megabyte of the first file, or from `types:`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from penstock.base.errors import InputError, did_you_mean
from penstock.prepare.rows import Rows
from penstock.prepare.slices import Segment
from penstock.prepare.sources import COMPRESSIONS, File, FileSurvey, Reading, SourceOptions
from penstock.prepare.sources.bad_records import parse_chunk
from penstock.prepare.sources.text import (
    BYTE_ORDER_MARK,
    SAMPLE_BYTES,
    Array,
    Bytes,
    head_of,
    line_ends,
    pieces_of,
    plain_type,
    read_chunks,
)
from penstock.shards.schema import parse_type, type_to_arrow

_QUOTE = ord('"')
_CARRIAGE_RETURN = re.compile(rb"\r(?!\n)")
_OPEN_QUOTE = "a value starts with a quote that does not end on its line: set `newlines_in_values: true` if it goes on"


@dataclass(frozen=True)
class Dialect:
    """How this file writes rows. With `quoted`, a newline between quotes ends nothing."""

    names: tuple[str, ...]
    header_bytes: int
    delimiter: str
    quoted: bool
    null_values: tuple[str, ...]


def survey(file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
    sample, dialect = _open(file, options)
    declared = {name: type_to_arrow(parse_type(word)) for name, word in options.types.items()}
    for name in declared:
        if name not in dialect.names:
            known = list(dialect.names)
            raise InputError(
                f"`types` names a column {name!r} that is not there.{did_you_mean(name, known)}",
                where=f"{file.location}, line 1: {', '.join(known)}",
            )
    inferred = _infer(sample[dialect.header_bytes :], dialect, declared)
    schema = pa.schema([(field.name, declared.get(field.name, plain_type(field.type))) for field in inferred])
    _refuse_types(dialect, schema, file.location)
    return FileSurvey(schema, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))


def read(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows]:
    if excluded:  # it has one part, the whole file
        return
    file = File(segment.source, segment.path, segment.location, "csv")
    _, dialect = _open(file, reading.options[segment.source])
    parser = CsvParser(dialect, pa.schema([reading.schema.field(name) for name in reading.columns]))
    ordinal = segment.ordinal
    for chunk in read_chunks(segment, reading.bytes_at_once, parser.ends if dialect.quoted else line_ends):
        rows = parse_chunk(chunk, segment, ordinal, parser)
        yield rows
        ordinal += len(rows) + sum(aside.count for aside in rows.set_aside)


def _open(file: File, options: SourceOptions) -> tuple[bytes, Dialect]:
    """(the first whole records, how they are written)."""
    is_tabbed = re.search(rf"\.tsv({'|'.join(map(re.escape, COMPRESSIONS))})?$", file.location, re.IGNORECASE)
    delimiter = options.delimiter or ("\t" if is_tabbed else ",")
    quoted = options.newlines_in_values
    sample = head_of(file, (lambda data: quoted_ends(data, delimiter)) if quoted else line_ends)
    if not sample.strip():
        raise InputError(
            "the file is empty: not even a header line",
            where=file.location,
            next_step="remove it, or set `on_bad_input: set_aside` to go on without it",
        )
    ends = quoted_ends(sample, delimiter) if quoted else line_ends(sample)
    if not len(ends) and len(sample) >= SAMPLE_BYTES:
        raise _bad_header(file, f"it is longer than {SAMPLE_BYTES:,} bytes")
    header_bytes = int(ends[0]) if len(ends) else len(sample)
    names = _header(sample[:header_bytes].removeprefix(BYTE_ORDER_MARK), delimiter, file)
    return sample, Dialect(names, header_bytes, delimiter, quoted, tuple(options.null_values))


def _header(line: bytes, delimiter: str, file: File) -> tuple[str, ...]:
    if not _one_record(delimiter).fullmatch(line):
        stray = _CARRIAGE_RETURN.search(line)
        raise _bad_header(file, "lines end with a carriage return alone, not with a newline" if stray else _OPEN_QUOTE)
    try:
        names = _read_csv(line, delimiter, None, {}).schema.names
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _bad_header(file, str(error)) from error
    for name in names:
        if names.count(name) > 1:
            raise _bad_header(file, f"column {name!r} is there twice")
    return tuple(names)


def _bad_header(file: File, reason: str) -> InputError:
    return InputError(f"its header line cannot be read: {reason}", where=f"{file.location}, line 1")


def _infer(body: bytes, dialect: Dialect, declared: dict[str, pa.DataType]) -> pa.Schema:
    """Types of the columns; null where no row tells. Bad rows are left for the reading to report."""
    nothing = pa.schema([(name, pa.null()) for name in dialect.names])
    try:
        types = {name: pa.binary() for name in declared}
        return _read_csv(body, dialect.delimiter, dialect, types, on_bad_row=lambda _row: "skip").schema
    except pa.ArrowInvalid:  # not a single row
        return nothing


def _refuse_types(dialect: Dialect, schema: pa.Schema, location: str) -> None:
    """A type that CSV cannot hold is one mistake in the job, not a mistake in every row."""
    for field in schema:
        try:
            CsvParser(dialect, pa.schema([field])).parse(dialect.delimiter.encode() * (len(dialect.names) - 1) + b"\n")
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"column {field.name!r} cannot be {field.type} in CSV", where=location) from error
        except pa.ArrowInvalid:  # an empty value is not null here: the type is known all the same
            continue


def quoted_ends(data: Bytes, delimiter: str) -> Array:
    """Where each record ends when a newline between quotes ends nothing. `data` starts where a record does."""
    view = np.frombuffer(data, "u1")
    quotes = np.flatnonzero(view == _QUOTE)
    before = view[quotes[::2] - 1]  # what stands before the quotes that open a value, if all quotes do their duty
    if len(quotes) and quotes[0] == 0:
        before[0] = _QUOTE
    if np.isin(before, [ord(delimiter), _QUOTE, *b"\r\n"]).all():
        ends = line_ends(data)
        outside = np.searchsorted(quotes, ends) % 2 == 0
    else:  # a quote inside a value that none opened: go through them one by one
        ends = np.array([match.end() for match in _any_record(delimiter).finditer(data)], "i8")
        outside = view[ends - 1] == ord("\n")
    closed: Array = ends[outside]
    return closed


def _one_record(delimiter: str) -> re.Pattern[bytes]:
    """Matches what the parser takes for one row: every quote that opens a value also ends it."""
    stop = re.escape(delimiter.encode())
    value = rb'(?:"(?:[^"]|"")*+"[^%b\r\n]*+|[^"%b\r\n][^%b\r\n]*+|)' % (stop, stop, stop)
    return re.compile(rb"%b(?:%b%b)*+[\r\n]*" % (value, stop, value))


def _any_record(delimiter: str) -> re.Pattern[bytes]:
    """Matches a record up to its newline, or to the end of the data where a quote stays open."""
    stop = re.escape(delimiter.encode())
    value = rb'(?:"(?:[^"]|"")*+"?[^%b\n]*+|[^%b\n]*+)' % (stop, stop)
    return re.compile(rb"(?=.)%b(?:%b%b)*+\n?" % (value, stop, value), re.DOTALL)


@dataclass(frozen=True)
class CsvParser:
    """Parses rows of one dialect into `schema`, a choice of its columns."""

    dialect: Dialect
    schema: pa.Schema
    blank: ClassVar[bytes] = b"\r\n"

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        return _one_record(self.dialect.delimiter)

    def ends(self, data: Bytes) -> Array:
        return quoted_ends(data, self.dialect.delimiter) if self.dialect.quoted else line_ends(data)

    def parse(self, data: Bytes) -> pa.RecordBatch:
        types = {field.name: field.type for field in self.schema}
        return _read_csv(data, self.dialect.delimiter, self.dialect, types, self.schema.names)

    def together(self, data: bytes, starts: Array, ends: Array) -> bool:
        """A row has fewer lines or more only where a quote stays open or a carriage return stands alone."""
        alone = data.count(b"\r") > data.count(b"\r\n")
        return not alone and self._row.fullmatch(data, starts[-1], ends[-1]) is not None

    def refused(self, records: list[bytes]) -> dict[int, str]:
        reasons: dict[int, str] = {}
        for number, record in enumerate(records):
            if (b'"' in record or b"\r" in record) and not self._row.fullmatch(record):
                reasons[number] = _split_reason(record, self.dialect)
        left = [number for number in range(len(records)) if number not in reasons]
        if left:
            wrong = self._refused_values([records[number] for number in left])
            reasons |= {left[number]: reason for number, reason in wrong.items()}
        return reasons

    def _refused_values(self, records: list[bytes]) -> dict[int, str]:
        """Rows with another number of values, or with a value that has not the shape of its type."""
        reasons: dict[int, str] = {}

        def skip(row: Any) -> str:
            reasons[row.number - 1] = f"expected {row.expected_columns} columns, got {row.actual_columns}"
            return "skip"

        types = {name: pa.binary() for name in self.schema.names}
        try:
            batch = _read_csv(b"".join(records), self.dialect.delimiter, self.dialect, types, self.schema.names, skip)
        except pa.ArrowInvalid:  # not a single row was left
            return reasons
        left = [number for number in range(len(records)) if number not in reasons]
        for field, values in zip(self.schema, batch.columns, strict=True):
            for row in np.flatnonzero(~_has_shape(values, field.type, self.dialect.null_values)):
                reasons.setdefault(left[row], _wrong_value(field, values[int(row)].as_py()))
        return reasons


def _split_reason(record: bytes, dialect: Dialect) -> str:
    if _any_record(dialect.delimiter).fullmatch(record) and _CARRIAGE_RETURN.search(record):
        return "a carriage return without a newline stands between its values"
    return "a value starts with a quote that never ends" if dialect.quoted else _OPEN_QUOTE


def _wrong_value(field: pa.Field, value: bytes) -> str:
    text = value[:100].decode("utf-8", "backslashreplace")
    return f"column {field.name!r}: {text!r} is not {field.type}"


# What every value of a type looks like, at least; the parser decides about the ones that do.
_SHAPES = {
    "integer": r"^\s*-?(0[xX][0-9a-fA-F]+|[0-9]+)\s*$",
    "number": r"^\s*[+-]?(\.?[0-9]|[iInN])",
    "bool": r"^(0|1|true|True|TRUE|false|False|FALSE)$",
    "time": r"^\s*-?[0-9]",
}


def _has_shape(values: pa.Array, kind: pa.DataType, null_values: tuple[str, ...]) -> Array:
    is_a = pa.types
    if is_a.is_boolean(kind):
        shape = "bool"
    elif is_a.is_integer(kind):
        shape = "integer"
    elif is_a.is_floating(kind) or is_a.is_decimal(kind):
        shape = "number"
    elif is_a.is_temporal(kind):
        shape = "time"
    else:
        return np.ones(len(values), bool)
    null = pc.is_in(values, pa.array([value.encode() for value in null_values], pa.binary()))
    answer: Array = np.asarray(pc.or_(pc.match_substring_regex(values, _SHAPES[shape]), null))
    return answer


def _read_csv(
    data: Bytes,
    delimiter: str,
    dialect: Dialect | None,
    types: dict[str, pa.DataType],
    columns: list[str] | None = None,
    on_bad_row: Any = None,
) -> pa.RecordBatch:
    """One batch of all rows. Without a dialect the first line is the header."""
    names = list(dialect.names) if dialect else None
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=arrow_csv.ReadOptions(use_threads=False, block_size=len(data) + 1, column_names=names),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter,
            newlines_in_values=dialect is None or dialect.quoted,
            ignore_empty_lines=True,
            invalid_row_handler=on_bad_row,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            null_values=list(dialect.null_values) if dialect else None,
            check_utf8=False,
        ),
    ).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
