"""Bad records: turn a chunk of text into rows; what cannot become one is set aside with its text and the reason.

A chunk that does not parse is cut into pieces of 256 records. In a piece that does not parse either, the parser
names the records that are bad at sight; the others are halved until the bad ones stand alone. Verdict and reason
depend on the record alone: not on its neighbours, nor on where chunks end.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.rows import Array, Rows, SetAside
from penstock.prepare.sources import Reading
from penstock.prepare.sources.reading import chunks
from penstock.prepare.sources.reading.bad_text import KEPT, naming, sound_text
from penstock.prepare.sources.reading.chunks import Bytes, Chunk, Ends
from penstock.prepare.sources.reading.input_file import BreaksOff
from penstock.prepare.sources.slices import Segment

BROKEN_OFF = "the file breaks off"
TOO_LARGE_RECORD = "record too large for this memory"
_PIECE_RECORDS = 256  # fewer make more calls of the parser, more make more good records to look at
_ROW_NUMBER = re.compile(r"(Row #\d+: | in row \d+$)")  # of the parser's own input: it says nothing to a person


class Parser(Protocol):
    """One format. `parse` takes whole records; an ArrowException from it means that one or more are bad."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def blank(self) -> bytes:
        """A record of these characters alone is no record."""

    @property
    def ends(self) -> Ends: ...
    def parse(self, data: Bytes) -> pa.RecordBatch: ...
    def together(self, data: Chunk, starts: Array, ends: Array) -> bool:
        """Whether as many rows as records proves that each row is one of the records."""

    def refused(self, records: list[bytes]) -> dict[int, str]:
        """Number and reason of those that are bad at sight. The others can be parsed together."""

    def repaired(self, data: Chunk) -> Chunk | None:
        """Records of the same length, without what is no text; None where nothing was to be done, or asked."""


# Rows of a chunk. It is given the position of the first record, and how many lines stand before it.
MakeRows = Callable[[Chunk, Segment, int, int], Rows]


def read_records(segment: Segment, reading: Reading, ends: Ends, schema: pa.Schema, make: MakeRows) -> Iterator[Rows]:
    """The segment's records, chunk by chunk, each with its position and, where it is bad, its line."""
    ordinal, line = segment.ordinal, 0
    try:
        for chunk in chunks.read_chunks(segment, reading.bytes_at_once, ends, reading.most_record_bytes):
            if isinstance(chunk, chunks.Overlong):
                detail = (
                    f"it has {chunk.size:,} bytes, and this memory allows a record of {reading.most_record_bytes:,}"
                )
                aside = set_aside(chunk.begin, segment, ordinal, line + 1, detail, TOO_LARGE_RECORD)
                lines, rows = 1, only(aside, segment, schema)
            else:
                lines, rows = len(chunks.line_ends(chunk)), naming(make(chunk, segment, ordinal, line), segment)
            yield rows
            ordinal += len(rows) + sum(aside.count for aside in rows.set_aside)
            line += lines
    except BreaksOff as broken:
        aside = set_aside(broken.rest, segment, ordinal, line + 1, broken.reason, BROKEN_OFF)
        yield only(aside, segment, schema)


def only(aside: SetAside, segment: Segment, schema: pa.Schema) -> Rows:
    """Rows with no row, and one record set aside."""
    return Rows(_joined([], schema), segment.source, (segment.path,), np.arange(0), None, (aside,))


def parse_records(segment: Segment, reading: Reading, parser: Parser) -> Iterator[Rows]:
    """The segment's records, those that the parser takes as rows."""
    make = partial(parse_chunk, parser=parser, repair=reading.repairs(segment))
    return read_records(segment, reading, parser.ends, parser.schema, make)


def parse_chunk(data: Chunk, segment: Segment, ordinal: int, line: int, parser: Parser, repair: bool) -> Rows:
    """All records of a chunk: the good ones as rows, the bad ones set aside."""
    starts, ends = record_bounds(data, parser)
    batches: list[pa.RecordBatch] = []
    bad: dict[int, str] = {}
    batch = _whole(data, starts, ends, parser)
    if batch is None and repair and (mended := parser.repaired(data)):
        data = mended
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
    lines = cache(lambda: 1 + line + np.searchsorted(chunks.line_ends(data), starts, "right"))  # only bad records ask
    aside = tuple(
        set_aside(data[starts[number] : ends[number]], segment, ordinal + number, int(lines()[number]), reason)
        for number, reason in sorted(bad.items())
    )
    batch = _joined(batches, parser.schema)
    rows = Rows(batch, segment.source, (segment.path,), ordinal + np.flatnonzero(mask), None, aside)
    return sound_text(rows, repair, lambda row: chunks.line_in_file(segment, int(lines()[mask][row])))


def record_bounds(data: Chunk, parser: Parser) -> tuple[Array, Array]:
    """(starts, ends) of the records in `data`, without the blank ones."""
    view = np.frombuffer(data, "u1")
    ends = parser.ends(data)
    if len(view) and (not len(ends) or ends[-1] != len(view)):
        ends = np.append(ends, len(view))
    starts = np.concatenate([[0], ends[:-1]]).astype("i8")
    filled = ~np.isin(view[starts], np.frombuffer(parser.blank, "u1")) if len(ends) else np.ones(0, bool)
    for record in np.flatnonzero(~filled):
        filled[record] = bool(data[starts[record] : ends[record]].strip(parser.blank))
    return starts[filled], ends[filled]


def _whole(data: Chunk, starts: Array, ends: Array, parser: Parser) -> pa.RecordBatch | None:
    """The records as one batch, or None where one of them is bad."""
    if not len(starts) or not parser.together(data, starts, ends):
        return None
    return _parsed(memoryview(data)[starts[0] : ends[-1]], len(starts), parser)


def _parsed(data: Bytes, count: int, parser: Parser) -> pa.RecordBatch | None:
    try:
        batch = parser.parse(data)
    except MemoryError:  # the record is not to blame: the task is tried again with less
        raise
    except pa.ArrowException:
        return None
    return batch if batch.num_rows == count else None


def _search(data: Chunk, starts: Array, ends: Array, parser: Parser) -> tuple[list[pa.RecordBatch], dict[int, str]]:
    """(batches of the good records, number and reason of the bad ones)."""
    batch = _whole(data, starts, ends, parser)
    if batch is not None:
        return [batch], {}
    records = [bytes(data[start:end]) for start, end in zip(starts, ends, strict=True)]
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
    except MemoryError:
        raise
    except pa.ArrowException as error:
        return _ROW_NUMBER.sub("", str(error).partition("\n")[0])


def set_aside(
    raw: Chunk, segment: Segment, ordinal: int, line: int, detail: str, reason: str = "not a valid record"
) -> SetAside:
    text = bytes(raw[: 4 * KEPT]).rstrip(b"\r\n").decode("utf-8", "backslashreplace")[:KEPT]
    number = chunks.line_in_file(segment, line)
    place = {} if number is None else {"line": number}
    return segment.set_aside(ordinal, reason, **place, detail=detail, raw=text)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    return table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
