"""Store: the operations that a dataset needs of the place where it lies. `open_store` chooses one for a path.

A file of a dataset appears whole or not at all: `commit` and `publish` see to that. Names are relative and use `/`.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import BinaryIO, Protocol

from penstock.base.errors import OutputError
from penstock.base.files import Copyable

STATE = ".penstock"  # where a dataset keeps what only penstock reads
PLAN = f"{STATE}/plan.json"  # of a run by several machines, for workers that join
PLACING = f"{STATE}/placing"  # files that several tasks write at once, before they are published
RUN = f"{STATE}/run.json"  # of the run that made it: nothing in it decides a byte


class HeldElsewhere(OutputError):
    """Another process holds the folder."""


class Writer(Protocol):
    """A file being written from its beginning. A library may write it by itself, at `path`."""

    size: int
    path: str

    def write(self, data: bytes | memoryview) -> None: ...
    def copy_range(self, source: Copyable, start: int, length: int) -> None: ...
    def close(self) -> None: ...


class SharedWriter(Protocol):
    """A file of a known size that several processes write at once, each its own ranges."""

    def write_at(self, start: int, data: bytes | memoryview) -> None: ...
    def copy_at(self, start: int, source: Copyable, first: int, length: int) -> None: ...
    def read_at(self, start: int, length: int) -> bytes: ...
    def begin_sync(self, start: int, length: int) -> None:
        """Start writing these bytes to the disk, without waiting for the end."""

    def sync(self) -> None: ...
    def close(self) -> None: ...


class Store(Protocol):
    """Files by name. Equal stores have equal roots, and any process of the job can open one by its root."""

    @property
    def root(self) -> str: ...
    def __hash__(self) -> int: ...

    @property
    def session(self) -> str:
        """A name of the time for which files last that were placed, or committed with `lasting=False`; "" where every
        file lasts."""

    @property
    def scratch_folder(self) -> str:
        """A folder of this machine for scratch files that will be copied into the store."""

    def where(self, name: str) -> str:
        """A place that a person can open, for messages."""

    def local_path(self, name: str) -> str:
        """A path for a library that opens files by itself."""

    def free_bytes(self) -> int: ...

    # What there is.

    def exists(self, name: str) -> bool: ...

    def size(self, name: str) -> int:
        """Bytes of the file, or -1 where there is none."""

    def entries(self, name: str = "") -> list[str]:
        """Names of the files and folders directly in a folder, in bytewise order; those of folders end in `/`.
        None where it is not there. Files that are being written are not among them."""

    def list(self, prefix: str = "") -> list[str]:
        """Names of all files below `prefix`, in bytewise order."""

    def open(self, name: str) -> BinaryIO: ...
    def read(self, name: str) -> bytes: ...
    def read_range(self, name: str, start: int, length: int) -> bytes: ...

    def map(self, name: str) -> memoryview:
        """The file's bytes, mapped read-only. An empty file cannot be mapped and is an error."""

    def forget_pages(self, name: str, end: int) -> None:
        """Drop the first `end` bytes of a synced file from the page cache."""

    # How it changes.

    def commit(self, name: str, lasting: bool = True) -> AbstractContextManager[Writer]:
        """Write `name` whole or not at all. A file that need not outlast the session costs less."""

    def commit_bytes(self, name: str, data: bytes) -> None: ...

    def place(self, name: str, size: int) -> SharedWriter:
        """Open a file that is not in the dataset yet, of `size` bytes, to write some of them."""

    def publish(self, moves: Mapping[str, str]) -> None:
        """Rename synced files of this store to their final names."""

    def append(self, name: str) -> Writer:
        """Open a log for appending; nothing of it is needed to resume."""

    def remove(self, name: str) -> None:
        """Remove a file or a whole folder, if it exists."""

    # Who may change it.

    def hold(
        self, owner: bytes, what: str = "this output", key: str = "output", shared: bool = False
    ) -> AbstractContextManager[tuple[int, ...]]:
        """Hold the store, alone or with others that only read it, or say who does.

        Worker processes inherit the descriptors: while one of a dead driver's workers is still writing, the store is
        still held.
        """

    def can_be_held(self) -> bool:
        """Whether the store has a lock file that this process may open."""

    def sweep(self, whole: bool = False) -> None:
        """Remove what killed writers have left. Only the one who holds the store alone may do this.

        `whole`: the dataset is finished, so that also what a machine beyond the lock may be writing is of no use.
        """

    def fence(self) -> None:
        """End runs of several machines here: from now on, their late writes have no effect. The caller must hold the
        store alone."""


def _nothing() -> None: ...


@dataclass(frozen=True)
class OtherFolder:
    """A folder beside the output that a job locks while it runs. A stage or a source names it; run.py locks it."""

    root: str
    what: str  # in the refusal, should another run hold it
    key: str  # of the job that names it
    shared: bool = False  # whether others may read it meanwhile
    refuse_changed: Callable[[], None] = _nothing  # called when it is held
