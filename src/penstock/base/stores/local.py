"""Local store: a dataset in a folder of this machine.

A file appears in one way: written beside in `.penstock/tmp`, synced, renamed, its directory synced. The kernel keeps
the lock, so that the same command can resume at once after a SIGKILL.
"""

import errno
import fcntl
import mmap
import os
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache

from penstock.base import machine
from penstock.base.errors import OutputError, file_error
from penstock.base.faults import crash_point
from penstock.base.files import PlacedFile, ReadFile, WriteFile, doing, unique_name
from penstock.base.fingerprint import digest
from penstock.base.stores.mounts import file_system
from penstock.base.stores.scratch import scratch_folder
from penstock.base.stores.store import STATE, HeldElsewhere

TEMPORARY = f"{STATE}/tmp"
LOCK = f"{STATE}/lock"
RUN_PREFIX = "run-"  # of a folder in TEMPORARY, where a run of several machines writes
_GONE = ".gone"
_ABANDONED_SECONDS = 3600
_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_SYNC = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EBADF)  # SMB and some FUSE, only for folders
_FENCE_SECONDS, _FENCE_PAUSE_SECONDS = 60.0, 0.05


@dataclass(frozen=True)
class LocalStore:
    """The folder `root`, an absolute path."""

    root: str

    @property
    def session(self) -> str:
        """Name of the time since boot: unsynced files last that long. Empty if there is none, and in a shared folder,
        where another machine may resume: then all files are synced."""
        return "" if file_system(self.root).is_shared else machine.boot_id()

    @property
    def scratch_folder(self) -> str:
        return scratch_folder(self._path(TEMPORARY))

    def _path(self, name: str) -> str:
        return os.path.join(self.root, name)

    where = local_path = _path

    def free_bytes(self) -> int:
        return machine.free_disk(self.root)

    def exists(self, name: str) -> bool:
        return os.path.exists(self._path(name))

    def size(self, name: str) -> int:
        try:
            return os.stat(self._path(name)).st_size
        except FileNotFoundError:
            return -1

    def entries(self, name: str = "") -> list[str]:
        path = self._path(name)
        if not os.path.isdir(path):
            return []
        with doing("list", path, "list"), os.scandir(path) as found:
            names = [os.path.join(name, each.name) + ("/" if each.is_dir() else "") for each in found]
        return sorted((each for each in names if each != f"{TEMPORARY}/"), key=os.fsencode)

    def list(self, prefix: str = "") -> list[str]:
        top = self._path(prefix)
        names: list[str] = []
        with doing("list", top, "list"):
            for folder, _, files in os.walk(top, onerror=_unless_missing):
                names += [os.path.relpath(os.path.join(folder, file), self._path("")) for file in files]
        return sorted(names, key=os.fsencode)

    def open(self, name: str) -> ReadFile:
        return ReadFile(self._path(name))

    def read(self, name: str) -> bytes:
        with self.open(name) as file:
            return file.read()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self.open(name) as file:
            file.seek(start)
            return file.read(length)

    def map(self, name: str) -> memoryview:
        with doing("map", self._path(name), "open"):
            descriptor = os.open(self._path(name), os.O_RDONLY)  # a Python file asks the system three times more
            try:
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            finally:
                os.close(descriptor)

    def forget_pages(self, name: str, end: int) -> None:
        """For what is written next, that memory is cheaper than memory that was never used (benchmarks/LOG.md)."""
        if hasattr(os, "posix_fadvise"):
            with self.open(name) as file:
                os.posix_fadvise(file.fileno(), 0, end, os.POSIX_FADV_DONTNEED)

    @contextmanager
    def commit(self, name: str, lasting: bool = True) -> Iterator[WriteFile]:
        """A file that need not outlast the session is not synced: that costs nothing until the kernel finds time."""
        self._make_folder(os.path.dirname(name))
        file = WriteFile(self._temporary(name), os.O_WRONLY | os.O_EXCL)
        is_synced = lasting or not self.session
        try:
            yield file
            crash_point("commit.before_sync")
            if is_synced:
                file.sync()
            file.close()
            crash_point("commit.before_rename")
            with doing("rename into place", self._path(name), "rename"):
                os.replace(file.path, self._path(name))
        except BaseException:
            file.close()
            with suppress(FileNotFoundError):  # it was renamed into place already
                os.unlink(file.path)
            raise
        crash_point("commit.after_rename")
        if is_synced:
            sync_folder(os.path.dirname(self._path(name)))

    def _temporary(self, name: str) -> str:
        """Path of a file that will be renamed to `name`."""
        self._make_folder(TEMPORARY)
        folder = self._path(TEMPORARY)
        return os.path.join(folder, f"{_reach(folder)}-{unique_name(name)}")

    def commit_bytes(self, name: str, data: bytes) -> None:
        with self.commit(name) as file:
            file.write(data)

    def new_file(self, name: str) -> WriteFile:
        """Open a file under its real name, in a folder that nobody reads before all of it is there."""
        self._make_folder(os.path.dirname(name))
        return WriteFile(self._path(name), os.O_WRONLY | os.O_EXCL)

    def place(self, name: str, size: int) -> PlacedFile:
        self._make_folder(os.path.dirname(name))
        return PlacedFile(self._path(name), size)

    def publish(self, moves: Mapping[str, str]) -> None:
        for name, into in moves.items():
            self._make_folder(os.path.dirname(into))
            crash_point("move.before_rename")
            with doing("rename into place", self._path(into), "rename"):
                self._move(name, into)
            crash_point("move.after_rename")
        for folder in sorted({os.path.dirname(self._path(into)) for into in moves.values()}):
            sync_folder(folder)

    def _move(self, name: str, into: str) -> None:
        os.replace(self._path(name), self._path(into))

    def append(self, name: str) -> WriteFile:
        self._make_folder(os.path.dirname(name))
        return WriteFile(self._path(name), os.O_WRONLY | os.O_APPEND)

    def remove(self, name: str) -> None:
        path = self._path(name).rstrip("/")
        with doing("remove", path, "remove"):
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif not os.path.lexists(path):
                return
            else:
                os.unlink(path)
        sync_folder(os.path.dirname(path))  # or a manifest that is gone could come back with the power

    def _make_folder(self, name: str) -> None:
        """Create a folder and the ones above it, so that they outlast a crash of the machine."""
        path = self._path(name).rstrip("/")
        if os.path.isdir(path):
            return
        missing = [path]
        while not os.path.isdir(parent := os.path.dirname(missing[-1])):
            missing.append(parent)
        for each in reversed(missing):
            with doing("create the folder", each, "mkdir"):
                os.makedirs(each, exist_ok=True)
            sync_folder(os.path.dirname(each))

    @contextmanager
    def hold(
        self, owner: bytes, what: str = "this output", key: str = "output", shared: bool = False
    ) -> Iterator[tuple[int, ...]]:
        """Lock the folder. The kernel releases the lock when the last process with the descriptor ends."""
        self._make_folder(STATE)
        with doing("lock", self._path(LOCK), "open"):
            descriptor = os.open(self._path(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            self._take(descriptor, fcntl.LOCK_SH if shared else fcntl.LOCK_EX, what, key)
            with doing("lock", self._path(LOCK), "write"):
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, owner, 0)
            yield (descriptor,)
        finally:
            os.close(descriptor)

    def _take(self, descriptor: int, kind: int, what: str, key: str) -> None:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                raise self._refusal_without_locks(error) from error
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise file_error(error, "lock", self._path(LOCK)) from error
            holder = os.pread(descriptor, 4096, 0).decode(errors="replace") or "a run that has just started"
            raise HeldElsewhere(
                f"another run holds {what}: {holder}",
                where=self.root,
                next_step=f"wait for it, stop it, or choose another `{key}:`",
            ) from None

    def _refusal_without_locks(self, error: OSError) -> OutputError:
        found = file_system(self.root)
        return OutputError(
            f"this folder cannot be locked: its file system{f' ({found.kind})' if found.kind else ''} answers "
            f"{errno.errorcode.get(error.errno or 0, '')} to flock, so nothing would keep two runs apart",
            where=self.root,
            next_step="mount it with locks (Lustre: -o flock; NFS: version 4, or start rpc.statd; not nolock), "
            "or write to a disk of this machine and copy the finished dataset",
        )

    def can_be_held(self) -> bool:
        return os.access(self._path(LOCK), os.W_OK)

    def sweep(self, whole: bool = False) -> None:
        """The lock proves that writers within its reach are dead. Others may share the folder: their files are removed
        after an hour without a write, by the clock of the file system."""
        path = self._path(TEMPORARY)
        if not os.path.isdir(path):
            return
        with doing("remove", path, "remove"):
            os.utime(path)
            old, reach = os.stat(path).st_mtime - _ABANDONED_SECONDS, _reach(path)
            for name in (each for each in os.listdir(path) if not each.startswith(RUN_PREFIX)):
                with suppress(FileNotFoundError):  # another machine has just finished it
                    each = os.path.join(path, name)
                    if whole or name.startswith(reach) or os.stat(each).st_mtime < old:
                        os.unlink(each)
            with suppress(OSError):  # something is left
                os.rmdir(path)

    def fence(self) -> None:
        """A run of several machines keeps its unfinished files in one folder, and renames them from there. Without the
        folder, its members can change nothing. A network file system may still know it under another name for a
        while, so it must be empty and gone before this returns."""
        for name in runs_in(self._path(TEMPORARY)):
            fence_run(os.path.join(self._path(TEMPORARY), name))


def runs_in(path: str) -> list[str]:
    """Folders of runs of several machines below `.penstock/tmp`, whole or being removed."""
    if not os.path.isdir(path):
        return []
    with doing("list", path, "list"):
        return sorted(name for name in os.listdir(path) if name.startswith(RUN_PREFIX))


def fence_run(folder: str) -> None:
    gone = folder if folder.endswith(_GONE) else folder + _GONE
    with doing("remove", folder, "remove"):
        with suppress(FileNotFoundError):
            if folder != gone:
                os.rename(folder, gone)
        crash_point("fence.after_rename")
        deadline = time.monotonic() + _FENCE_SECONDS
        while os.path.lexists(gone):  # a member that has it open may still add to it
            shutil.rmtree(gone, ignore_errors=time.monotonic() < deadline)
            time.sleep(_FENCE_PAUSE_SECONDS * os.path.lexists(gone))


def _reach(folder: str) -> str:
    """A name for all processes that respect the same lock on this folder: they share a kernel and a mount.

    Containers of one machine have the same boot id. If each has its own mount of the folder, locks do not reach from
    one to another, and the numbers of their file systems differ. Copies of a virtual machine differ in the host name
    only. Without a boot id, a machine cannot be told from others, so each process gets a name of its own.
    """
    return digest(f"{_this_machine()} {os.stat(folder).st_dev}".encode())[:12]


@cache
def _this_machine() -> str:
    boot = machine.boot_id()
    return f"{boot} {socket.gethostname()}" if boot else os.urandom(8).hex()


def _unless_missing(error: OSError) -> None:
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def sync_folder(path: str) -> None:
    with doing("sync the folder", path, "sync"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
        finally:
            os.close(descriptor)
