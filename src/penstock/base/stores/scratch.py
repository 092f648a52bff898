"""Scratch: local files without a name, whose bytes are copied elsewhere or read again by the same process.

They lie on the disk of the output, so that the kernel copies their bytes. If the output is a shared folder, they lie on
a disk of this machine: otherwise their bytes would go over the network twice, and NFS would give them a name.
"""

import errno
import mmap
import os
import tempfile
from contextlib import AbstractContextManager, nullcontext
from typing import Self

from penstock.base.errors import ConfigError
from penstock.base.files import WriteFile, doing, unique_name
from penstock.base.stores.mounts import file_system

VARIABLE = "PENSTOCK_SCRATCH_DIR"


def scratch_folder(own: str) -> str:
    """The folder for scratch files. `own` is the one in the output, which serves if it is local."""
    named = os.environ.get(VARIABLE)
    if named:
        return os.path.abspath(named)
    if not file_system(own).is_shared:
        return own
    places = [tempfile.gettempdir(), "/var/tmp"]
    return next((each for each in places if _serves(each)), own)


def _serves(folder: str) -> bool:
    """Whether it is on a disk of this machine. Memory would count against the budget; the plan does not know it."""
    found = file_system(folder)
    return not found.is_shared and not found.is_in_memory and os.access(folder, os.W_OK | os.X_OK)


def refuse_scratch() -> None:
    """Refuse a folder in PENSTOCK_SCRATCH_DIR that cannot serve."""
    named = os.environ.get(VARIABLE)
    if not named:
        return
    folder, reason = os.path.abspath(named), ""
    if not os.path.isdir(folder):
        reason = "is not a folder"
    elif not os.access(folder, os.W_OK | os.X_OK):
        reason = "is not writable"
    elif file_system(folder).is_in_memory:
        reason = f"is {file_system(folder).kind}: scratch files would take memory that `memory:` does not count"
    if reason:
        raise ConfigError(
            f"{VARIABLE} {reason}", where=folder, next_step="name a folder on a disk of this machine, or unset it"
        )


class Scratch(WriteFile):
    """A file without a name, which only this user may read. The kernel removes it when no process has it open.

    A process uses its scratch files again and again: overwriting pages that are in memory costs a quarter of
    finding new ones (benchmarks/LOG.md).
    """

    def __init__(self, folder: str) -> None:
        self.folder = folder
        path = os.path.join(folder, unique_name("scratch"))
        with doing("create the folder", folder, "mkdir"):
            os.makedirs(folder, exist_ok=True)
        super().__init__(path, os.O_RDWR | os.O_EXCL, 0o600)

    def _open(self, path: str, flags: int, mode: int) -> int:
        """Create it without a name if the file system can: then a kill leaves nothing."""
        if hasattr(os, "O_TMPFILE"):
            try:
                return os.open(self.folder, flags | os.O_TMPFILE, mode)
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT, errno.ENOSYS):
                    raise
        descriptor = super()._open(path, flags, mode)
        os.unlink(path)
        return descriptor

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
