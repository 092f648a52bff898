"""Files: the one layer through which penstock touches the file system.

A file appears in an output folder in one way: written beside, synced, renamed, its directory synced. Unfinished
files live in `.penstock/tmp`, so sweeping that folder removes every leftover of a run that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import io
import itertools
import mmap
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from penstock.base.errors import OutputError, file_error
from penstock.base.faults import crash_point, operation

STATE = ".penstock"
TEMPORARY = f"{STATE}/tmp"
LOCK = f"{STATE}/lock"
_attempts = itertools.count()
_KINDS = {stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device", stat.S_IFBLK: "device"}


@contextmanager
def _doing(action: str, path: str, kind: str) -> Iterator[None]:
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
    """A file open for reading, whose every read is announced and whose errors name it."""

    def __init__(self, path: str) -> None:
        self.path = path
        with _doing("open", path, "open"):
            super().__init__(path, "rb", opener=_open_file)

    def read(self, size: int | None = -1, /) -> bytes:
        with _doing("read", self.path, "read"):
            return super().read(-1 if size is None else size) or b""

    def readinto(self, buffer: Any, /) -> int:
        with _doing("read", self.path, "read"):
            return super().readinto(buffer) or 0


class WriteFile:
    """A file being written. `write` returns when every byte has been taken."""

    def __init__(self, path: str, flags: int) -> None:
        self.path = path
        self.size = 0
        with _doing("create", path, "open"):
            self._descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        try:
            while view:
                taken = os.write(self._descriptor, view[: operation("write", self.path, len(view))])
                self.size += taken
                view = view[taken:]
        except OSError as error:
            raise file_error(error, "write", self.path) from error

    def copy_range(self, source: Scratch, start: int, length: int) -> None:
        """Append `length` bytes of `source`, inside the kernel where it can."""
        try:
            while length:
                taken = _copy_some(source, self._descriptor, start, operation("write", self.path, length))
                self.size += taken
                start, length = start + taken, length - taken
        except OSError as error:
            raise file_error(error, "write", self.path) from error

    def sync(self) -> None:
        with _doing("sync", self.path, "sync"):
            os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class Scratch(WriteFile):
    """A file without a name, to put down what will be copied elsewhere; the kernel removes it with its last user.

    A process uses its scratch files again and again: overwriting pages that are in memory costs a quarter of
    finding new ones (benchmarks/LOG.md).
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, os.O_RDWR | os.O_EXCL)
        os.unlink(path)

    def fileno(self) -> int:
        return self._descriptor

    def read_range(self, start: int, length: int) -> bytes:
        with _doing("read", self.path, "read"):
            return os.pread(self._descriptor, length, start)

    def map(self) -> mmap.mmap:
        """Its bytes, mapped read-only. They stay when the file is closed."""
        with _doing("map", self.path, "open"):
            return mmap.mmap(self._descriptor, 0, access=mmap.ACCESS_READ)

    def rewind(self) -> None:
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        self.size = 0


class PlacedFile(WriteFile):
    """A file of a known size that several processes write at once, each its own ranges."""

    def __init__(self, path: str, size: int) -> None:
        super().__init__(path, os.O_RDWR)
        with _doing("make room for", path, "write"):
            os.ftruncate(self._descriptor, size)

    def write_at(self, start: int, data: bytes | memoryview) -> None:
        view = memoryview(data).cast("B")
        try:
            while view:
                taken = os.pwrite(self._descriptor, view[: operation("write", self.path, len(view))], start)
                start, view = start + taken, view[taken:]
        except OSError as error:
            raise file_error(error, "write", self.path) from error

    def copy_at(self, start: int, source: ReadFile, first: int, length: int) -> None:
        """`length` bytes of `source` from `first` on, inside the kernel where it can."""
        try:
            while length:
                some = operation("write", self.path, length)
                taken = _copy_some(source, self._descriptor, first, some, start)
                start, first, length = start + taken, first + taken, length - taken
        except OSError as error:
            raise file_error(error, "write", self.path) from error

    def read_at(self, start: int, length: int) -> bytes:
        with _doing("read", self.path, "read"):
            return os.pread(self._descriptor, length, start)


_spare: dict[str, list[Scratch]] = {}  # by folder, so that a copy never crosses file systems


def _copy_some(source: Scratch | ReadFile, target: int, start: int, length: int, place: int | None = None) -> int:
    """Copy up to `length` bytes to `place`, or to where the target stands; how many were copied."""
    if hasattr(os, "copy_file_range"):
        try:
            taken = os.copy_file_range(source.fileno(), target, length, offset_src=start, offset_dst=place)
        except OSError as error:
            if error.errno not in (errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise
        else:
            if taken == 0:
                raise OSError(errno.EIO, f"{source.path} ends before byte {start + length}")
            return taken
    data = os.pread(source.fileno(), min(length, 1 << 20), start)
    if not data:
        raise OSError(errno.EIO, f"{source.path} ends before byte {start + length}")
    return os.write(target, data) if place is None else os.pwrite(target, data, place)


class Folder:
    """A dataset folder on a local disk. Names inside it are relative and use `/`."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)

    def path(self, name: str) -> str:
        return os.path.join(self.root, name)

    def exists(self, name: str) -> bool:
        return os.path.exists(self.path(name))

    def size(self, name: str) -> int:
        """Bytes of the file, or -1 where there is none."""
        try:
            return os.stat(self.path(name)).st_size
        except FileNotFoundError:
            return -1

    def make(self, name: str = "") -> None:
        """Create a folder and the ones above it, so that they outlast a crash of the machine."""
        path = self.path(name).rstrip("/")
        if os.path.isdir(path):
            return
        missing = [path]
        while not os.path.isdir(parent := os.path.dirname(missing[-1])):
            missing.append(parent)
        for each in reversed(missing):
            with _doing("create the folder", each, "mkdir"):
                os.makedirs(each, exist_ok=True)
            _sync_folder(os.path.dirname(each))

    @contextmanager
    def commit(self, name: str, outlasts_machine: bool = True) -> Iterator[WriteFile]:
        """Write `name` whole or not at all: beside, synced, renamed, directory synced.

        What need not outlast a crash of the machine is not synced: that costs nothing until the kernel finds time.
        """
        self.make(os.path.dirname(name))
        file = WriteFile(self.path(self._temporary(name)), os.O_WRONLY | os.O_EXCL)
        try:
            yield file
            crash_point("commit.before_sync")
            if outlasts_machine:
                file.sync()
            file.close()
            crash_point("commit.before_rename")
            with _doing("rename into place", self.path(name), "rename"):
                os.replace(file.path, self.path(name))
        except BaseException:
            file.close()
            with suppress(FileNotFoundError):  # it was renamed into place already
                os.unlink(file.path)
            raise
        crash_point("commit.after_rename")
        if outlasts_machine:
            _sync_folder(os.path.dirname(self.path(name)))

    def commit_bytes(self, name: str, data: bytes) -> None:
        with self.commit(name) as file:
            file.write(data)

    def _temporary(self, name: str) -> str:
        """A name of this attempt alone; whatever a killed run leaves there is gone at the next start."""
        self.make(TEMPORARY)
        return f"{TEMPORARY}/{os.getpid()}-{next(_attempts)}-{os.path.basename(name)}"

    def borrow_scratch(self) -> Scratch:
        spare = _spare.setdefault(self.root, [])
        return spare.pop() if spare else self.new_scratch()

    def new_scratch(self) -> Scratch:
        """One that is closed, not handed back."""
        return Scratch(self.path(self._temporary("scratch")))

    def return_scratch(self, scratch: Scratch) -> None:
        scratch.rewind()
        _spare[self.root].append(scratch)

    def release_scratch(self) -> None:
        """Give the disk space of this process' scratch files back."""
        for scratch in _spare.pop(self.root, []):
            scratch.close()

    def append(self, name: str) -> WriteFile:
        """Open a log for appending; nothing of it is needed to resume."""
        self.make(os.path.dirname(name))
        return WriteFile(self.path(name), os.O_WRONLY | os.O_APPEND)

    def place(self, name: str, size: int) -> PlacedFile:
        """Open a file that is not in the dataset yet, of `size` bytes, to write some of them."""
        self.make(os.path.dirname(name))
        return PlacedFile(self.path(name), size)

    def move(self, name: str, into: str) -> None:
        """Let a synced file of this folder appear under its real name."""
        self.make(os.path.dirname(into))
        crash_point("move.before_rename")
        with _doing("rename into place", self.path(into), "rename"):
            os.replace(self.path(name), self.path(into))
        crash_point("move.after_rename")
        _sync_folder(os.path.dirname(self.path(into)))

    def open(self, name: str) -> ReadFile:
        return ReadFile(self.path(name))

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def forget_pages(self, name: str) -> None:
        """Let the system use the memory in which it keeps a synced file: for what is written next, that is cheaper
        than memory that was never used (benchmarks/LOG.md)."""
        if hasattr(os, "posix_fadvise"):
            with self.open(name) as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def map(self, name: str) -> mmap.mmap:
        """The file's bytes, mapped read-only. An empty file cannot be mapped and is an error."""
        with _doing("map", self.path(name), "open"), open(self.path(name), "rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def folders(self, name: str) -> list[str]:
        """Names of the folders in one, in order. None where it is not there."""
        path = self.path(name)
        return (
            sorted(f"{name}/{each.name}" for each in os.scandir(path) if each.is_dir()) if os.path.isdir(path) else []
        )

    def list(self, prefix: str = "") -> list[str]:
        """Names of all files below `prefix`, in bytewise order."""
        top = self.path(prefix)
        names: list[str] = []
        with _doing("list", top, "list"):
            for folder, _, files in os.walk(top, onerror=_unless_missing):
                names += [os.path.relpath(os.path.join(folder, file), self.root) for file in files]
        return sorted(names, key=os.fsencode)

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder; one that is not there is fine."""
        path = self.path(name)
        with _doing("remove", path, "remove"):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif not os.path.lexists(path):
                return
            else:
                os.unlink(path)
        _sync_folder(os.path.dirname(path))  # or a manifest that is gone could come back with the power

    @contextmanager
    def lock(self, owner: bytes, what: str = "this output", key: str = "output", shared: bool = False) -> Iterator[int]:
        """Hold the folder, alone or with others that only read it, or say who does. The kernel lets go when the last
        holder dies.

        The descriptor is handed to workers too: while one of a dead driver's workers is still writing, the
        folder is still held.
        """
        self.make(STATE)
        with _doing("lock", self.path(LOCK), "open"):
            descriptor = os.open(self.path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, what, key)
            with _doing("lock", self.path(LOCK), "write"):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner, 0)
            yield descriptor
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int, kind: int, what: str, key: str) -> None:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise file_error(error, "lock", self.path(LOCK)) from error
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace") or "a run that has just started"
            raise OutputError(
                f"another run holds {what}: {holder}",
                where=self.root,
                next_step=f"wait for it, stop it, or choose another `{key}:`",
            ) from None


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def _sync_folder(path: str) -> None:
    with _doing("sync the folder", path, "sync"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_range(path: str, start: int, length: int) -> bytes:
    with ReadFile(path) as file:
        file.seek(start)
        return file.read(length)
