"""Files: open files of this machine. Every operation is announced to faults.py, and errors name the path."""

import ctypes
import errno
import io
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from typing import Any, Protocol

from penstock.base.errors import file_error
from penstock.base.faults import operation

_BEGIN_TO_WRITE = 2  # SYNC_FILE_RANGE_WRITE
_WORTH_BEGINNING = 1 << 20  # bytes
_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


def unique_name(name: str) -> str:
    """A file name that no other process uses, on any machine or in any container. It ends like `name`."""
    return f"{os.urandom(8).hex()}-{os.path.basename(name)[-40:]}"


class Copyable(Protocol):
    """An open file whose bytes can be copied inside the kernel."""

    @property
    def name(self) -> str: ...
    def fileno(self) -> int: ...


@contextmanager
def doing(action: str, path: str, kind: str) -> Iterator[None]:
    """Announce the operation, and turn an OSError into an error that names the path."""
    try:
        operation(kind, path)
        yield
    except OSError as error:
        raise file_error(error, action, path) from error


def special_kind(path: str) -> str | None:
    """`FIFO`, `socket` or `device`, reading which may wait for ever; None for a file, and for a link to nothing."""
    try:
        return _KINDS.get(stat.S_IFMT(os.stat(path).st_mode))
    except OSError:
        return None


def _open_file(path: str, flags: int) -> int:
    """Open without waiting, and refuse what is not a file: a FIFO would wait for somebody to write to it."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    kind = _KINDS.get(stat.S_IFMT(os.fstat(descriptor).st_mode))
    if kind:
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"it is a {kind}, not a file")
    return descriptor


class ReadFile(io.FileIO):
    """A file open for reading."""

    def __init__(self, path: str) -> None:
        self.path = path
        with doing("open", path, "open"):
            super().__init__(path, "rb", opener=_open_file)

    def read(self, size: int | None = -1, /) -> bytes:
        with doing("read", self.path, "read"):
            return super().read(-1 if size is None else size) or b""

    def readinto(self, buffer: Any, /) -> int:
        with doing("read", self.path, "read"):
            return super().readinto(buffer) or 0


class WriteFile:
    """A file being written. `write` returns when every byte has been taken."""

    def __init__(self, path: str, flags: int, mode: int = 0o666) -> None:
        self.path = path
        self.size = 0
        with doing("create", path, "open"):
            self._descriptor = self._open(path, flags | os.O_CLOEXEC, mode)

    def _open(self, path: str, flags: int, mode: int) -> int:
        return os.open(path, flags | os.O_CREAT, mode)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        self.size += self._write_all(len(view), lambda done, most: os.write(self._descriptor, view[done : done + most]))

    def copy_range(self, source: Copyable, start: int, length: int) -> None:
        """Append `length` bytes of `source`, inside the kernel where it can."""
        descriptor = self._descriptor
        self.size += self._write_all(length, lambda done, most: _copy_some(source, descriptor, start + done, most))

    def _write_all(self, size: int, write_some: Callable[[int, int], int]) -> int:
        """Write `size` bytes: `write_some(done, most)` writes up to `most` of those after `done`; how many it took."""
        done = 0
        try:
            while done < size:
                done += write_some(done, operation("write", self.path, size - done))
        except OSError as error:
            raise file_error(error, "write", self.path) from error
        return size

    def read_at(self, start: int, length: int) -> bytes:
        with doing("read", self.path, "read"):
            return os.pread(self._descriptor, length, start)

    def sync(self) -> None:
        with doing("sync", self.path, "sync"):
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PlacedFile(WriteFile):
    """A file of a known size that several processes write at once, each its own ranges."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path, os.O_RDWR)
        with doing("make room for", path, "write"):
            os.ftruncate(self._descriptor, size)

    def begin_sync(self, start: int, length: int) -> None:
        """Where the system cannot be asked for that, `sync` waits longer."""
        if length >= _WORTH_BEGINNING and (begin := _sync_file_range()):
            begin(self._descriptor, start, length, _BEGIN_TO_WRITE)

    def write_at(self, start: int, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        self._write_all(
            len(view), lambda done, most: os.pwrite(self._descriptor, view[done : done + most], start + done)
        )

    def copy_at(self, start: int, source: Copyable, first: int, length: int) -> None:
        """`length` bytes of `source` from `first` on, inside the kernel where it can."""
        descriptor = self._descriptor
        self._write_all(length, lambda done, most: _copy_some(source, descriptor, first + done, most, start + done))


@cache
def _sync_file_range() -> Callable[[int, int, int, int], int] | None:
    """A system call of Linux that Python does not offer."""
    found = getattr(ctypes.CDLL(None), "sync_file_range", None) if sys.platform == "linux" else None
    if found:
        found.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return found


def link_or_copy(source: str, target: str) -> None:
    """Make a second name for a file, or a copy if the file system has no links."""
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK, errno.EXDEV):
            raise
        with closing(WriteFile(target, os.O_WRONLY | os.O_EXCL)) as file, ReadFile(source) as read:
            file.copy_range(read, 0, os.fstat(read.fileno()).st_size)
            file.sync()


def _copy_some(source: Copyable, target: int, start: int, length: int, place: int | None = None) -> int:
    """Copy up to `length` bytes to `place`, or to where the target stands; how many were copied."""
    if hasattr(os, "copy_file_range"):
        try:
            taken = os.copy_file_range(source.fileno(), target, length, offset_src=start, offset_dst=place)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        else:
            if taken == 0:
                raise OSError(errno.EIO, f"{source.name} ends before byte {start + length}")
            return taken
    data = os.pread(source.fileno(), min(length, 1 << 20), start)
    if not data:
        raise OSError(errno.EIO, f"{source.name} ends before byte {start + length}")
    return os.write(target, data) if place is None else os.pwrite(target, data, place)
