"""JSONL: one JSON object per line. Types come from the first megabyte of the first file, or from `types:`."""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, missing_column
from penstock.prepare.sources.reading.bad_records import parse_records
from penstock.prepare.sources.reading.chunks import BYTE_ORDER_MARK, head_of, line_ends, pieces_of
from penstock.prepare.sources.reading.exact import has_large_float
from penstock.prepare.sources.reading.json_literals import TOO_DEEP, nests_too_deep, settled_types
from penstock.prepare.sources.reading.json_records import JsonParser, is_told, mended, object_on, read_json
from penstock.prepare.sources.slices import Segment
from penstock.shards.schema import parse_type, type_to_arrow

AS_TEXT = {b"penstock": b"numbers as text"}  # of a field: its numbers fit no type, so their spelling is kept


class JsonLines(Source):
    lines_tell_columns = True
    takes = ("types", "encoding")

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
        if options.text_column:
            kind = _kind_of_text(options.text_column, file)
            return FileSurvey(pa.schema([(options.text_column, kind)]), pieces_of(file, 0, slice_bytes, whole=False))
        sample = head_of(file, line_ends, at_least=b"{").removeprefix(BYTE_ORDER_MARK)
        declared = {name: type_to_arrow(parse_type(word)) for name, word in options.types.items()}
        _refuse_types(declared, file.location)
        fields = {field.name: field for field in _infer(sample, declared, file)}
        not_seen = tuple(name for name in declared if fields and name not in fields)
        fields |= {name: pa.field(name, kind) for name, kind in declared.items()}
        return FileSurvey(pa.schema(list(fields.values())), pieces_of(file, 0, slice_bytes, whole=False), not_seen)

    def survey_alike(self, file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema) -> FileSurvey | None:
        """The first file tells the types: here, an object on the first line is enough."""
        if options.text_column:
            return None
        first = head_of(file, line_ends).removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0]
        if not (is_told(first) and isinstance(object_on(first), dict)):
            return None
        return FileSurvey(known, pieces_of(file, 0, slice_bytes, whole=False))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        options = reading.options[segment.source]
        wanted = reading.wanted
        known = reading.schema if reading.strict else wanted
        inferred = frozenset(known.names) - options.types.keys() - {options.text_column}
        as_text = frozenset(field.name for field in known if field.metadata == AS_TEXT) | options.types.keys()
        parser = JsonParser(_bare(wanted), _bare(known), reading.strict, inferred, as_text)
        yield from parse_records(segment, reading, parser)


SOURCE = JsonLines()


def _kind_of_text(column: str, file: File) -> pa.DataType:
    """The type of the text column: string if one line of the sample has text there. No other column matters.

    A first line of hundreds of megabytes is not read for that if its start tells.
    """
    sample = head_of(file, line_ends).removeprefix(BYTE_ORDER_MARK)
    text = re.compile(rb'[{,]\s*%b\s*:\s*"' % re.escape(json.dumps(column).encode()))
    if b"\n" not in sample:
        if text.search(sample):
            return pa.string()
        sample = head_of(file, line_ends, at_least=b"{").removeprefix(BYTE_ORDER_MARK)
    names: dict[str, None] = {}
    values: list[Any] = []
    for line in sample.split(b"\n"):
        if nests_too_deep(line) and text.search(line):
            return pa.string()
        record = object_on(line) if is_told(line) else None
        if isinstance(record, dict):
            names |= dict.fromkeys(record)
            values += [record[column]] if column in record else []
            if values and isinstance(values[-1], str):
                return pa.string()
    if names and column not in names:
        raise missing_column(column, names, file.location)
    if not names and sample.strip():
        raise _untold(sample, file, _no_object(sample))
    found = [value for value in values if value is not None]
    return pa.infer_type(found[:1])  # of nothing at all, null


def _refuse_types(declared: dict[str, pa.DataType], location: str) -> None:
    """A type that JSON cannot hold is one mistake in the job, not a mistake in every row."""
    for name, kind in declared.items():
        schema = pa.schema([(name, kind)])
        try:
            JsonParser(schema, schema, strict=False).parse(b"{}\n")
        except pa.ArrowNotImplementedError as error:
            raise InputError(f"column {name!r} cannot be {kind} in JSON", where=location) from error


def _infer(sample: bytes, declared: dict[str, pa.DataType], file: File) -> pa.Schema:
    """Bad lines are left for the reading to report; a sample with no good line is an error here."""
    lines = [line for line in sample.split(b"\n") if is_told(line)]
    try:
        return _settled(read_json(b"\n".join(lines), None, "infer"), lines, declared)
    except pa.ArrowException:
        lines = [mended(line) for line in lines]
        objects = [each for each in map(object_on, lines) if isinstance(each, dict)]
    if not objects:
        if sample.strip() and not declared:
            raise _untold(sample, file, _no_object(sample))
        return pa.schema([])
    usual = _usual_values([{name: each[name] for name in each if name not in declared} for each in objects])
    try:
        batch = read_json("\n".join(map(json.dumps, usual)).encode(), None, "infer")
    except pa.ArrowException as error:
        raise _untold(sample, file, str(error)) from error
    told = {field.name: field for field in _settled(batch, lines, declared)}
    names = dict.fromkeys(name for each in objects for name in each)
    return pa.schema([told.get(name, pa.field(name, pa.null())) for name in names])


def _settled(batch: pa.RecordBatch, lines: list[bytes], declared: dict[str, pa.DataType]) -> pa.Schema:
    """The fields in types that change no value: Arrow's reader makes a float of a large integer."""
    plain = pa.schema([(field.name, _inferred(field.type)) for field in batch.schema])
    large = [name for name in batch.schema.names if name not in declared and has_large_float(batch.column(name))]
    settled = {field.name: field for field in settled_types(lines, pa.schema([plain.field(name) for name in large]))}
    return pa.schema([settled[each.name].with_metadata(AS_TEXT) if each.name in settled else each for each in plain])


def _inferred(kind: pa.DataType) -> pa.DataType:
    """The type that JSON infers: bool, int64, float64, string, and lists and objects of them.

    Times must be declared, or they stay text.
    """
    is_a = pa.types
    if is_a.is_list(kind):
        return pa.list_(_inferred(kind.value_type))
    if is_a.is_struct(kind):
        return pa.struct([(field.name, _inferred(field.type)) for field in kind])
    return pa.string() if is_a.is_temporal(kind) or is_a.is_binary(kind) else kind


_NO_OBJECT = "no line of it is a JSON object"


def _no_object(sample: bytes) -> str:
    is_deep = any(map(nests_too_deep, sample.split(b"\n")))
    return TOO_DEEP if is_deep else _NO_OBJECT


def _usual_values(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects, less the values of another kind than most of their column; the first kind wins a draw."""
    kinds: dict[str, Counter[type]] = defaultdict(Counter)
    for each in objects:
        for name, value in each.items():
            kinds[name][_kind(value)] += value is not None
    usual = {name: counts.most_common(1)[0][0] for name, counts in kinds.items()}
    return [
        {name: value for name, value in each.items() if value is None or _kind(value) is usual[name]}
        for each in objects
    ]


def _kind(value: Any) -> type:
    return float if type(value) is int else type(value)


def _untold(sample: bytes, file: File, reason: str) -> InputError:
    is_array = b"".join(sample[:100].split()).startswith(b"[{")
    if reason == _NO_OBJECT and (is_array or sample.split()[:1] == [b"{"]):
        what, each = ("one JSON array", ".[]") if is_array else ("objects over several lines", ".")
        return InputError(
            f"this file holds {what}, and penstock reads one object per line",
            where=file.location,
            next_step=f"write one object per line, for example with jq -c '{each}' OLD.json > NEW.jsonl",
        )
    return InputError(
        f"cannot tell the columns from the first {len(sample):,} bytes: {reason}",
        where=file.location,
        next_step="declare them: input: {path: ..., types: {column: int64, ...}}",
    )


def _bare(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.remove_metadata() for field in schema])
