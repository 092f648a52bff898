"""Remote file: a file of the hub, at a commit, read as if it lay here, through the `datasets` library."""

from __future__ import annotations

import importlib
import io
import os
from typing import Any

from penstock.base.errors import ConfigError, InputError, PenstockError
from penstock.base.files import ReadFile
from penstock.prepare.sources import first_line, is_remote


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
