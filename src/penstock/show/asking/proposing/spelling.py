"""Spelling: the first bytes of text files -> the options of `input:` that they need. Used by looking.py."""

import codecs
import csv
import io
from collections.abc import Iterable
from typing import Any

from penstock.prepare.sources import File
from penstock.prepare.sources.reading.csv_records import likely_delimiter
from penstock.prepare.sources.reading.encodings import marked_encoding
from penstock.prepare.sources.reading.input_file import BreaksOff, open_text

_LOOK_BYTES = 1 << 20
_GUESSES = ("cp1252", "latin-1")  # what text without a mark is in, if it is not UTF-8; latin-1 takes all bytes


def spelling_of(files: Iterable[File]) -> dict[str, Any]:
    """`encoding` of text that is not UTF-8, `delimiter` of CSV without commas, `newlines_in_values` of CSV whose values
    span lines; nothing if all is as usual."""
    options: dict[str, Any] = {}
    for file in files:
        if file.format not in ("csv", "jsonl", "text"):
            continue
        head = _head(file)
        encoding = marked_encoding(head) or _guessed_encoding(head)
        if encoding:
            options.setdefault("encoding", encoding)
        if file.format == "csv":
            is_tabbed = ".tsv" in file.location.lower()
            text = head.decode(encoding or "utf-8", "replace")
            delimiter = "" if is_tabbed else likely_delimiter(text.partition("\n")[0].encode(), ",")
            if delimiter:
                options.setdefault("delimiter", delimiter)
            if _spans_lines(text, delimiter or ("\t" if is_tabbed else ","), len(head) < _LOOK_BYTES):
                options["newlines_in_values"] = True
    return options


def _spans_lines(text: str, delimiter: str, is_whole: bool) -> bool:
    """Whether values hold newlines between quotes, and every row has as many values as the header then."""
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=is_whole))
    except csv.Error:  # a quote stays open, for example
        return False
    rows = rows if is_whole else rows[:-1]
    has_newline = any("\n" in value for row in rows for value in row)
    return has_newline and all(len(row) in (0, len(rows[0])) for row in rows)


def _head(file: File) -> bytes:
    try:
        with open_text(file.location) as stream:
            return stream.read(_LOOK_BYTES)
    except (OSError, BreaksOff):  # the survey says what is wrong with it
        return b""


def _guessed_encoding(head: bytes) -> str:
    if b"\0" in head:  # no text
        return ""
    for name in ("utf-8", *_GUESSES):
        try:
            codecs.getincrementaldecoder(name)().decode(head)
        except UnicodeDecodeError:
            continue
        return "" if name == "utf-8" else name
    return ""
