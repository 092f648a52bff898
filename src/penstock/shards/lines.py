"""Lines: a position in a file of lines -> the number of the line, counted by reading the file. Used with origins.py."""

import os
from collections.abc import Iterator
from typing import BinaryIO

from penstock.base.errors import InputError
from penstock.shards import arrow as pa

_RECORDS = (".jsonl", ".ndjson", ".json")  # a blank line is no record
_LINES = (*_RECORDS, ".txt", ".text", ".md")
_COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_AT_ONCE = 1 << 20


def line_of(path: str, first: int, position: int) -> int | None:
    """Number of the line, from 1, that has this position. None if the file has no lines that are records.

    A position is the byte where a piece of the file begins (`first`), plus the number of the record in that piece. A
    record is of the piece in which its first byte lies.
    """
    name, ending = os.path.splitext(path)
    compression = _COMPRESSED.get(ending)
    if not (name if compression else path).endswith(_LINES):
        return None
    skips_blank = (name if compression else path).endswith(_RECORDS)
    record, place = first - 1, 0
    try:
        with _open(path, compression) as stream:
            for number, line in enumerate(_lines(stream), start=1):
                if place >= first and not (skips_blank and not line.strip()):
                    record += 1
                    if record == position:
                        return number
                place += len(line)
    except OSError as error:
        raise InputError(f"the line cannot be counted: {error.strerror or error}", where=path) from error
    raise InputError(
        f"the file has no record at position {position:,}: it is not the one that the dataset was made of",
        where=path,
        next_step="give the folder with the input of this dataset",
    )


def _open(path: str, compression: str | None) -> BinaryIO:
    return pa.input_stream(path, compression=compression) if compression else open(path, "rb")


def _lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines with their ends, some at a time: streams of Arrow have no lines."""
    rest = b""
    while data := stream.read(_AT_ONCE):
        *whole, rest = (rest + data).split(b"\n")
        yield from (line + b"\n" for line in whole)
    if rest:
        yield rest
