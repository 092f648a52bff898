"""Lines: positions in a file of lines -> the lines that have them, with their numbers. Used by documents.py.

A position is the byte where a piece of the file begins (`first`), plus the number of the record in that piece. A record
is of the piece in which its first byte lies.
"""

import os
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from penstock.shards import arrow as pa

_RECORDS = (".jsonl", ".ndjson", ".json")  # a blank line is no record
_TABLES = (".csv", ".tsv")  # nor is it a row
_LINES = (*_RECORDS, ".txt", ".text", ".md")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2"}
_AT_ONCE = 1 << 20


class Place(NamedTuple):
    """A position, and the byte where its piece of the file begins."""

    first: int
    position: int


class Line(NamedTuple):
    """A line without its end. `number` is counted from 1; None if the lines before were not read."""

    data: bytes
    number: int | None


def has_lines(path: str) -> bool:
    return _plain_name(path).endswith(_LINES)


def is_json(path: str) -> bool:
    return _plain_name(path).endswith(_RECORDS)


def is_table(path: str) -> bool:
    return _plain_name(path).endswith(_TABLES)


def is_tabbed(path: str) -> bool:
    return _plain_name(path).endswith(".tsv")


def lines_at(path: str, places: Iterable[Place], counts: bool) -> dict[Place, Line]:
    """The lines at these places; one that the file does not have is not among them. With `counts`, all lines before are
    read and counted; without, reading starts at the piece, unless the file is compressed."""
    wanted = sorted(set(places))
    if counts or _compression(path):
        return _found(path, wanted, 0)
    return {
        place: line
        for first in sorted({place.first for place in wanted})
        for place, line in _found(path, [each for each in wanted if each.first == first], first).items()
    }


def open_file(path: str) -> BinaryIO:
    """The file as a stream, without its compression."""
    compression = _compression(path)
    if not compression:
        return open(path, "rb")
    stream: BinaryIO = pa.input_stream(path, compression=compression)
    return stream


def _found(path: str, wanted: list[Place], start: int) -> dict[Place, Line]:
    """One reading from byte `start` on, which is the first of a piece, up to the last line that is wanted."""
    records = {place.first: place.first for place in wanted}  # position of the next record, by piece
    left, found, skips_blank = set(wanted), dict[Place, Line](), is_json(path) or is_table(path)
    with open_file(path) as stream:
        at = max(0, start - 1)  # a line that begins before the piece is not of it
        if at:
            stream.seek(at)
        for number, line in enumerate(_lines(stream), start=1):
            if not left:
                break
            is_whole = at >= start
            if is_whole and not (skips_blank and not line.strip()):
                for first in (first for first in records if first <= at):
                    place = Place(first, records[first])
                    records[first] += 1
                    if place in left:
                        left.discard(place)
                        found[place] = Line(line.rstrip(b"\n").removesuffix(b"\r"), None if start else number)
            at += len(line)
    return found


def _plain_name(path: str) -> str:
    name, ending = os.path.splitext(path.lower())
    return name if ending in _COMPRESSED else path.lower()


def _compression(path: str) -> str | None:
    return _COMPRESSED.get(os.path.splitext(path.lower())[1])


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends, some at a time: streams of Arrow have no lines. Long lines are joined once."""
    begun: list[bytes] = []
    while data := stream.read(_AT_ONCE):
        first, *others = data.split(b"\n")
        begun.append(first)
        if others:
            yield b"".join(begun) + b"\n"
            yield from (line + b"\n" for line in others[:-1])
            begun = [others[-1]]
    if rest := b"".join(begun):
        yield rest
