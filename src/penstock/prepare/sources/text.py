"""Text: what CSV and JSONL share. A file's bytes, decompressed, in chunks of whole records. Next: bad_records.py.

A record belongs to the segment in which its first byte lies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, BinaryIO, cast

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.prepare.slices import Segment
from penstock.prepare.sources import File, UnreadablePart, compression_of, identity_of_ends

Array = np.ndarray[Any, Any]
Bytes = bytes | bytearray | memoryview
Ends = Callable[[Bytes], Array]  # where each record of some bytes ends
SAMPLE_BYTES = 1 << 20
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
NEWLINE = 10
_COUNTED_BYTES = 512 << 20


def pieces_of(file: File, begin: int, slice_bytes: int, whole: bool) -> tuple[Segment, ...]:
    """Byte ranges of about a slice; a compressed file, or one that cannot be cut, is one piece."""
    with ReadFile(file.location) as handle:
        size = handle.seek(0, 2)
    identity = identity_of_ends(file.location)
    if compression_of(file.location):  # `begin` counts bytes that come out of it, `size` those that go in
        return (Segment(file.source, file.path, file.location, identity, begin, begin + size, begin, -1, size),)
    starts = [begin] if whole else list(range(begin, size, slice_bytes))
    stops = [*starts[1:], size]
    return tuple(
        Segment(file.source, file.path, file.location, identity, start, stop, start, -1, stop - start)
        for start, stop in zip(starts, stops, strict=False)
        if stop > start
    )


def open_text(location: str) -> BinaryIO:
    """The file's bytes, decompressed where its name says so."""
    handle = ReadFile(location)
    compression = compression_of(location)
    if compression is None:
        return cast(BinaryIO, handle)
    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(handle, "r"), compression))


def head_of(file: File, ends: Ends, at_least: bytes = b"") -> bytes:
    """The first whole records, about a megabyte of them. A first record that starts with `at_least` is read whole
    however long it is; otherwise what there is of it."""
    try:
        with open_text(file.location) as stream:
            data = stream.read(SAMPLE_BYTES)
            while at_least and data.startswith(at_least) and b"\n" not in data and (more := stream.read(len(data))):
                data += more
            complete = not stream.read(1)
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"cannot be decompressed: {error}",
            where=file.location,
            next_step="replace the file, or set `on_bad_input: set_aside` to go on without it",
        ) from error
    return data if complete else data[: _last_end(data, ends)] or data


def read_chunks(segment: Segment, size: int, ends: Ends) -> Iterator[bytes]:
    """The segment's records, whole, in chunks of about `size` bytes; only the file's last may lack a newline.

    A compressed file that breaks off is unreadable as a whole: how much of it comes out before the break would
    depend on how much is asked for at a time.
    """
    try:
        for number, chunk in enumerate(_chunks(segment, size, ends)):
            yield chunk.removeprefix(BYTE_ORDER_MARK) if number == segment.first == 0 else chunk
    except (pa.ArrowException, OSError) as error:
        raise UnreadablePart(segment, 0, segment.ordinal, -1, str(error).partition("\n")[0]) from error


def _chunks(segment: Segment, size: int, ends: Ends) -> Iterator[bytes]:
    with open_text(segment.location) as stream:
        left = _go_to_first_record(stream, segment)
        held, seen, look_at = bytearray(), 0, 0
        while left > 0 and (data := stream.read(min(size, left))):
            left -= len(data)
            held += data
            if left <= 0:
                held += _rest_of_record(stream, held)
            elif ends is line_ends or len(held) >= look_at:
                end = _last_end(held, ends, seen)
                if end:
                    yield bytes(memoryview(held)[:end])
                    del held[:end]
                # A quoted record longer than a chunk is looked through again when twice as much of it is here.
                seen, look_at = len(held), 0 if end else 2 * len(held)
        if held:
            yield bytes(held)


@lru_cache(maxsize=4)
def lines_before(segment: Segment) -> int:
    """How many lines end before the segment's first record; -1 far into a file.

    The file is read up to there, which only bad records ask for. Were it done for every slice of a large file, each
    with a bad record, the file would be read hundreds of times.
    """
    if segment.first > _COUNTED_BYTES:
        return -1
    lines, left, last = 0, segment.first, b"\n"
    with open_text(segment.location) as stream:
        while left > 0 and (data := stream.read(min(left, 1 << 20))):
            lines += data.count(b"\n")
            left, last = left - len(data), data
    return lines + (not last.endswith(b"\n"))  # the record that is cut belongs to the segment before


def _go_to_first_record(stream: BinaryIO, segment: Segment) -> int:
    """Move to the first record that starts inside the segment; the answer is the bytes from there to its end."""
    if compression_of(segment.location):
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


def _rest_of_record(stream: BinaryIO, data: bytes | bytearray) -> bytes:
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


def line_ends(data: Bytes) -> Array:
    """Where each line ends, just after its newline."""
    return np.flatnonzero(np.frombuffer(data, "u1") == NEWLINE) + 1


def _last_end(data: bytes | bytearray, ends: Ends, seen: int = 0) -> int:
    """Where the last whole record ends, 0 where there is none. No line ends within the first `seen` bytes."""
    if ends is line_ends:
        return data.rfind(b"\n", seen) + 1
    found = ends(data)
    return int(found[-1]) if len(found) else 0


def plain_type(kind: pa.DataType) -> pa.DataType:
    """What is inferred from text: bool, int64, float64, string. Times must be declared, or they stay text.

    Text that is not UTF-8 is inferred as binary; it is text all the same, and its bad rows are set aside.
    """
    is_a = pa.types
    return pa.string() if is_a.is_temporal(kind) or is_a.is_binary(kind) else kind
