"""Encodings: a stream of text in any encoding -> the same text as UTF-8, a piece at a time. Used by input_file.py.

Bytes that mean nothing in the encoding become 0xff, which is never part of UTF-8: whoever reads the text finds the row
that has them, as in a file that claims to be UTF-8.
"""

from __future__ import annotations

import codecs
from typing import BinaryIO

_READ_AT_ONCE = 1 << 20
_UTF8 = ("utf-8", "utf-8-sig")
_NO_TEXT = ("idna", "punycode", "unicode-escape", "raw-unicode-escape", "undefined", "utf-7")
_MARKS = {  # the longer ones first: that of utf-32 begins like that of utf-16
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_UNDECODABLE = "penstock.undecodable"
_NO_CHARACTER = "\udcff"  # half of a pair: no text has it


def _undecodable(error: UnicodeError) -> tuple[str | bytes, int]:
    """Bytes without a meaning -> _NO_CHARACTER -> 0xff."""
    if isinstance(error, UnicodeEncodeError):
        return b"\xff" * (error.end - error.start), error.end
    assert isinstance(error, UnicodeDecodeError)
    return _NO_CHARACTER, error.end


codecs.register_error(_UNDECODABLE, _undecodable)


def known_encoding(name: str) -> str:
    """The name that Python has for an encoding; nothing for UTF-8. Raises ValueError for one that it does not know."""
    if not name:
        return ""
    try:
        found = codecs.lookup(name)
        found.incrementaldecoder("strict").decode(b"")
    except (LookupError, TypeError, AttributeError, UnicodeError, AssertionError) as error:
        raise ValueError(f"{name!r} is not a text encoding; write latin-1, cp1252, utf-16, shift_jis, ...") from error
    text_only = getattr(found, "_is_text_encoding", True)
    if not text_only or found.name.replace("_", "-") in _NO_TEXT:
        raise ValueError(f"{name!r} is not an encoding of files; write latin-1, cp1252, utf-16, shift_jis, ...")
    return "" if found.name in _UTF8 else found.name


def marked_encoding(data: bytes | bytearray) -> str:
    """The encoding, other than UTF-8, whose mark some text begins with; nothing if there is none."""
    return next((name for mark, name in _MARKS.items() if data.startswith(mark)), "")


class NoMark(OSError):
    """Text of an encoding whose mark says the order of its bytes does not begin with that mark."""

    def __init__(self, encoding: str) -> None:
        super().__init__(
            f"it does not begin with the mark of {encoding}; if it is {encoding} without one, the encoding is "
            f"{encoding}-le or {encoding}-be"
        )


class Decoded:
    """A stream of bytes in some encoding, read as UTF-8. It holds a megabyte of the file at a time."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._encoding = stream, encoding
        self._decoder = codecs.getincrementaldecoder(encoding)(_UNDECODABLE)
        self._held = bytearray()
        self._ended = False
        self._broken: Exception | None = None  # raised when what came before it is given

    def __enter__(self) -> Decoded:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.__exit__(None, None, None)

    def read(self, size: int) -> bytes:
        """Read the requested bytes; fewer only at the end, or where the stream breaks."""
        while len(self._held) < size and not self._ended and not self._broken:
            self._take(min(size, _READ_AT_ONCE))
        if self._broken and not self._held:
            raise self._broken
        found = bytes(self._held[:size])
        del self._held[:size]
        return found

    def _take(self, size: int) -> None:
        try:
            data = self._stream.read(size)
        except Exception as error:
            self._broken = error
            return
        self._ended = not data
        try:
            self._held += self._decoder.decode(data, self._ended).encode("utf-8", _UNDECODABLE)
        except UnicodeError:  # no byte of it is bad: `_undecodable` would have taken that
            self._broken = NoMark(self._encoding)
