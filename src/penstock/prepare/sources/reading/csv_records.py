"""CSV records: where rows of a dialect end, how they become Arrow, and which of them are bad at sight."""

import re
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv

from penstock.prepare.rows.rows import Array
from penstock.prepare.sources.reading import exact
from penstock.prepare.sources.reading.chunks import Bytes, Chunk, Ends, line_ends
from penstock.shards.schema import type_from_arrow

OPEN_QUOTE = (
    "a value starts with a quote that does not end on its line: set `newlines_in_values: true` if values span lines"
)
_QUOTE = ord('"')
_DELIMITERS = (",", ";", "\t", "|")


@dataclass(frozen=True)
class Dialect:
    """The file's way to write rows. With `quoted`, a newline between quotes ends nothing. Without `names`, the first
    line is the header."""

    names: tuple[str, ...]
    header_bytes: int
    delimiter: str
    quoted: bool
    null_values: tuple[str, ...]


def ends_of(delimiter: str, quoted: bool) -> Ends:
    return partial(quoted_ends, delimiter=delimiter) if quoted else line_ends


def quoted_ends(data: Bytes, delimiter: str) -> Array:
    """Ends of records if a newline between quotes ends nothing. `data` starts where a record does."""
    view = np.frombuffer(data, "u1")
    quotes = np.flatnonzero(view == _QUOTE)
    before = view[quotes[::2] - 1]  # what stands before the quotes that open a value, if all quotes do their duty
    if len(quotes) and quotes[0] == 0:
        before[0] = _QUOTE
    if np.isin(before, [ord(delimiter), _QUOTE, *b"\r\n"]).all():
        ends = line_ends(data)
        closed: Array = ends[np.searchsorted(quotes, ends) % 2 == 0]
        return closed
    return _ends_one_by_one(data, delimiter)


def _ends_one_by_one(data: Bytes, delimiter: str) -> Array:
    """For the rare file with a quote inside a value that none opened."""
    ends, position, record = [], 0, _record(delimiter, rb"\n", rb"\n")
    while match := record.match(data, position):
        position = match.end()
        ends.append(position)
    return np.array(ends, "i8")


def likely_delimiter(header: bytes, delimiter: str) -> str:
    """The delimiter that stands in a header line more often than `delimiter` does; nothing if none does."""
    outside = re.sub(rb'"[^"]*"', b"", header)
    most = max(_DELIMITERS, key=lambda each: outside.count(each.encode()))
    return most if outside.count(most.encode()) > outside.count(delimiter.encode()) else ""


def row_pattern(delimiter: str) -> re.Pattern[bytes]:
    """Matches what the parser takes for one row."""
    return _record(delimiter, rb"\r\n", rb"[\r\n]*")


def _record(delimiter: str, newline: bytes, end: bytes) -> re.Pattern[bytes]:
    """Values up to an `end`: every quote that opens one also closes it, and others mean nothing.

    No part can match in two ways, so nothing is tried twice. (Possessive quantifiers would say so, but Python 3.11.2,
    which Debian 12 has, repeats a group of them wrongly.)
    """
    comma = re.escape(delimiter.encode())
    plain = rb"[^%b%b]" % (comma, newline)
    value = rb'(?:"[^"]*(?:""[^"]*)*"(?!")%b*|(?!")%b*)' % (plain, plain)
    return re.compile(rb"%b(?:%b%b)*%b" % (value, comma, value, end))


@dataclass(frozen=True)
class CsvParser:
    """Parses rows of one dialect into `schema`, a choice of its columns. A value that the type of an `inferred` column
    would change makes its row bad, and so does a number that a float type would make infinite."""

    dialect: Dialect
    schema: pa.Schema
    inferred: frozenset[str] = frozenset()
    blank: ClassVar[bytes] = b"\r\n"

    @cached_property
    def _row(self) -> re.Pattern[bytes]:
        return row_pattern(self.dialect.delimiter)

    @cached_property
    def ends(self) -> Ends:
        return ends_of(self.dialect.delimiter, self.dialect.quoted)

    def parse(self, data: Bytes) -> pa.RecordBatch:
        batch = read_csv(data, self.dialect, self._read_as, self.schema.names)
        self._refuse_infinite(batch, data)
        return self._exact(batch) if self._exact_names else batch

    def _refuse_infinite(self, batch: pa.RecordBatch, data: Bytes) -> None:
        """Infinities are rare, so only a column that has one is looked at as the file spells it."""
        names = [name for name in batch.schema.names if exact.has_infinity(batch.column(name))]
        if not names:
            return
        types = {name: pa.binary() for name in names}
        spelled = read_csv(data, self.dialect, types, names)
        for name in names:
            infinite = spelled.column(name).filter(pc.is_inf(batch.column(name)))
            numbers = infinite.filter(pc.match_substring_regex(infinite, "[0-9]"))
            if len(numbers):
                kind = type_from_arrow(self.schema.field(name).type)
                text = numbers[0].as_py()[:100].decode()
                raise pa.ArrowInvalid(f"column {name!r}: {text!r} is too large for {kind}")

    @cached_property
    def _exact_names(self) -> dict[pa.DataType, list[str]]:
        """The columns of which each value is looked at as the file spells it, by type."""
        names: dict[pa.DataType, list[str]] = {}
        for field in self.schema:
            if field.name in self.inferred and field.type in exact.KINDS:
                names.setdefault(field.type, []).append(field.name)
        return names

    @cached_property
    def _read_as(self) -> dict[str, pa.DataType]:
        types = {field.name: field.type for field in self.schema}
        return types | {name: pa.string() for names in self._exact_names.values() for name in names}

    def _exact(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch in the types of `schema`. All columns of a type are looked at together: there may be thousands."""
        arrays = dict(zip(batch.schema.names, batch.columns, strict=True))
        rows = batch.num_rows
        for kind, names in self._exact_names.items():
            texts = pa.concat_arrays([arrays[name] for name in names])
            whole = exact.exact_array(texts, kind, self.dialect.null_values)
            arrays |= {name: whole.slice(number * rows, rows) for number, name in enumerate(names)}
        return pa.RecordBatch.from_arrays(list(arrays.values()), schema=self.schema)

    def together(self, data: Chunk, starts: Array, ends: Array) -> bool:
        """A row has fewer lines or more only where a quote stays open or a carriage return stands alone."""
        alone = data.count(b"\r") > data.count(b"\r\n")
        return not alone and self._row.fullmatch(data, starts[-1], ends[-1]) is not None

    def repaired(self, data: Chunk) -> Chunk | None:  # noqa: ARG002
        return None  # no bytes keep a row from being parsed; its values are repaired behind

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
            batch = read_csv(b"".join(records), self.dialect, types, self.schema.names, skip)
        except pa.ArrowInvalid:  # not a single row was left
            return reasons
        left = [number for number in range(len(records)) if number not in reasons]
        for field, values in zip(self.schema, batch.columns, strict=True):
            inferred = field.name in self.inferred
            fitting = _stay if inferred and field.type in exact.KINDS else _has_shape
            for row in np.flatnonzero(~fitting(values, field.type, self.dialect.null_values)):
                reasons.setdefault(left[row], _wrong_value(field, values[int(row)].as_py(), inferred))
        return reasons


def _split_reason(record: bytes, dialect: Dialect) -> str:
    if _record(dialect.delimiter, rb"\n", rb"\n").fullmatch(record):
        return "a carriage return without a newline stands between its values"
    return "a value starts with a quote that never ends" if dialect.quoted else OPEN_QUOTE


def _wrong_value(field: pa.Field, value: bytes, inferred: bool) -> str:
    text = value[:100].decode("utf-8", "backslashreplace")
    reason = f"column {field.name!r}: {text!r} is not {type_from_arrow(field.type)}"
    return f"{reason}, {exact.how_to_declare(field.name)}" if inferred else reason


def _stay(values: pa.Array, kind: pa.DataType, null_values: tuple[str, ...]) -> Array:
    """Mask of the values that are the ones the file spells."""
    texts = (value.decode("utf-8", "replace") for value in values.to_pylist())
    return np.array([text in null_values or exact.keeps(text, kind) for text in texts], bool)


# What a value of each family looks like, at least; the parser decides about the ones that do.
_INTEGER = r"^\s*-?(0[xX][0-9a-fA-F]+|[0-9]+)\s*$"
_NUMBER = r"^\s*[+-]?(([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$|[iI][nN][fF]|[nN][aA][nN])"
_BOOL = r"^(0|1|true|True|TRUE|false|False|FALSE)$"
_DATE = r"^\s*[0-9]{4}-[0-9]{2}-[0-9]{2}"
_TIME = r"^\s*[0-9]{2}:[0-9]{2}"


def _has_shape(values: pa.Array, kind: pa.DataType, null_values: tuple[str, ...]) -> Array:
    shape = _shape_of(kind)
    if shape is None:
        return np.ones(len(values), bool)
    fitting: Array = np.asarray(pc.match_substring_regex(values, shape))
    if pa.types.is_integer(kind):
        signed = pa.types.is_signed_integer(kind)
        high = 2 ** (kind.bit_width - signed)
        for row in np.flatnonzero(fitting):
            text = values[int(row)].as_py()
            is_short = len(text) <= exact.LONGEST_INTEGER
            fitting[row] = b"x" in text.lower() or (is_short and (-high if signed else 0) <= int(text) < high)
    null: Array = np.asarray(pc.is_in(values, pa.array([value.encode() for value in null_values], pa.binary())))
    return np.logical_or(fitting, null)


def _shape_of(kind: pa.DataType) -> str | None:
    is_a = pa.types
    if is_a.is_boolean(kind):
        return _BOOL
    if is_a.is_integer(kind) or is_a.is_duration(kind):
        return _INTEGER
    if is_a.is_floating(kind) or is_a.is_decimal(kind):
        return _NUMBER
    if is_a.is_time(kind):
        return _TIME
    return _DATE if is_a.is_temporal(kind) else None


def read_csv(
    data: Bytes,
    dialect: Dialect,
    types: dict[str, pa.DataType],
    columns: list[str] | None = None,
    on_bad_row: Any = None,
) -> pa.RecordBatch:
    """One batch of all rows."""
    if on_bad_row:
        data = _printable_rows(data)
    table = arrow_csv.read_csv(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=arrow_csv.ReadOptions(
            use_threads=False, block_size=len(data) + 1, column_names=list(dialect.names) or None
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=dialect.delimiter,
            newlines_in_values=dialect.quoted,
            ignore_empty_lines=True,
            invalid_row_handler=on_bad_row,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            include_columns=columns,
            null_values=list(dialect.null_values),
            check_utf8=False,
        ),
    ).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)


def _printable_rows(data: Bytes) -> Bytes:
    """pyarrow gives a bad row to a handler as text. Where the row is not UTF-8, it prints a traceback instead."""
    try:
        bytes(data).decode()
    except UnicodeDecodeError:
        return bytes(data).decode("utf-8", "backslashreplace").encode()
    return data
