"""Readahead: have the system read what a batch needs, all of it at once, before the batch waits for any of it.

For data larger than memory. A page fault at a time, a batch would wait for the disk some thousand times in a row;
listed beforehand (compiled/pages.py), the same reads are under way together: eight times as fast with one thread.
"""

import ctypes
import mmap
import os
import platform
import threading
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from penstock.loader.batches import Array
from penstock.loader.tables import address
from penstock.shards.columns import Column

_MOST_RANGES = 1 << 16
_AT_ONCE = 1024  # ranges the system takes in one call (IOV_MAX); of them all, 2 GiB
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
    threading.Thread(target=_read_columns, args=(list(columns),), name="penstock-read", daemon=True).start()


def _read_columns(columns: list[Column]) -> None:
    while columns:  # a column stays mapped while it is read, and no longer
        array = columns.pop(0).array
        if array.size:
            start = array.ctypes.data & -mmap.PAGESIZE
            _advise(start, array.ctypes.data + array.nbytes - start)


def read_ahead(list_pages: Callable[[Any], None]) -> None:
    """Call a kernel that lists pages, and have them read."""
    from penstock.loader.compiled.pages import Pages

    if not hasattr(_own, "ranges"):  # one list per thread: a batch of its own is being made there
        _own.ranges, _own.count = np.empty((_MOST_RANGES, 2), "u8"), np.zeros(1, "i8")
    _own.count[0] = 0
    list_pages(Pages(address(_own.ranges), address(_own.count), _MOST_RANGES, mmap.PAGESIZE))
    _will_need(_own.ranges[: _own.count[0]])


def _will_need(ranges: Array) -> None:
    """One call for many where the system has it (Linux 5.13), else one for each. It only advises: what fails is read
    when it is touched."""
    while len(ranges):
        asked = ranges[:_AT_ONCE]
        done = _advise_together(asked)
        alone = asked[done : done + 1] if done else asked  # it stops at a range that fails, or is beyond 2 GiB
        for start, size in alone.tolist():
            _advise(start, size)
        ranges = ranges[done + len(alone) :]


def _advise(start: int, size: int) -> None:
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), _WILL_NEED)


def _advise_together(ranges: Array) -> int:
    """Number of ranges, from the first on, that the system took whole."""
    process = _descriptor(os.getpid())
    if process < 0:
        return 0
    place, count = ctypes.c_void_p(ranges.ctypes.data), ctypes.c_size_t(len(ranges))
    taken = ctypes.CDLL(None).syscall(_PROCESS_MADVISE, process, place, count, _WILL_NEED, 0)  # bytes, below 2^31
    return int(np.searchsorted(np.cumsum(ranges[:, 1]), np.uint64(max(taken, 0)), side="right"))


@cache
def _descriptor(process: int) -> int:
    """A descriptor of this process, which process_madvise asks for; opened once, and again after a fork."""
    return int(ctypes.CDLL(None).syscall(_PIDFD_OPEN, process, 0)) if platform.system() == "Linux" else -1
