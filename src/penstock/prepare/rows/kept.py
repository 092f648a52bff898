"""Kept: open files and indexes that the tasks of one process share. In a shared folder, opening a file costs one or two
round trips, and reading its index one more.

A limited number of files stay open, the first ones; later ones are opened for each use. Every task reads the files in
the same order, so closing the oldest would close each file just before it is needed again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar, cast

from penstock.base.machine import open_files_limit
from penstock.base.stores.store import Store

_MOST_FILES = 1024  # some 1 kB each
_SHARE = 4  # of the files that a process may have open: libraries and functions of the user open others
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class OpenFile:
    """An open file of an earlier pass: its bytes never change."""

    path: str
    file: BinaryIO
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        with self.lock:
            return self.file.seek(0, os.SEEK_END)

    def read_range(self, start: int, length: int) -> bytes:
        with self.lock:  # threads share the place at which the file stands
            self.file.seek(start)
            return self.file.read(length)

    def opened(self) -> AbstractContextManager[OpenFile]:
        return nullcontext(self)


_files: dict[tuple[Store, str, str], OpenFile] = {}
_values: dict[Hashable, Any] = {}


def keep_open(store: Store, name: str, written: str) -> OpenFile | None:
    """The file whose index has the digest `written`; None if as many are open as may be."""
    key = store, name, written
    found = _files.get(key)
    if not found and len(_files) < min(_MOST_FILES, open_files_limit() // _SHARE):
        found = _files[key] = OpenFile(store.where(name), store.open(name))
    return found


def keep(key: Hashable, make: Callable[[], _Value]) -> _Value:
    """What `make` returned when it was first asked for this key. Who keeps something counts it in what a task holds."""
    if key not in _values:
        _values[key] = make()
    return cast(_Value, _values[key])


def forget_kept() -> None:
    """Close and forget everything, when no task will need it: only then is the disk space of removed files free."""
    _values.clear()
    while _files:
        _, kept = _files.popitem()
        kept.file.close()
