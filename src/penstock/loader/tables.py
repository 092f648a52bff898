"""Tables: the mapped columns of every shard as one table of addresses, verified block by block. Read by the kernels."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from penstock.loader.tokens.counts import COUNTED
from penstock.shards.columns import BLOCK, Column

Array = np.ndarray[Any, Any]
# Numbers for the types of columns, which the kernels tell apart (compiled/pointers.py).
CODES = {"i1": 0, "i2": 1, "i4": 2, "i8": 3, "u1": 4, "u2": 5, "u4": 6, "u8": 7, "f2": 8, "f4": 9, "f8": 10}
Shard = Mapping[str, Column]
Datasets = Sequence[Sequence[Shard]]  # the shards of each dataset
_MISSING_AT_ONCE = 1 << 14  # blocks listed by one run of a kernel; more are found by the next


def address(array: Array) -> np.uint64:
    return np.uint64(array.ctypes.data)


class Addresses(NamedTuple):
    """Tables as kernels take them: addresses of arrays with one row per shard and one slot per column."""

    slots: int
    base: Any  # uint64: the address of a column; 0 where a shard has none
    items: Any  # int64: its length
    seen: Any  # uint64: the address of one byte per block, 1 when verified; 0 where every block is
    kinds: Any  # int64, one per slot: CODES
    sizes: Any  # int64, one per slot: bytes of an item


class Notes(NamedTuple):
    counts: Any  # address of int64 [counts.COUNTED]
    missing: Any  # address of int64 [room, 3]: shard, slot, block of what was not verified
    missed: Any  # address of int64: how many; more than there is room for are counted only
    room: int


@dataclass
class Made:
    """Counts and seconds of filling one batch, for stats.py."""

    rows: int = 0
    tokens: int = 0  # targets that count: neither padding nor the first of the next segment; rows of arrays
    filled: int = 0  # tokens that are no padding
    room: int = 0  # tokens there is room for
    draws: int = 0
    draws_used: int = 0
    tokens_truncated: int = 0  # of rows longer than those of the batch
    tokens_excluded: int = 0  # would count, but exclude= lists their documents
    read_seconds: float = 0.0  # waited for reading that is not by page faults
    alone_seconds: float = 0.0  # in which no other thread could do the same
    verified_bytes: int = 0
    verify_seconds: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)


class Tables:
    """`base`, `items`, `seen` of each shard and slot. The arrays behind the addresses are kept alive here."""

    def __init__(self, shards: Sequence[Shard], names: Sequence[str], larger_than_memory: bool = False) -> None:
        self.names = tuple(names)
        self.shards = tuple(shards)
        shape = (len(shards), len(names))
        self.base = np.zeros(shape, "u8")
        self.items = np.zeros(shape, "i8")
        self.seen = np.zeros(shape, "u8")
        self.kinds = np.zeros(len(names), "i8")
        self.sizes = np.ones(len(names), "i8")
        self.larger_than_memory = larger_than_memory
        self._kept: list[Array] = []
        for slot, name in enumerate(names):
            for number, shard in enumerate(shards):
                if (column := shard.get(name)) is not None:
                    self.kinds[slot] = CODES[column.array.dtype.str.lstrip("<|=")]
                    self.sizes[slot] = column.array.itemsize
                    self.put(number, slot, column.array)
                    if not column.checked.all():
                        self.seen[number, slot] = column.checked.ctypes.data

    def put(self, shard: int, slot: int, array: Array, items: int | None = None) -> None:
        """An array of the loader's own, or a column's. It needs no verifying unless `seen` says so."""
        self._kept.append(array)
        self.base[shard, slot] = array.ctypes.data if array.size else 0
        self.items[shard, slot] = array.size if items is None else items
        self.seen[shard, slot] = 0

    def run(self, kernel: Callable[[Any, Any], None], made: Made) -> Array:
        """Call a kernel with the tables until all blocks that it touches are verified. Returns its counts.

        The first time is nearly always the last. What a kernel makes of unverified blocks is made again.
        """
        tables = self.addresses
        missing, missed = np.empty((_MISSING_AT_ONCE, 3), "i8"), np.zeros(1, "i8")
        while True:
            counts = np.zeros(len(COUNTED), "i8")
            missed[0] = 0
            kernel(tables, Notes(address(counts), address(missing), address(missed), len(missing)))
            if not missed[0]:
                return counts
            started = time.perf_counter()
            made.verified_bytes += self.verify(np.unique(missing[: missed[0]], axis=0).tolist())
            made.verify_seconds += time.perf_counter() - started

    @cached_property
    def addresses(self) -> Addresses:
        """The tables as kernels take them: their contents change, their places do not."""
        arrays = (self.base, self.items, self.seen, self.kinds, self.sizes)
        return Addresses(len(self.names), *map(address, arrays))

    def verify(self, missing: Iterable[tuple[int, int, int]]) -> int:
        """Check blocks (shard, slot, block) against their checksums; how many bytes that was. A damaged one raises."""
        size = 0
        for shard, slot, block in missing:  # no lock: a block that two threads hash at once is hashed twice, no more
            column = self.shards[shard][self.names[slot]]
            size += BLOCK if not column.checked[block] else 0
            column.check_block(block)
            if column.checked.all():
                self.seen[shard, slot] = 0
        return size

    def hold(self) -> None:
        """Copy every column into memory of this process, verified: cache="memory"."""
        for name in self.names:
            self.hold_column(name, room=self.column_bytes)
        self.larger_than_memory = False

    def hold_column(self, name: str, room: int) -> int:
        """Copy one column, if there is room for it; how many bytes that took."""
        slot = self.names.index(name)
        size = sum(shard[name].array.nbytes for shard in self.shards if name in shard)
        if size > room:
            return 0
        for number, shard in enumerate(self.shards):
            if name in shard and len(shard[name]):
                self.put(number, slot, np.array(shard[name].read(0, len(shard[name]))))
        return size

    @property
    def columns(self) -> list[Column]:
        """The mapped columns that are read."""
        return [shard[name] for shard in self.shards for name in self.names if name in shard]

    @property
    def column_bytes(self) -> int:
        return sum(column.array.nbytes for column in self.columns)
