"""Tables: positions in a CSV file -> the values of the rows that have them, with their lines. Used by documents.py.

The header ends where the first piece begins. With quotes that may hold newlines, the file is one piece.
"""

import codecs
import csv
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from penstock.shards.rereading.lines import Place, is_tabbed, lines_at, open_file

_AT_ONCE = 1 << 20
_limit_in_use = threading.Lock()


class Row(NamedTuple):
    """The values of a row, as bytes. `number` is its first line, from 1; None if the lines before were not read."""

    values: list[bytes]
    number: int | None


def rows_at(path: str, options: Mapping[str, Any], places: Iterable[Place], counts: bool) -> dict[Place, Row]:
    """The rows at these places; one that the file does not have is not among them."""
    delimiter = options.get("delimiter") or ("\t" if is_tabbed(path) else ",")
    encoding = options.get("encoding") or "utf-8"
    with _values_of_any_size():
        if options.get("newlines_in_values") or options.get("encoding"):
            return _in_one_piece(path, delimiter, encoding, set(places))
        lines = lines_at(path, places, counts)
        return {place: Row(_values(line.data, delimiter), line.number) for place, line in lines.items()}


def _in_one_piece(path: str, delimiter: str, encoding: str, left: set[Place]) -> dict[Place, Row]:
    found = dict[Place, Row]()
    by_number = {place.position - place.first: place for place in left}
    with open_file(path) as stream:
        pieces = codecs.iterdecode(iter(lambda: stream.read(_AT_ONCE), b""), encoding, "surrogateescape")
        reader = csv.reader(_lines(pieces), delimiter=delimiter)
        next((values for values in reader if values), None)  # the header; blank lines may come before it
        line, record = reader.line_num + 1, 0
        for values in reader:
            if values:  # a blank line is no row
                if place := by_number.pop(record, None):
                    found[place] = Row([value.encode("utf-8", "surrogateescape") for value in values], line)
                record += 1
            if not by_number:
                break
            line = reader.line_num + 1
    return found


def _values(line: bytes, delimiter: str) -> list[bytes]:
    row = next(csv.reader([line.decode("utf-8", "surrogateescape")], delimiter=delimiter), [])
    return [value.encode("utf-8", "surrogateescape") for value in row]


def _lines(pieces: Iterable[str]) -> Iterator[str]:
    """Lines with their ends. They end with a newline, and with nothing else that Python takes for an end."""
    rest = ""
    for piece in pieces:
        *whole, rest = (rest + piece).split("\n")
        yield from (line + "\n" for line in whole)
    if rest:
        yield rest


@contextmanager
def _values_of_any_size() -> Iterator[None]:
    """Python's own parser refuses values of more than 128 KiB, unless the whole process is told otherwise."""
    with _limit_in_use:
        before = csv.field_size_limit(sys.maxsize)
        try:
            yield
        finally:
            csv.field_size_limit(before)
