"""JSON records: lines of JSON -> columns of a batch, and the reasons why a line is bad. For jsonl.py."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.json as arrow_json

from penstock.prepare.rows.layouts import may_be_text
from penstock.prepare.rows.rows import Array
from penstock.prepare.sources.reading import exact, json_literals
from penstock.prepare.sources.reading.chunks import Bytes, Chunk, Ends, line_ends
from penstock.shards.arrays import is_list, is_string
from penstock.shards.schema import type_from_arrow

# Escapes that are kept, pairs of halves among them; then the halves that stand alone.
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPES = re.compile(rb"(\\[^u]|%b%b)|%b|%b" % (_HIGH, _LOW, _HIGH, _LOW))


@dataclass(frozen=True)
class JsonParser:
    """Parses lines into `schema`. When `strict`, a field that is not in `known` makes its line bad.

    A number that the type of an `inferred` column would change makes its line bad as well, and so does one that a float
    type would make infinite. In `as_text` columns, text may be written as a number, true or false.
    """

    schema: pa.Schema
    known: pa.Schema
    strict: bool
    inferred: frozenset[str] = frozenset()
    as_text: frozenset[str] = frozenset()
    blank: ClassVar[bytes] = b" \t\r\n"

    @property
    def ends(self) -> Ends:
        return line_ends

    @cached_property
    def _readable(self) -> pa.Schema:
        return pa.schema([(field.name, _readable(field.type)) for field in self.known])

    @cached_property
    def _text(self) -> pa.Schema:
        return pa.schema([field for field in self._readable if field.name in self.as_text])

    @cached_property
    def _inferred(self) -> pa.Schema:
        return pa.schema([field for field in self.known if field.name in self.inferred])

    @cached_property
    def _plain(self) -> dict[str, Callable[[Any], bool]]:
        return {field.name: json_literals.plain_check(field.type) for field in self.known}

    def parse(self, data: Bytes) -> pa.RecordBatch:
        batch = self._read(data)
        if any(exact.has_large_float(batch.column(name)) for name in self._inferred.names):
            literal = json_literals.inexact_literal(bytes(data), self._inferred)
            if literal:
                raise pa.ArrowInvalid(_changed(literal))
        arrays = [batch.column(field.name).cast(field.type) for field in self.schema]
        for array in arrays:
            if pa.types.is_time(array.type):
                array.validate(full=True)  # a number may be more than a day
        if any(map(exact.has_infinity, arrays)):
            literal = json_literals.infinite_literal(bytes(data), self.schema)
            if literal:
                raise pa.ArrowInvalid(_too_large(literal))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _read(self, data: Bytes) -> pa.RecordBatch:
        unexpected = "error" if self.strict else "ignore"
        try:
            return read_json(data, self._readable, unexpected)
        except pa.ArrowInvalid:
            given = bytes(data)
            quoted = json_literals.literals_as_text(given, self._text)
            if quoted == given:
                raise
            return read_json(quoted, self._readable, unexpected)

    def together(self, data: Chunk, starts: Array, ends: Array) -> bool:
        """No JSON value has `}` at the end of one line and `{` at the start of the next: none spans two lines.

        It also keeps a line that says `null` from the parser, which such a line kills.
        """
        view = np.frombuffer(data, "u1")
        last = np.maximum(ends - 2, 0)
        last -= view[last] == ord("\r")
        plain = (view[starts] == ord("{")) & (view[last] == ord("}")) & (view[ends - 1] == ord("\n"))
        return all(_is_braced(bytes(data[starts[line] : ends[line]])) for line in np.flatnonzero(~plain))

    def repaired(self, data: Chunk) -> Chunk | None:
        better = mended(data)
        return better if better != data else None

    def refused(self, records: list[bytes]) -> dict[int, str]:
        reasons = {}
        for number, line in enumerate(records):
            reason = self._refusal(line) if _is_braced(line) else "not a JSON object"
            if reason:
                reasons[number] = reason
        return reasons

    def _refusal(self, line: bytes) -> str | None:
        """Why a line is bad, where Python's parser can tell as surely as Arrow's."""
        if json_literals.nests_too_deep(line):
            return json_literals.TOO_DEEP if self.strict else None  # it may do so in a column that is not read
        answer = object_on(line)
        if isinstance(answer, str):
            unsure = b"Inf" in line or b"NaN" in line  # Arrow knows Inf and -NaN, Python does not
            return None if unsure else f"not JSON: {answer}"
        may_change = False
        for name, value in answer.items():
            is_plain = self._plain.get(name)
            if is_plain is None:
                if self.strict:
                    return f"unexpected field {name!r}, {exact.how_to_expect(name)}"
            elif is_plain(value):
                continue
            elif self._has_shape(name, value):
                may_change |= name in self.inferred
            else:
                word = type_from_arrow(self.known.field(name).type)
                reason = f"column {name!r}: {json.dumps(value)[:100]} is not {word}"
                could_be_text = name in self.inferred and not isinstance(value, list | dict)
                return f"{reason}, {exact.how_to_declare(name)}" if could_be_text else reason
        literals = json_literals.literals_in(line, self._inferred) if may_change else ()
        for literal in filter(_is_changed, literals):
            return _changed(literal)
        large = json_literals.infinite_literal(line, self.schema)
        return _too_large(large) if large else None

    def _has_shape(self, name: str, value: Any) -> bool:
        kind = self.known.field(name).type
        if pa.types.is_null(kind):
            return value is None
        is_literal = isinstance(value, int | float)  # true and false are int
        return (name in self.as_text and may_be_text(kind) and is_literal) or _has_shape(value, kind)


def _is_changed(literal: json_literals.Literal) -> bool:
    if literal.kind not in exact.KINDS:
        return False
    return not exact.keeps("0" if literal.text == "-0" else literal.text, literal.kind)  # both are one number in JSON


def _changed(literal: json_literals.Literal) -> str:
    """The reason why a line with a literal that its column would change is bad."""
    kind = type_from_arrow(literal.kind)
    return f"column {_place(literal)!r}: {literal.text[:100]} is not {kind}, {_how_to_keep(literal)}"


def _how_to_keep(literal: json_literals.Literal) -> str:
    column, *inside = literal.path
    if inside and inside != [json_literals.ITEM]:  # `types:` has no word for objects and for lists of lists
        place = _place(literal)
        return f"which the first rows showed: write all values of {place!r} in quotes, or leave column {column!r} out"
    return exact.how_to_declare(column, "list<string>" if inside else "string")


def _too_large(literal: json_literals.Literal) -> str:
    return f"column {_place(literal)!r}: {literal.text[:100]} is too large for {type_from_arrow(literal.kind)}"


def _place(literal: json_literals.Literal) -> str:
    return ".".join(filter(None, literal.path))


def _readable(kind: pa.DataType) -> pa.DataType:
    """The type that Arrow's JSON reader takes for `kind`, to be cast: text for a day, a number for a duration.

    A time is a text as well: the reader would drop its zone, or take it for UTC; the cast refuses both.
    """
    is_a = pa.types
    if is_a.is_dictionary(kind):
        return kind.value_type
    if is_list(kind):
        return pa.list_(_readable(kind.value_type))
    if is_a.is_date(kind) or is_a.is_timestamp(kind):
        return pa.string()
    if is_a.is_float16(kind):
        return pa.float64()
    if is_a.is_duration(kind):
        return pa.int64()
    return pa.binary() if is_a.is_fixed_size_binary(kind) else kind


def mended(data: Chunk) -> bytes:
    """With the escape of U+FFFD in place of those that are half a character: the parser refuses their lines."""
    return _ESCAPES.sub(lambda found: found[1] or rb"\ufffd", data)


def _is_braced(line: bytes) -> bool:
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def is_told(line: bytes) -> bool:
    """Whether a line can tell types."""
    return _is_braced(line) and not json_literals.nests_too_deep(line)


def object_on(line: bytes) -> dict[str, Any] | str:
    """The object on a line, or what is wrong with it. Text that is not UTF-8 is told of elsewhere."""
    try:
        answer: dict[str, Any] = json.loads(line.decode("utf-8", "replace"), parse_int=_integer)
        return answer
    except (ValueError, RecursionError) as error:
        return str(error)


def _integer(digits: str) -> int | float:
    return int(digits) if len(digits) <= exact.LONGEST_INTEGER else float(digits)


def _has_shape(value: Any, kind: pa.DataType) -> bool:
    is_a = pa.types
    if value is None:
        return True
    if is_a.is_integer(kind):
        return isinstance(value, int) and not isinstance(value, bool)
    if is_a.is_floating(kind):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if is_a.is_boolean(kind):
        return isinstance(value, bool)
    if is_string(kind):
        return isinstance(value, str)
    return True


def read_json(data: Bytes, schema: pa.Schema | None, unexpected: str) -> pa.RecordBatch:
    table = arrow_json.read_json(
        pa.BufferReader(pa.py_buffer(data)),
        read_options=arrow_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior=unexpected),
    ).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
