"""Buffers: memory for batches, used again when nobody holds the batch any more. Used by maker.py.

Fresh memory for every batch costs as much as making the batch: the kernel has to hand out zeroed pages. So a batch is
cut from a block that is taken back when the last array cut from it is gone. A consumer may keep a batch as long as it
likes; then the next one gets a block of its own.
"""

import mmap
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from penstock.loader.batches import Array, Layout, shape_in_batch

_ALIGNMENT = 64


class Buffers:
    """Blocks for batches of `rows` rows. At most `keep` that nobody uses are kept."""

    def __init__(self, layout: Layout, rows: int, keep: int) -> None:
        self.keep = keep
        self._parts = list(_parts(layout, rows))
        self._blocks: list[Array] = []
        self._lock = threading.Lock()
        self.batch_bytes = batch_bytes(layout, rows)

    def take(self) -> dict[str, Array]:
        """Arrays of a batch; what is in them is left over from an earlier one."""
        with self._lock:
            # Every array cut from a block, or from such an array, holds it.
            numbers = range(len(self._blocks))
            free = [number for number in numbers if sys.getrefcount(self._blocks[number]) <= _UNUSED]
            for number in reversed(free[self.keep :]):
                del self._blocks[number]
            if free:
                block = self._blocks[free[0]]
            else:
                # On pages of its own: a block can then be pinned for an accelerator without its neighbours.
                pages = mmap.mmap(-1, max(1, self.batch_bytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
                block = np.frombuffer(pages, "u1")
                self._blocks.append(block)
        return {name: block[place].view(dtype).reshape(shape) for name, place, dtype, shape in self._parts}


def _parts(layout: Layout, rows: int) -> Iterator[tuple[str, slice, np.dtype[Any], tuple[int, ...]]]:
    """Place of each array in a block, its type and its shape."""
    start = 0
    for name, array in layout.items():
        shape, dtype = shape_in_batch(array, rows), np.dtype(array[1])
        size = _size(shape, dtype)
        yield name, slice(start, start + size), dtype, shape
        start += _aligned(size)


def batch_bytes(layout: Layout, rows: int) -> int:
    return sum(_aligned(_size(shape_in_batch(array, rows), np.dtype(array[1]))) for array in layout.values())


def _size(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    return int(np.prod(shape, dtype="i8")) * dtype.itemsize


def _aligned(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _count_unused() -> int:
    """Reference count of a block that only a list holds; it differs between Python versions."""
    blocks = [np.empty(1, "u1")]
    return sys.getrefcount(blocks[0])


_UNUSED = _count_unused()
