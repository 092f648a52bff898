"""CSV and TSV: a header line, then rows. Types come from the first megabyte of the first file, or from `types:`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache, partial

import pyarrow as pa

from penstock.base.errors import InputError, did_you_mean
from penstock.prepare.rows import Rows
from penstock.prepare.slices import Segment
from penstock.prepare.sources import COMPRESSIONS, File, FileSurvey, Reading, SourceOptions, identity_of_ends
from penstock.prepare.sources.bad_records import parse_chunk, read_records
from penstock.prepare.sources.chunks import (
    BYTE_ORDER_MARK,
    SAMPLE_BYTES,
    head_of,
    line_ends,
    pieces_of,
    plain_type,
)
from penstock.prepare.sources.csv_records import OPEN_QUOTE, CsvParser, Dialect, quoted_ends, read_csv, row_pattern
from penstock.shards.schema import parse_type, type_to_arrow

identity = identity_of_ends  # what tells that a file is still the one that was surveyed


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
    if options.text_column in dialect.names:
        declared[options.text_column] = pa.string()  # digits and dates are text where the job says so
    inferred = _infer(sample[dialect.header_bytes :], dialect, declared)
    schema = pa.schema([(field.name, declared.get(field.name, plain_type(field.type))) for field in inferred])
    _refuse_types(dialect, schema, file.location)
    return FileSurvey(schema, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))


def survey_alike(file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema) -> FileSurvey | None:
    """Survey a later file of a source. The first file tells the types: here, the same header is enough."""
    _, dialect = _open(file, options)
    if list(dialect.names) != known.names:
        return None
    return FileSurvey(known, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))


def read(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows]:
    if excluded:  # it has one part, the whole file
        return
    file = File(segment.source, segment.path, segment.location, "csv")
    options = reading.options[segment.source]
    _, dialect = _open(file, options)
    parser = CsvParser(dialect, pa.schema([reading.schema.field(name) for name in reading.columns]))
    make = partial(parse_chunk, parser=parser, repair=options.bad_utf8 == "repair")
    ends = parser.ends if dialect.quoted else line_ends
    yield from read_records(segment, reading, ends, parser.schema, make)


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
    if not row_pattern(delimiter).fullmatch(line):
        stray = b"\r" in line.rstrip(b"\r\n")
        raise _bad_header(file, "lines end with a carriage return alone, not with a newline" if stray else OPEN_QUOTE)
    try:
        names = list(_names_in(line, delimiter))
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _bad_header(file, str(error)) from error
    for name in names:
        if names.count(name) > 1:
            raise _bad_header(file, f"column {name!r} is there twice")
    return tuple(names)


@lru_cache(maxsize=64)  # most files of a source have the same
def _names_in(line: bytes, delimiter: str) -> tuple[str, ...]:
    return tuple(read_csv(line + b"\n", delimiter, None, {}).schema.names)


def _bad_header(file: File, reason: str) -> InputError:
    return InputError(f"its header line cannot be read: {reason}", where=f"{file.location}, line 1")


def _infer(body: bytes, dialect: Dialect, declared: dict[str, pa.DataType]) -> pa.Schema:
    """Types of the columns; null where no row tells. Bad rows are left for the reading to report."""
    nothing = pa.schema([(name, pa.null()) for name in dialect.names])
    try:
        types = {name: pa.binary() for name in declared}
        return read_csv(body, dialect.delimiter, dialect, types, on_bad_row=lambda _row: "skip").schema
    except pa.ArrowInvalid:  # not a single row
        return nothing


def _refuse_types(dialect: Dialect, schema: pa.Schema, location: str) -> None:
    """A type that CSV cannot hold is one mistake in the job, not a mistake in every row."""
    row = dialect.delimiter.join(['""'] * len(dialect.names)).encode()
    for field in schema:
        try:
            CsvParser(dialect, pa.schema([field])).parse(row)
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"column {field.name!r} cannot be {field.type} in CSV", where=location) from error
        except pa.ArrowInvalid:  # an empty value is not null here: the type is known all the same
            continue
