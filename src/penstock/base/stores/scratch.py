"""Scratch: local files without a name, for what will be copied elsewhere or read again by the same process."""

import mmap
import os
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from penstock.base.files import WriteFile, doing, unique_name


class Scratch(WriteFile):
    """A file without a name; the kernel removes it with its last user.

    A process uses its scratch files again and again: overwriting pages that are in memory costs a quarter of
    finding new ones (benchmarks/LOG.md).
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = os.path.join(folder, unique_name("scratch"))
        with doing("create the folder", folder, "mkdir"):
            os.makedirs(folder, exist_ok=True)
        super().__init__(path, os.O_RDWR | os.O_EXCL)
        os.unlink(path)

    @property
    def name(self) -> str:
        return self.path

    def fileno(self) -> int:
        return self._descriptor

    read_range = WriteFile.read_at

    def opened(self) -> AbstractContextManager[Self]:
        return nullcontext(self)

    def map(self) -> mmap.mmap:
        """Its bytes, mapped read-only. They stay when the file is closed."""
        with doing("map", self.path, "open"):
            return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)

    def rewind(self) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = 0


_spare: dict[str, list[Scratch]] = {}  # by folder, so that a copy never crosses file systems


def borrow_scratch(folder: str) -> Scratch:
    spare = _spare.setdefault(folder, [])
    return spare.pop() if spare else Scratch(folder)


def return_scratch(scratch: Scratch) -> None:
    scratch.rewind()
    _spare[scratch.folder].append(scratch)


def release_scratch(folder: str) -> None:
    """Free the disk space of this process's scratch files in that folder."""
    for scratch in _spare.pop(folder, []):
        scratch.close()
