"""Chunks: a file of CSV, JSONL or lines -> its bytes, decompressed, in chunks of whole records. Next: bad_records.py.

A record belongs to the segment in which its first byte lies.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import BinaryIO

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.rows import Array
from penstock.prepare.sources import File, UnreadablePart
from penstock.prepare.sources.reading.encodings import NoMark, marked_encoding
from penstock.prepare.sources.reading.input_file import (
    BreaksOff,
    identity_of_ends,
    is_streamed,
    open_input,
    open_text,
    unusable,
)
from penstock.prepare.sources.slices import Segment

Chunk = bytes | bytearray
Bytes = Chunk | memoryview
Ends = Callable[[Bytes], Array]  # where each record of some bytes ends
SAMPLE_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = 10
MOST_BYTES = 2**31 - 1  # that Arrow counts in a column of text
_COUNTED_BYTES = 512 << 20
_BEGIN_BYTES = 256 << 10  # of a line that is too long, for people
_LOOKED_AT_ONCE = 1 << 18  # so that looking for newlines takes no second copy of a long line


def pieces_of(file: File, begin: int, slice_bytes: int, whole: bool) -> tuple[Segment, ...]:
    """Byte ranges of about a slice. A file that is compressed, is not UTF-8, or cannot be cut is one piece."""
    with open_input(file.location) as handle:
        size = handle.seek(0, 2)
    identity = identity_of_ends(file.location)
    if is_streamed(file.location, file.encoding):  # `begin` counts bytes that come out of it, `size` those that go in
        return (file.segment(identity, -1, size, begin, begin + size, begin),)
    starts = [begin] if whole else list(range(begin, size, slice_bytes))
    stops = [*starts[1:], size]
    return tuple(
        file.segment(identity, -1, stop - start, start, stop, start)
        for start, stop in zip(starts, stops, strict=False)
        if stop > start
    )


def head_of(file: File, ends: Ends, at_least: bytes = b"") -> bytes:
    """The first whole records, about a megabyte of them. A first record that starts with `at_least` is read whole
    however long it is; otherwise what there is of it."""
    data, complete = b"", False
    try:
        with open_text(file.location, file.encoding) as stream:
            data = stream.read(SAMPLE_BYTES)
            refuse_marked(data, file)
            while at_least and data.startswith(at_least) and b"\n" not in data and (more := stream.read(len(data))):
                data += more
            complete = not stream.read(1)
    except NoMark as error:
        raise unusable(str(error), file.location, "name the right `encoding:`") from error
    except (pa.ArrowException, OSError, BreaksOff) as error:
        if isinstance(error, BreaksOff) and data:  # what there is can be used, and the reading tells of the break
            return data[: _last_end(data, ends)] or data
        raise unusable(f"cannot be decompressed: {error}", file.location) from error
    return data if complete else data[: _last_end(data, ends)] or data


def refuse_marked(data: bytes, file: File) -> None:
    """Raise InputError for a file that begins with the mark of an encoding that the job does not name."""
    if not file.encoding and (marked := marked_encoding(data)):
        what = f"the file is {marked}, as its first bytes say, and it is read as UTF-8"
        raise unusable(what, file.location, f"add `encoding: {marked}` to the input")


@dataclass(frozen=True)
class Overlong:
    """A line that is longer than may be held: how it begins, and how many bytes it has."""

    begin: bytes
    size: int


def read_chunks(segment: Segment, size: int, ends: Ends, most: int) -> Iterator[bytearray | Overlong]:
    """The segment's records, whole, in chunks of about `size` bytes; only the file's last may lack a newline. Of lines
    of more than `most` bytes, where records are lines, no more is held than that.

    Of a compressed file that ends in the middle the whole records, then BreaksOff. One that is damaged is unreadable
    as a whole: how much of it comes out before that is found depends on how much is asked for at a time.
    """
    try:
        most = most if ends is line_ends else 1 << 62
        for number, chunk in enumerate(_chunks(segment, size, ends, most)):
            if number == segment.first == 0 and isinstance(chunk, bytearray) and chunk.startswith(BYTE_ORDER_MARK):
                del chunk[: len(BYTE_ORDER_MARK)]
            if ends is line_ends:
                yield from _parts_of(chunk, most)
            elif chunk:
                yield chunk
    except MemoryError:  # the file is not to blame: the task is tried again with less
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadablePart(segment, 0, segment.ordinal, -1, str(error).partition("\n")[0]) from error


def _chunks(segment: Segment, size: int, ends: Ends, most: int) -> Iterator[bytearray | Overlong]:
    """Hands over what is held, without a copy: a record may be as large as all the memory that there is for it."""
    with open_text(segment.location, segment.encoding) as stream:
        left = _go_to_first_record(stream, segment)
        held, seen, look_at = bytearray(), 0, size
        try:
            while left > 0 and (data := stream.read(min(size, left))):
                left -= len(data)
                held += data
                if left <= 0:
                    _add_rest_of_record(stream, held, most)
                elif len(held) >= look_at:
                    chunk, held = _cut(held, _last_end(held, ends, seen))
                    # A quoted record longer than a chunk is looked through again when twice as much of it is here.
                    seen = len(held)
                    look_at = size if chunk else seen + (size if ends is line_ends else seen)
                    if chunk:
                        yield chunk
                while len(held) > most and len(held) - (start := held.rfind(b"\n") + 1) > most:
                    chunk, held = _cut(held, start)
                    if chunk:
                        yield chunk
                    passed = len(held)
                    del held[min(most, _BEGIN_BYTES) :]  # which a file that breaks off in it leaves
                    rest, more, left = _read_past_line(stream, size, left)
                    yield Overlong(bytes(held), passed + rest)
                    held, seen, look_at = bytearray(more), 0, size
                    if held and left <= 0:
                        _add_rest_of_record(stream, held, most)
        except BreaksOff as broken:
            chunk, held = _cut(held, _last_end(held, ends))
            if chunk:
                yield chunk
            raise BreaksOff(broken.reason, held) from broken
        if held:
            yield held


def _parts_of(chunk: bytearray | Overlong, most: int) -> Iterator[bytearray | Overlong]:
    """Whole lines of at most MOST_BYTES together, or one that is longer: one line may bring a chunk to any size."""
    for piece in [chunk] if isinstance(chunk, Overlong) else _without_overlong(chunk, most):
        while not isinstance(piece, Overlong) and len(piece) > MOST_BYTES:
            end = piece.rfind(b"\n", 0, MOST_BYTES) + 1 or piece.find(b"\n") + 1 or len(piece)
            part, piece = _cut(piece, end)
            yield part
        if piece:
            yield piece


def _cut(held: bytearray, end: int) -> tuple[bytearray, bytearray]:
    """(the bytes up to `end`, the others)."""
    if not end:
        return bytearray(), held
    rest = held[end:]
    del held[end:]
    return held, rest


def line_in_file(segment: Segment, line: int) -> int | None:
    """The number in its file of a line of the segment; None far into a file."""
    before = _lines_before(segment)
    return before + line if before >= 0 else None


@lru_cache(maxsize=4)  # every bad record of a segment asks
def _lines_before(segment: Segment) -> int:
    """Number of lines that end before the segment's first record; -1 far into a file.

    The file is read up to there, which only bad records ask for. Were it done for every slice of a large file, each
    with a bad record, the file would be read hundreds of times.
    """
    if segment.first > _COUNTED_BYTES:
        return -1
    lines, left, last = 0, segment.first, b"\n"
    with open_text(segment.location, segment.encoding) as stream:
        while left > 0 and (data := stream.read(min(left, 1 << 20))):
            lines += data.count(b"\n")
            left, last = left - len(data), data
    return lines + (not last.endswith(b"\n"))  # the record that is cut belongs to the segment before


def _go_to_first_record(stream: BinaryIO, segment: Segment) -> int:
    """Move to the first record that starts inside the segment; the answer is the bytes from there to its end."""
    if is_streamed(segment.location, segment.encoding):
        stream.read(segment.first)
        return 1 << 62
    left = segment.last - segment.first
    if segment.first == 0:
        return left
    stream.seek(segment.first - 1)
    while left > 0 and (piece := stream.read(4096)):
        newline = piece.find(b"\n")
        if newline >= 0:
            stream.seek(segment.last - left + newline)
            return left - newline
        left -= len(piece)
    return 0


def _add_rest_of_record(stream: BinaryIO, held: bytearray, most: int) -> None:
    """Add what follows a segment's end and still belongs to its last record, unless that becomes too long."""
    start = held.rfind(b"\n") + 1
    newline = 0 if held.endswith(b"\n") else -1
    while newline < 0 and len(held) - start <= most and (piece := stream.read(64 * 1024)):
        newline = piece.find(b"\n")
        held += piece if newline < 0 else piece[: newline + 1]


def _read_past_line(stream: BinaryIO, size: int, left: int) -> tuple[int, bytes, int]:
    """(bytes to the end of the line, what was read behind it of the segment, what is left of that)."""
    passed = 0
    while data := stream.read(min(size, left) if left > 0 else size):
        is_inside, left = left > 0, left - len(data)
        newline = data.find(b"\n")
        if newline >= 0:
            return passed + newline + 1, data[newline + 1 :] if is_inside else b"", left
        passed += len(data)
    return passed, b"", left


def _without_overlong(chunk: bytearray, most: int) -> Iterator[bytearray | Overlong]:
    """The chunk, or its pieces where whole lines in it are too long."""
    if len(chunk) <= most:
        yield chunk
        return
    stops = np.unique(np.append(line_ends(chunk), len(chunk)))
    starts = np.concatenate([[0], stops[:-1]])
    at = 0
    for number in np.flatnonzero(stops - starts > most).tolist():
        start, stop = int(starts[number]), int(stops[number])
        if start > at:
            yield chunk[at:start]
        yield Overlong(bytes(chunk[start : start + min(most, _BEGIN_BYTES)]), stop - start)
        at = stop
    if at < len(chunk):
        yield chunk[at:] if at else chunk


def line_ends(data: Bytes) -> Array:
    """Ends of lines, just after their newlines."""
    view = np.frombuffer(data, "u1")
    if len(view) <= _LOOKED_AT_ONCE:
        return np.flatnonzero(view == NEWLINE) + 1
    starts = range(0, len(view), _LOOKED_AT_ONCE)
    return np.concatenate(
        [np.flatnonzero(view[start : start + _LOOKED_AT_ONCE] == NEWLINE) + (start + 1) for start in starts]
    )


def _last_end(data: bytes | bytearray, ends: Ends, seen: int = 0) -> int:
    """End of the last whole record, 0 if there is none. No line ends within the first `seen` bytes."""
    if ends is line_ends:
        return data.rfind(b"\n", seen) + 1
    found = ends(data)
    return int(found[-1]) if len(found) else 0
