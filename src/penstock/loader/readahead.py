"""Readahead: have the system read what a batch needs, all of it at once, before the batch waits for any of it.

For data larger than memory. A page fault at a time, a batch would wait for the disk some thousand times in a row;
listed beforehand (compiled/pages.py), the same reads are under way together: eight times as fast with one thread.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import threading
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from penstock.loader.tables import address
from penstock.shards.columns import Column

_MOST_RANGES = 1 << 16
_AT_ONCE = 1024  # ranges the system takes in one call (IOV_MAX)
_WILL_NEED = 3
_PROCESS_MADVISE, _PIDFD_OPEN = 440, 434  # the same on all architectures: newer than their own tables
_own = threading.local()


def read_randomly(columns: Iterable[Column]) -> None:
    """Tell the system not to read around what is touched: eighty times the bytes that a batch needs."""
    maps = {id(mapped): mapped for column in columns if (mapped := column.mapped)}
    for mapped in maps.values():
        if hasattr(mmap, "MADV_RANDOM"):
            mapped.madvise(mmap.MADV_RANDOM)


def read_once(columns: Iterable[Column]) -> None:
    """Have whole columns read, in the background: data that fits in memory is read from the disk once, in order."""
    ranges = np.array(
        [(column.array.ctypes.data & ~4095, column.array.nbytes + 4096) for column in columns if column.array.size],
        "u8",
    )
    threading.Thread(target=_will_need, args=(ranges,), name="penstock-read", daemon=True).start()


def read_ahead(list_pages: Callable[[Any], None]) -> int:
    """Call a kernel that lists pages, and have them read; how many ranges there were."""
    from penstock.loader.compiled.pages import Pages

    if not hasattr(_own, "ranges"):  # one list a thread: a batch of its own is being made there
        _own.ranges, _own.count = np.empty((_MOST_RANGES, 2), "u8"), np.zeros(1, "i8")
    _own.count[0] = 0
    list_pages(Pages(address(_own.ranges), address(_own.count), _MOST_RANGES))
    ranges = _own.ranges[: _own.count[0]]
    for first in range(0, len(ranges), _AT_ONCE):
        _will_need(ranges[first : first + _AT_ONCE])
    return len(ranges)


def _will_need(ranges: np.ndarray[Any, Any]) -> None:
    """One call for all of them where the system has it (Linux 5.13), else one for each. It only advises: what fails
    is read when it is touched."""
    library = ctypes.CDLL(None)
    process = _own_process()
    if process >= 0:
        place = ctypes.c_void_p(ranges.ctypes.data)
        done = library.syscall(_PROCESS_MADVISE, process, place, ctypes.c_size_t(len(ranges)), _WILL_NEED, 0)
        if done >= 0:
            return
    for start, size in ranges.tolist():
        library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _WILL_NEED)


_process: tuple[int, int] = (-1, -1)


def _own_process() -> int:
    """A descriptor of this process, which process_madvise asks for; opened once, and again after a fork."""
    global _process
    if _process[0] != os.getpid():
        descriptor = -1
        if platform.system() == "Linux":
            descriptor = ctypes.CDLL(None).syscall(_PIDFD_OPEN, os.getpid(), 0)
        _process = (os.getpid(), descriptor)
    return _process[1]
