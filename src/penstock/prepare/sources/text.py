"""Text: what CSV and JSONL share. Whole records in chunks of bytes, and the search for the bad ones.

A record belongs to the segment in which its first byte lies. A chunk that does not parse is halved until the
bad records stand alone: good ones always go through the same parser, so a neighbour cannot change a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.prepare.rows import Rows, SetAside, rejected_line
from penstock.prepare.slices import Segment
from penstock.prepare.sources import File, UnreadablePart, compression_of, identity_of_ends

Array = np.ndarray[Any, Any]
Parser = Callable[[memoryview], pa.RecordBatch]
_RAW_KEPT = 64 * 1024  # characters of a bad record kept in rejected/
_NEWLINE = 10


def pieces_of(file: File, begin: int, slice_bytes: int, whole: bool) -> tuple[Segment, ...]:
    """Byte ranges of about a slice; a compressed file, or one that cannot be cut, is one piece."""
    with ReadFile(file.location) as handle:
        size = handle.seek(0, 2)
    identity = identity_of_ends(file.location, size)
    whole = whole or compression_of(file.location) is not None
    starts = [begin] if whole else list(range(begin, max(size, begin + 1), slice_bytes))
    stops = [*starts[1:], max(size, begin)]
    return tuple(
        Segment(file.source, file.path, file.location, identity, start, stop, start, -1, stop - start)
        for start, stop in zip(starts, stops, strict=True)
        if stop > start
    )


def open_text(location: str) -> BinaryIO:
    """The file's bytes, decompressed where its name says so."""
    handle = ReadFile(location)
    compression = compression_of(location)
    if compression is None:
        return cast(BinaryIO, handle)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(handle, "r"), compression))


def head_of(file: File, size: int) -> bytes:
    """The first `size` bytes at most, cut after a newline where there is one."""
    try:
        with open_text(file.location) as stream:
            data = stream.read(size)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be decompressed: {error}",
            where=file.location,
            next_step="replace the file, or set `on_bad_input: set_aside` to go on without it",
        ) from error
    return data[: data.rfind(b"\n") + 1] or data


def read_chunks(segment: Segment, size: int, quoted: bool) -> Iterator[bytes]:
    """The segment's records, whole, in chunks of about `size` bytes; only the file's last may lack a newline.

    A compressed file that breaks off is unreadable as a whole: how much of it comes out before the break would
    depend on how much is asked for at a time.
    """
    try:
        yield from _chunks(segment, size, quoted)
    except (pa.ArrowException, OSError) as error:
        raise UnreadablePart(segment, 0, segment.ordinal, -1, str(error).partition("\n")[0]) from error


def _chunks(segment: Segment, size: int, quoted: bool) -> Iterator[bytes]:
    compressed = compression_of(segment.location) is not None
    with open_text(segment.location) as stream:
        left = 1 << 62 if compressed else segment.last - segment.first
        rest = b""
        if not compressed:
            left += _skip_to_record(stream, segment)
        else:
            stream.read(segment.first)
        while left > 0:
            data = stream.read(min(size, left))
            if not data:
                break
            left -= len(data)
            rest += data
            if left <= 0:
                rest += _rest_of_record(stream, rest)
                break
            end = _last_record_end(rest, quoted)
            if end:
                yield rest[:end]
                rest = rest[end:]
        if rest:
            yield rest


def _skip_to_record(stream: BinaryIO, segment: Segment) -> int:
    """Move to the first record that starts inside the segment; the answer is minus the bytes passed over."""
    if segment.first == 0:
        return 0
    stream.seek(segment.first - 1)
    skipped = 0
    while piece := stream.read(4096):
        newline = piece.find(b"\n")
        if newline >= 0:
            skipped += newline
            stream.seek(segment.first + skipped)
            return -skipped
        skipped += len(piece)
    return -skipped


def _rest_of_record(stream: BinaryIO, data: bytes) -> bytes:
    """What follows a segment's end and still belongs to its last record."""
    if data.endswith(b"\n"):
        return b""
    pieces = []
    while piece := stream.read(64 * 1024):
        newline = piece.find(b"\n")
        pieces.append(piece if newline < 0 else piece[: newline + 1])
        if newline >= 0:
            break
    return b"".join(pieces)


def record_ends(data: bytes | memoryview, quoted: bool) -> Array:
    """Where each record ends, just after its newline. With `quoted`, a newline between quotes ends nothing."""
    view = np.frombuffer(data, "u1")
    newlines = view == _NEWLINE
    if quoted:
        newlines &= np.cumsum(view == ord('"')) % 2 == 0
    ends = np.flatnonzero(newlines) + 1
    if len(view) and (not len(ends) or ends[-1] != len(view)):
        ends = np.append(ends, len(view))
    return ends


def _last_record_end(data: bytes, quoted: bool) -> int:
    if not quoted:
        return data.rfind(b"\n") + 1
    ends = record_ends(data, quoted)
    closed = ends[:-1] if len(ends) and not data.endswith(b"\n") else ends
    return int(closed[-1]) if len(closed) else 0


def parse_chunk(data: bytes, segment: Segment, ordinal: int, parse: Parser, quoted: bool, schema: pa.Schema) -> Rows:
    """All records of a chunk: the good ones as rows, the bad ones set aside with their text and the reason."""
    ends = record_ends(data, quoted)
    starts = np.concatenate([[0], ends[:-1]]).astype("i8")
    filled = _not_blank(data, starts, ends)
    starts, ends = starts[filled], ends[filled]
    good, bad = _search(memoryview(data), starts, ends, parse)
    batches = [batch for _, batch in good]
    table = pa.Table.from_batches(batches, schema=schema).combine_chunks()
    batch = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=schema)
    mask = np.ones(len(starts), bool)
    mask[[number for number, _ in bad]] = False
    ordinals = ordinal + np.flatnonzero(mask)
    aside = tuple(
        _bad_record(data[starts[number] : ends[number]], segment, ordinal + number, reason) for number, reason in bad
    )
    return drop_bad_text(Rows(batch, segment.source, segment.path, ordinals, set_aside=aside))


def count_records(data: bytes, quoted: bool) -> int:
    ends = record_ends(data, quoted)
    return int(_not_blank(data, np.concatenate([[0], ends[:-1]]).astype("i8"), ends).sum())


def _not_blank(data: bytes, starts: Array, ends: Array) -> Array:
    lengths = ends - starts
    filled = lengths > 2
    for row in np.flatnonzero(~filled):
        filled[row] = bool(data[starts[row] : ends[row]].strip())
    return filled


def _search(
    data: memoryview, starts: Array, ends: Array, parse: Parser
) -> tuple[list[tuple[int, pa.RecordBatch]], list[tuple[int, str]]]:
    """(batches of good records, [(number, reason)] of bad ones), by halving whatever does not parse."""
    good: list[tuple[int, pa.RecordBatch]] = []
    bad: list[tuple[int, str]] = []
    pending = [(0, len(starts))]
    while pending:
        low, high = pending.pop()
        if low == high:
            continue
        try:
            batch = parse(data[starts[low] : ends[high - 1]])
            if batch.num_rows != high - low:
                raise pa.ArrowInvalid(f"{batch.num_rows} records on {high - low} lines")
            good.append((low, batch))
        except pa.ArrowException as error:
            if high - low == 1:
                bad.append((low, str(error).partition("\n")[0]))
            else:
                middle = (low + high) // 2
                pending += [(middle, high), (low, middle)]
    return good, bad


def _bad_record(raw: bytes, segment: Segment, ordinal: int, detail: str) -> SetAside:
    text = raw.rstrip(b"\r\n").decode("utf-8", "backslashreplace")[:_RAW_KEPT]
    line = rejected_line(segment.source, segment.path, ordinal, "not a valid record", detail=detail, raw=text)
    return SetAside("not a valid record", 1, (line,))


def drop_bad_text(rows: Rows) -> Rows:
    """Set aside rows whose text is not UTF-8: Arrow reads such bytes without a word."""
    good = np.ones(len(rows), bool)
    for name, array in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
        if pa.types.is_string(array.type) or pa.types.is_large_string(array.type):
            good &= _is_utf8(rows.batch.column(name))
    if good.all():
        return rows
    binary = pa.RecordBatch.from_arrays(
        [_as_binary(array) for array in rows.batch.columns], names=rows.batch.schema.names
    )
    marked = rows.with_batch(binary).keep(good, "text is not UTF-8", keep_rejected=True)
    return marked.with_batch(rows.batch.filter(pa.array(good)))


def _is_utf8(array: pa.Array) -> Array:
    try:
        array.validate(full=True)
        return np.ones(len(array), bool)
    except pa.ArrowInvalid:
        return np.array([_decodes(value) for value in _as_binary(array).to_pylist()])


def _decodes(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
        return True
    except UnicodeDecodeError:
        return False


def _as_binary(array: pa.Array) -> pa.Array:
    if pa.types.is_string(array.type):
        return array.cast(pa.binary())
    return array.cast(pa.large_binary()) if pa.types.is_large_string(array.type) else array


def plain_type(kind: pa.DataType) -> pa.DataType:
    """What is inferred from text: bool, int64, float64, string. Times must be declared, or they stay text."""
    is_a = pa.types
    if is_a.is_temporal(kind):
        return pa.string()
    return kind
