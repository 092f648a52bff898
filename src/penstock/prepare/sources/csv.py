"""CSV and TSV: a header line, then rows. Types come from the first megabyte of the first file, or from `types:`."""

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache

import pyarrow as pa

from penstock.base.errors import InputError, did_you_mean
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Misnamed, Reading, Source, SourceOptions
from penstock.prepare.sources.reading.bad_records import parse_records
from penstock.prepare.sources.reading.chunks import BYTE_ORDER_MARK, SAMPLE_BYTES, head_of, pieces_of
from penstock.prepare.sources.reading.csv_records import (
    OPEN_QUOTE,
    CsvParser,
    Dialect,
    ends_of,
    likely_delimiter,
    read_csv,
    row_pattern,
)
from penstock.prepare.sources.reading.exact import inferred_type
from penstock.prepare.sources.reading.input_file import unusable
from penstock.prepare.sources.registry import COMPRESSIONS
from penstock.prepare.sources.slices import Segment
from penstock.shards.schema import parse_type, type_to_arrow


class Csv(Source):
    files_tell_types = False
    takes = ("types", "delimiter", "encoding")

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
        sample, dialect = _open(file, options)
        declared = {name: type_to_arrow(parse_type(word)) for name, word in options.types.items()}
        known = dict.fromkeys(dialect.names)
        for name in declared:
            if name not in known:
                raise _missing_column(name, known, file)
        if options.text_column in dialect.names:
            declared[options.text_column] = pa.string()  # digits and dates are text where the job says so
        _refuse_types(dialect, declared, file.location)
        schema = _infer(sample[dialect.header_bytes :], dialect, declared)
        return FileSurvey(schema, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))

    def survey_alike(self, file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema) -> FileSurvey | None:
        """The first file tells the types: here, the same header is enough."""
        _, dialect = _open(file, options)
        if list(dialect.names) != known.names:
            return None
        return FileSurvey(known, pieces_of(file, dialect.header_bytes, slice_bytes, whole=dialect.quoted))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        file = File(segment.source, segment.path, segment.location, "csv", segment.encoding)
        options = reading.options[segment.source]
        _, dialect = _open(file, options)
        parser = CsvParser(dialect, reading.wanted, frozenset(reading.columns) - options.types.keys())
        yield from parse_records(segment, reading, parser)


SOURCE = Csv()


def _open(file: File, options: SourceOptions) -> tuple[bytes, Dialect]:
    """(the first whole records, how they are written)."""
    is_tabbed = re.search(rf"\.tsv({'|'.join(map(re.escape, COMPRESSIONS))})?$", file.location, re.IGNORECASE)
    delimiter = options.delimiter or ("\t" if is_tabbed else ",")
    quoted = options.newlines_in_values
    ends_in = ends_of(delimiter, quoted)
    sample = head_of(file, ends_in)
    if not sample.strip():
        raise unusable("the file is empty: not even a header line", file.location, "remove it")
    ends = ends_in(sample)
    if not len(ends) and len(sample) >= SAMPLE_BYTES:
        raise _bad_header(file, f"it is longer than {SAMPLE_BYTES:,} bytes")
    header_bytes = int(ends[0]) if len(ends) else len(sample)
    header = sample[:header_bytes].removeprefix(BYTE_ORDER_MARK)
    names = _header(header, delimiter, file)
    if len(names) == 1 and not options.delimiter and (other := likely_delimiter(header, delimiter)):
        raise _other_delimiter(names[0], delimiter, other, file)
    return sample, Dialect(names, header_bytes, delimiter, quoted, tuple(options.null_values))


def _header(line: bytes, delimiter: str, file: File) -> tuple[str, ...]:
    if not row_pattern(delimiter).fullmatch(line):
        stray = b"\r" in line.rstrip(b"\r\n")
        raise _bad_header(file, "lines end with a carriage return alone, not with a newline" if stray else OPEN_QUOTE)
    try:
        names = list(_names_in(line, delimiter))
    except UnicodeDecodeError as error:
        what = f"it is not {file.encoding or 'UTF-8'}: {error.reason}"
        raise _bad_header(file, what, "name the `encoding:` of the input, such as cp1252 or latin-1") from error
    except pa.ArrowException as error:
        raise _bad_header(file, str(error)) from error
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise _bad_header(file, f"column {twice!r} occurs twice")
    return tuple(names)


@lru_cache(maxsize=64)  # most files of a source have the same
def _names_in(line: bytes, delimiter: str) -> tuple[str, ...]:
    return tuple(read_csv(line + b"\n", Dialect((), 0, delimiter, True, ()), {}).schema.names)


def _bad_header(file: File, reason: str, action: str = "correct that line") -> InputError:
    return unusable(f"its header line cannot be read: {reason}", f"{file.location}, line 1", action)


def _other_delimiter(name: str, delimiter: str, other: str, file: File) -> Misnamed:
    """The error for a header line that is one name if read with `delimiter`, and several with `other`."""
    return Misnamed(
        f"with the delimiter {delimiter!r} this file has one column; its values seem to be separated by {other!r}",
        where=f"{file.location}, line 1: {name[:200]}",
        next_step=f"add `delimiter: {json.dumps(other)}` to the input, or `delimiter: {json.dumps(delimiter)}` if "
        "there is one column",
    )


def _missing_column(name: str, known: Iterable[str], file: File) -> Misnamed:
    """The error for a file whose header has no such column."""
    return Misnamed(
        f"input[{file.source}].types names a column {name!r} that does not exist.{did_you_mean(name, list(known))}",
        where=f"{file.location}, line 1: {', '.join(known)}",
        next_step="correct the name in `types:`",
    )


def _infer(body: bytes, dialect: Dialect, declared: dict[str, pa.DataType]) -> pa.Schema:
    """Types of the columns; null where no row tells. Bad rows are left for the reading to report."""
    types = dict.fromkeys(dialect.names, pa.string())
    kinds = dict.fromkeys(dialect.names, pa.null())
    with suppress(pa.ArrowInvalid):  # not a single row
        batch = read_csv(body, dialect, types, on_bad_row=lambda _row: "skip")
        kinds = {
            name: pa.null() if name in declared else inferred_type(texts, dialect.null_values)
            for name, texts in zip(dialect.names, batch.columns, strict=True)
        }
    return pa.schema(list((kinds | declared).items()))


def _refuse_types(dialect: Dialect, declared: dict[str, pa.DataType], location: str) -> None:
    """A type that CSV cannot hold is one mistake in the job, not a mistake in every row."""
    for name, kind in declared.items():
        try:
            CsvParser(replace(dialect, names=(name,)), pa.schema([(name, kind)])).parse(b'""')
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"column {name!r} cannot be {kind} in CSV", where=location) from error
        except pa.ArrowInvalid:  # an empty value is not null here: the type is known all the same
            continue
