"""Input file: a file, here or on the hub -> its bytes, size and identity, and the errors for one that cannot be used.

A file of the hub is read at a commit, through the `datasets` library.
"""

from __future__ import annotations

import importlib
import io
import os
from typing import Any

from penstock.base.errors import ConfigError, InputError, PenstockError
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest

_ENDS = 64 * 1024


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
    return InputError(what, where=where, next_step=f"{action}, or set `on_bad_input: set_aside` to go on without it")


def was_changed(what: str, location: str) -> InputError:
    return InputError(
        what, where=location, next_step="let nothing write to the input during a run, then run the same command"
    )


def first_line(error: BaseException, lines: int = 1) -> str:
    """A library's error message, in a line."""
    return " ".join(str(error).strip().splitlines()[:lines]) or type(error).__name__
