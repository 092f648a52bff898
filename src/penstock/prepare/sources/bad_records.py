"""Bad records: turn a chunk of text into rows; what cannot become one is set aside with its text and the reason.

A chunk that does not parse is cut into pieces of 1,024 records. In a piece that does not parse either, the parser
names the records that are bad at sight; the others are halved until the bad ones stand alone. Verdict and reason
depend on the record alone: not on its neighbours, nor on where chunks end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.prepare.rows import Rows, SetAside, rejected_line
from penstock.prepare.slices import Segment
from penstock.prepare.sources.text import Array, Bytes, Ends, line_ends, lines_before, read_chunks

_PIECE_RECORDS = 1024
_RAW_KEPT = 64 * 1024  # characters of a bad record kept in rejected/
_ROW_NUMBER = re.compile(r"(Row #\d+: | in row \d+$)")  # of the parser's own input: it says nothing to a person


class Parser(Protocol):
    """One format. `parse` takes whole records; an ArrowException from it means that one or more are bad."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def blank(self) -> bytes:
        """A record of these characters alone is no record."""

    def ends(self, data: Bytes) -> Array: ...
    def parse(self, data: Bytes) -> pa.RecordBatch: ...
    def together(self, data: bytes, starts: Array, ends: Array) -> bool:
        """Whether as many rows as records proves that each row is one of the records."""

    def refused(self, records: list[bytes]) -> dict[int, str]:
        """Number and reason of those that are bad at sight. The others can be parsed together."""


def read_records(segment: Segment, bytes_at_once: int, ends: Ends, parser: Parser) -> Iterator[Rows]:
    """The segment's records, chunk by chunk, each with its position and, where it is bad, its line."""
    ordinal, line = segment.ordinal, 0
    for chunk in read_chunks(segment, bytes_at_once, ends):
        rows = parse_chunk(chunk, segment, ordinal, line, parser)
        yield rows
        ordinal += len(rows) + sum(aside.count for aside in rows.set_aside)
        line += chunk.count(b"\n")


def parse_chunk(data: bytes, segment: Segment, ordinal: int, line: int, parser: Parser) -> Rows:
    """All records of a chunk: the good ones as rows, the bad ones set aside.

    `ordinal` is the position of its first record, `line` the number of lines of the segment before it.
    """
    starts, ends = record_bounds(data, parser)
    batches: list[pa.RecordBatch] = []
    bad: dict[int, str] = {}
    batch = _whole(data, starts, ends, parser)
    if batch is not None:
        batches.append(batch)
    else:
        for first in range(0, len(starts), _PIECE_RECORDS):
            last = first + _PIECE_RECORDS
            good, worse = _search(data, starts[first:last], ends[first:last], parser)
            batches += good
            bad |= {first + number: reason for number, reason in worse.items()}
    mask = np.ones(len(starts), bool)
    mask[list(bad)] = False
    lines = 1 + line + np.searchsorted(line_ends(data), starts, "right") if bad else starts
    aside = tuple(
        _set_aside(data[starts[number] : ends[number]], segment, ordinal + number, int(lines[number]), reason)
        for number, reason in sorted(bad.items())
    )
    ordinals = ordinal + np.flatnonzero(mask)
    return drop_bad_text(Rows(_joined(batches, parser.schema), segment.source, segment.path, ordinals, None, aside))


def record_bounds(data: bytes, parser: Parser) -> tuple[Array, Array]:
    """Where the records of `data` start and end, without the blank ones."""
    view = np.frombuffer(data, "u1")
    ends = parser.ends(data)
    if len(view) and (not len(ends) or ends[-1] != len(view)):
        ends = np.append(ends, len(view))
    starts = np.concatenate([[0], ends[:-1]]).astype("i8")
    filled = ~np.isin(view[starts], np.frombuffer(parser.blank, "u1")) if len(ends) else np.ones(0, bool)
    for record in np.flatnonzero(~filled):
        filled[record] = bool(data[starts[record] : ends[record]].strip(parser.blank))
    return starts[filled], ends[filled]


def _whole(data: bytes, starts: Array, ends: Array, parser: Parser) -> pa.RecordBatch | None:
    """The records as one batch, or None where one of them is bad."""
    if not len(starts) or not parser.together(data, starts, ends):
        return None
    return _parsed(memoryview(data)[starts[0] : ends[-1]], len(starts), parser)


def _parsed(data: Bytes, count: int, parser: Parser) -> pa.RecordBatch | None:
    try:
        batch = parser.parse(data)
    except pa.ArrowException:
        return None
    return batch if batch.num_rows == count else None


def _search(data: bytes, starts: Array, ends: Array, parser: Parser) -> tuple[list[pa.RecordBatch], dict[int, str]]:
    """(batches of the good records, number and reason of the bad ones)."""
    batch = _whole(data, starts, ends, parser)
    if batch is not None:
        return [batch], {}
    records = [data[start:end] for start, end in zip(starts, ends, strict=True)]
    if records and not records[-1].endswith(b"\n"):
        records[-1] += b"\n"
    bad = parser.refused(records)
    left = [number for number in range(len(records)) if number not in bad]
    good: list[pa.RecordBatch] = []
    for numbers, answer in _halve(left, records, parser):
        if isinstance(answer, str):
            bad[numbers[0]] = answer
        else:
            good.append(answer)
    return good, bad


def _halve(
    numbers: list[int], records: list[bytes], parser: Parser
) -> Iterator[tuple[list[int], pa.RecordBatch | str]]:
    """Record numbers, in order, with their batch or with the reason why the one of them is bad."""
    pending = [numbers]
    while pending:
        numbers = pending.pop()
        if not numbers:
            continue
        data = b"".join(records[number] for number in numbers)
        if (batch := _parsed(data, len(numbers), parser)) is not None:
            yield numbers, batch
        elif len(numbers) == 1:
            yield numbers, _reason(data, parser)
        else:
            middle = len(numbers) // 2
            pending += [numbers[middle:], numbers[:middle]]


def _reason(record: bytes, parser: Parser) -> str:
    try:
        return f"{parser.parse(record).num_rows} records where one was expected"
    except pa.ArrowException as error:
        return _ROW_NUMBER.sub("", str(error).partition("\n")[0])


def _set_aside(raw: bytes, segment: Segment, ordinal: int, line_number: int, detail: str) -> SetAside:
    text = raw[: 4 * _RAW_KEPT].rstrip(b"\r\n").decode("utf-8", "backslashreplace")[:_RAW_KEPT]
    before = lines_before(segment)
    place = {"line": before + line_number} if before >= 0 else {}
    line = rejected_line(segment.source, segment.path, ordinal, "not a valid record", **place, detail=detail, raw=text)
    return SetAside("not a valid record", 1, (line,))


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)


def drop_bad_text(rows: Rows) -> Rows:
    """Set aside rows whose text is not UTF-8: Arrow reads such bytes without a word."""
    good = np.ones(len(rows), bool)
    for array in rows.batch.columns:
        good &= _is_utf8(array)
    if good.all():
        return rows
    binary = pa.RecordBatch.from_arrays([_as_binary(array) for array in rows.batch.columns], rows.batch.schema.names)
    marked = rows.with_batch(binary).keep(good, "text is not UTF-8", keep_rejected=True)
    left = rows.batch.filter(pa.array(good))
    arrays = [_without_unused(array) for array in left.columns]
    return marked.with_batch(pa.RecordBatch.from_arrays(arrays, schema=left.schema))


def _is_utf8(array: pa.Array) -> Array:
    if pa.types.is_dictionary(array.type):
        known = np.append(_is_utf8(array.dictionary), True)  # the last stands for null
        answer: Array = known[array.indices.cast(pa.int64()).fill_null(-1).to_numpy()]
        return answer
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return np.ones(len(array), bool)
    if _is_ascii(array):
        return np.ones(len(array), bool)
    try:
        array.validate(full=True)
        return np.ones(len(array), bool)
    except pa.ArrowInvalid:
        return np.array([_decodes(value) for value in _as_binary(array).to_pylist()])


def _is_ascii(array: pa.Array) -> bool:
    """Ten times faster than asking Arrow, and true of most text. What lies outside the slice is looked at too."""
    data = array.buffers()[2]
    return data is None or not data.size or int(np.frombuffer(data, "u1").max()) < 128


def _decodes(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
        return True
    except UnicodeDecodeError:
        return False


def _without_unused(array: pa.Array) -> pa.Array:
    """A dictionary keeps the bad values of rows that are gone, unless it is made anew."""
    if not pa.types.is_dictionary(array.type):
        return array
    return array.dictionary_decode().dictionary_encode().cast(array.type)


def _as_binary(array: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        return _as_binary(array.dictionary_decode())
    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.large_binary()) if pa.types.is_large_string(array.type) else array
