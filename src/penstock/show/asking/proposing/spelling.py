"""Spelling: the first bytes of text files -> the options of `input:` that they need. Used by looking.py."""

import codecs
from collections.abc import Iterable

from penstock.prepare.sources import File
from penstock.prepare.sources.reading.csv_records import likely_delimiter
from penstock.prepare.sources.reading.encodings import marked_encoding
from penstock.prepare.sources.reading.input_file import BreaksOff, open_text

_LOOK_BYTES = 1 << 20
_GUESSES = ("cp1252", "latin-1")  # what text without a mark is in, if it is not UTF-8; latin-1 takes all bytes


def spelling_of(files: Iterable[File]) -> dict[str, str]:
    """`encoding` of text that is not UTF-8, and `delimiter` of CSV that has no commas; nothing if all is as usual."""
    options: dict[str, str] = {}
    for file in files:
        if file.format not in ("csv", "jsonl", "text"):
            continue
        head = _head(file)
        encoding = marked_encoding(head) or _guessed_encoding(head)
        if encoding:
            options.setdefault("encoding", encoding)
        if file.format == "csv" and ".tsv" not in file.location.lower():
            header = head.decode(encoding or "utf-8", "replace").partition("\n")[0].encode()
            if delimiter := likely_delimiter(header, ","):
                options.setdefault("delimiter", delimiter)
    return options


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
