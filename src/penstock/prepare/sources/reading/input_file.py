"""Input file: a file, here or on the hub -> its bytes, decompressed; its identity; errors for one that cannot be used.

A file of the hub is read at a commit, through the `datasets` library.
"""

from __future__ import annotations

import importlib
import io
import os
import zlib
from contextlib import closing, suppress
from typing import Any, BinaryIO, cast

import pyarrow as pa

from penstock.base.errors import ConfigError, InputError, PenstockError
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.prepare.sources.reading.encodings import Decoded
from penstock.prepare.sources.registry import compression_of

_ENDS = 64 * 1024
_READ_AT_ONCE = 64 * 1024
_GZIP = 31  # tells zlib to expect gzip's header and checksum


def is_remote(location: str) -> bool:
    return "://" in location


def open_input(location: str) -> ReadFile | RemoteFile:
    return RemoteFile(location) if is_remote(location) else ReadFile(location)


class RemoteFile(io.RawIOBase):
    """Open for reading. That it cannot be reached says nothing about what is in it, and is an error of its own."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self.path = location
        self._file: Any = None
        opener = library("datasets.utils.file_utils").xopen  # it tries again where a connection breaks
        self._file = self._try(lambda: opener(location, "rb"))

    def _try(self, action: Any) -> Any:
        try:
            return action()
        except PenstockError:
            raise
        except Exception as error:
            raise unreachable(error, self.path) from error

    def read(self, size: int | None = -1, /) -> bytes:
        data: bytes = self._try(lambda: self._file.read(-1 if size is None else size))
        return data

    def readinto(self, buffer: Any, /) -> int:
        data = self.read(len(memoryview(buffer).cast("B")))
        memoryview(buffer).cast("B")[: len(data)] = data
        return len(data)

    def seek(self, place: int, whence: int = 0, /) -> int:
        return int(self._try(lambda: self._file.seek(place, whence)))

    def tell(self) -> int:
        return int(self._file.tell())

    @property
    def size(self) -> int | None:
        size = getattr(self._file, "size", None)
        return None if size is None else int(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def open_text(location: str, encoding: str = "") -> BinaryIO:
    """The file's bytes, decompressed where its name says so, as UTF-8 where `encoding` is another."""
    stream = cast(BinaryIO, Unpacked(location) if compression_of(location) else open_input(location))
    return cast(BinaryIO, Decoded(stream, encoding)) if encoding else stream


def is_streamed(location: str, encoding: str) -> bool:
    """Whether the text can only be read from its start: its bytes are not those of the file."""
    return bool(encoding or compression_of(location))


class BreaksOff(Exception):
    """A compressed file ends in the middle. `rest` is what came out of it behind the last whole record."""

    def __init__(self, reason: str, rest: bytes | bytearray = b"") -> None:
        super().__init__(reason)
        self.reason, self.rest = reason, rest


class Unpacked:
    """A compressed file's bytes. Of one that ends in the middle every byte that can be had, then BreaksOff.

    Arrow's decompressor loses what it has made of the bytes before the break if it is asked for more. So it is asked
    anew from the start, for less and less at a time: how much comes out does not depend on how much was asked for.
    Gzipped gives these bytes before it raises.
    """

    def __init__(self, location: str) -> None:
        self._location = location
        self._given, self._broken = 0, ""
        self._stream = self._open()

    def _open(self) -> Any:
        compression, file = compression_of(self._location), open_input(self._location)
        return (
            Gzipped(file) if compression == "gzip" else pa.CompressedInputStream(pa.PythonFile(file, "r"), compression)
        )

    def __enter__(self) -> Unpacked:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stream.close()

    def read(self, size: int) -> bytes:
        if self._broken:
            raise BreaksOff(self._broken)
        try:
            data: bytes = self._stream.read(size)
        except OSError as error:
            if "Truncated" not in str(error):
                raise
            self._broken = "it ends in the middle of its compressed data"
            data = b"" if isinstance(self._stream, Gzipped) else self._before_the_break(size)
            if not data:
                raise BreaksOff(self._broken) from error
        self._given += len(data)
        return data

    def _before_the_break(self, size: int) -> bytes:
        found = b""
        for step in (1 << 16, 1 << 8, 1):
            with closing(self._open()) as stream:
                _skip(stream, self._given + len(found))
                with suppress(OSError):
                    while len(found) < size and (more := stream.read(min(step, size - len(found)))):
                        found += more
        return found


def _skip(stream: Any, size: int) -> None:
    while size > 0:
        size -= len(stream.read(min(size, 1 << 20)))


class Gzipped:
    """The bytes of a gzip file, member after member. Zeros behind a member are padding, as for gzip(1).

    Raises OSError where the file is damaged, and one that says "Truncated" where it ends inside a member.
    """

    def __init__(self, file: Any) -> None:
        self._file = file
        self._packed = b""  # read, and not used yet
        self._member: Any = None  # None between members
        self._members = 0

    def close(self) -> None:
        self._file.close()

    def read(self, size: int) -> bytes:
        """Read the requested bytes; fewer only at the end."""
        pieces: list[bytes] = []
        while size > 0 and self._has_more():
            ended = not self._packed
            data = self._unpack(size)
            size -= len(data)
            pieces.append(data)
            if ended and not data and self._member:
                if any(pieces):
                    break
                raise OSError("Truncated gzip file")
        return b"".join(pieces)

    def _has_more(self) -> bool:
        """Whether a member is open, or another one follows."""
        self._packed = self._packed or self._file.read(_READ_AT_ONCE)
        while not self._member and self._members:
            self._packed = self._packed.lstrip(b"\0")
            if self._packed:
                break
            self._packed = self._file.read(_READ_AT_ONCE)
            if not self._packed:
                return False
        self._member = self._member or zlib.decompressobj(_GZIP)
        return True

    def _unpack(self, size: int) -> bytes:
        try:
            data: bytes = self._member.decompress(self._packed, size)
        except zlib.error as error:
            raise OSError(f"zlib: {error}") from error
        if self._member.eof:
            self._packed = self._member.unused_data
            self._member, self._members = None, self._members + 1
        else:
            self._packed = self._member.unconsumed_tail
        return data


def size_of(location: str) -> int | None:
    """Bytes of a file, here or afar, of which nothing is read; None where those who keep it do not tell."""
    if not is_remote(location):
        return os.path.getsize(location) if os.path.isfile(location) else None
    with RemoteFile(location) as file:
        return file.size


def identity_of_ends(location: str) -> str:
    """Size and hash of both ends: a file that was replaced or appended to gets another identity."""
    if is_remote(location):  # it names a commit, and what that holds does not change
        return digest(location.encode())
    with ReadFile(location) as handle:
        size = os.fstat(handle.fileno()).st_size
        head = handle.read(_ENDS)
        tail = head
        if size > _ENDS:
            handle.seek(size - _ENDS)
            tail = handle.read(_ENDS)
    return f"{size}-{digest(head, tail)}"


def library(name: str = "datasets") -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            "a dataset's `split:` is read with the `datasets` library, which is not installed here",
            next_step="pip install 'penstock[hf]'",
        ) from error


def unreachable(error: BaseException, where: str) -> InputError:
    return InputError(
        f"it cannot be reached: {first_line(error)}",
        where=where,
        next_step="check the id, the network and, if the dataset is private, HF_TOKEN; then run the same command",
    )


def unusable(what: str, where: str, action: str = "replace the file") -> InputError:
    """The error for a file that `on_bad_input: set_aside` would leave out."""
    return InputError(what, where=where, next_step=f"{action}, or set `on_bad_input: set_aside` to continue without it")


def was_changed(what: str, location: str) -> InputError:
    return InputError(
        what,
        where=location,
        next_step="make sure that nothing writes to the input during a run, then run the same command",
    )


def first_line(error: BaseException, lines: int = 1) -> str:
    """A library's error message, in a line."""
    return " ".join(str(error).strip().splitlines()[:lines]) or type(error).__name__
