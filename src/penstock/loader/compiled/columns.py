"""Columns: read values of mapped columns in a kernel; note which blocks were touched before they were verified.

Every index is held against the column's length. tables.py has the Addresses and Notes that kernels are given.
"""

from typing import Any

from penstock.loader.compiled.jit import jit_inline, jit_part, keep_apart
from penstock.loader.compiled.pointers import read_i8, read_real, read_u1, read_u8, read_whole, write_i8

BLOCK_BITS = 16  # of a block of columns.BLOCK bytes


@jit_inline
def base(tables: Any, shard: int, slot: int) -> Any:
    return read_u8(tables.base, shard * tables.slots + slot)


@jit_inline
def items(tables: Any, shard: int, slot: int) -> int:
    return read_i8(tables.items, shard * tables.slots + slot)


@jit_inline
def touch(tables: Any, notes: Any, shard: int, slot: int, index: int) -> bool:
    """Whether the item exists. Its block is listed if it is not verified yet."""
    if not 0 <= index < items(tables, shard, slot):
        return False
    seen = read_u8(tables.seen, shard * tables.slots + slot)
    if seen:
        block = (index * read_i8(tables.sizes, slot)) >> BLOCK_BITS
        if not read_u1(seen, block):
            miss(notes, shard, slot, block)
    return True


@jit_part
def touch_all(tables: Any, notes: Any, shard: int, slot: int, first: int, stop: int) -> bool:
    """Whether items `first` to `stop` exist, at least one. Their blocks are listed if they are not verified yet."""
    if not 0 <= first < stop <= items(tables, shard, slot):
        return False
    for item in range(first, stop, (1 << BLOCK_BITS) // read_i8(tables.sizes, slot)):
        touch(tables, notes, shard, slot, item)
    return touch(tables, notes, shard, slot, stop - 1)


@jit_part
def miss(notes: Any, shard: int, slot: int, block: int) -> None:
    keep_apart()
    missed = read_i8(notes.missed, 0)
    if missed < notes.room:
        write_i8(notes.missing, 3 * missed, shard)
        write_i8(notes.missing, 3 * missed + 1, slot)
        write_i8(notes.missing, 3 * missed + 2, block)
    write_i8(notes.missed, 0, missed + 1)


@jit_inline
def whole(tables: Any, notes: Any, shard: int, slot: int, index: int) -> int:
    if not touch(tables, notes, shard, slot, index):
        return 0
    return read_whole(base(tables, shard, slot), index, read_i8(tables.kinds, slot))


@jit_inline
def offset(tables: Any, notes: Any, shard: int, slot: int, index: int) -> int:
    """A value of a column of offsets, which are int64."""
    return read_i8(base(tables, shard, slot), index) if touch(tables, notes, shard, slot, index) else 0


@jit_inline
def real(tables: Any, notes: Any, shard: int, slot: int, index: int) -> float:
    if not touch(tables, notes, shard, slot, index):
        return 0.0
    return read_real(base(tables, shard, slot), index, read_i8(tables.kinds, slot))


@jit_inline
def is_valid(tables: Any, notes: Any, shard: int, slot: int, index: int) -> bool:
    """Whether a value is not null. A shard without nulls has no validity column."""
    if slot < 0 or not base(tables, shard, slot):
        return True
    return touch(tables, notes, shard, slot, index) and read_u1(base(tables, shard, slot), index) != 0


@jit_inline
def count(notes: Any, what: int) -> None:
    write_i8(notes.counts, what, read_i8(notes.counts, what) + 1)
