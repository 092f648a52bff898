"""Pages: which parts of mapped columns a batch will read, listed before it reads them. Used by readahead.py.

The list is a forecast. Which events a segment takes follows from its draws, and how many from the tokens before it,
which are not read yet but estimated: a page too many is read for nothing, one too few is waited for.
"""

from typing import Any, NamedTuple

import numpy as np

from penstock.loader.compiled import plan as facts
from penstock.loader.compiled.address import ENTRY
from penstock.loader.compiled.choosing import choose_events, target_events
from penstock.loader.compiled.columns import BLOCK_BITS, base, items
from penstock.loader.compiled.counter import chain, start_draws
from penstock.loader.compiled.jit import jit, jit_inline
from penstock.loader.compiled.plan import fact, lay_out
from penstock.loader.compiled.pointers import read_i8, read_u1, read_u8, write_i8, write_u8


class Pages(NamedTuple):
    """A list of (address, bytes), as the kernel of the operating system takes it."""

    ranges: Any  # address of uint64 [room, 2]
    count: Any  # address of int64
    room: int
    page_bytes: int  # 4 KiB on most machines, 16 or 64 on some


@jit_inline
def _want(tables: Any, pages: Any, shard: int, slot: int, first: int, last: int) -> None:
    """Items `first` to `last` of a column: their pages, or their whole blocks where those have to be verified."""
    if first < 0 or last >= items(tables, shard, slot):
        return
    column, item = base(tables, shard, slot), read_i8(tables.sizes, slot)
    start, stop = first * item, (last + 1) * item
    seen = read_u8(tables.seen, shard * tables.slots + slot)
    if seen:
        block = start >> BLOCK_BITS
        if not read_u1(seen, block):
            end = min((block + 1) << BLOCK_BITS, items(tables, shard, slot) * item)
            start, stop = block << BLOCK_BITS, max(stop, end)
    address = np.int64(column) + start
    page = address & -np.int64(pages.page_bytes)
    size = np.int64(column) + stop - page
    count = read_i8(pages.count, 0)
    if count and np.int64(read_u8(pages.ranges, 2 * count - 2)) == page:  # events near each other lie in one page
        if size > np.int64(read_u8(pages.ranges, 2 * count - 1)):
            write_u8(pages.ranges, 2 * count - 1, np.uint64(size))
    elif count < pages.room:
        write_u8(pages.ranges, 2 * count, np.uint64(page))
        write_u8(pages.ranges, 2 * count + 1, np.uint64(size))
        write_i8(pages.count, 0, count + 1)


@jit
def list_events(tables: Any, plan: Any, memory: Any, shards: Any, records: Any, keys: Any, pages: Any) -> None:
    scratch = lay_out(memory, plan)
    for row in range(len(shards)):
        left = plan.length + 1
        for j in range(shards.shape[1]):
            shard = np.int64(shards[row, j])
            if shard < 0 or left < plan.smallest:
                break
            first = read_i8(base(tables, shard, plan.offsets), records[row, j])
            events = read_i8(base(tables, shard, plan.offsets), records[row, j] + 1) - first
            if events <= 0 or first < 0:
                continue
            start_draws(scratch.stream, chain(keys[row], j))
            family = _own_family(tables, plan, shard, records[row, j])
            if plan.address_field >= 0:
                write_i8(scratch.families, plan.address_field, family)
            taken = choose_events(scratch, events, target_events(plan, scratch, left))
            for number in range(plan.fields):
                if fact(plan, number, facts.OF_EVENTS):
                    codes = fact(plan, number, facts.CODES)
                    value = codes if codes >= 0 else fact(plan, number, facts.VALUE)
                    _want_events(tables, scratch, pages, shard, value, first, taken)
                    _want_events(tables, scratch, pages, shard, fact(plan, number, facts.VALID), first, taken)
                if fact(plan, number, facts.VERSION_OF_EVENTS):
                    _want_events(tables, scratch, pages, shard, fact(plan, number, facts.VERSION), first, taken)
            left -= taken * (plan.typical_ipv6 if family == 6 else plan.typical)


@jit_inline
def _own_family(tables: Any, plan: Any, shard: int, record: int) -> int:
    """Family of the record's own address, where it is held parsed."""
    if plan.address_field < 0:
        return 0
    entries = base(tables, shard, fact(plan, plan.address_field, facts.PARSED))
    return read_u1(entries, ENTRY * record) if entries else 0


@jit_inline
def _want_events(tables: Any, scratch: Any, pages: Any, shard: int, slot: int, first: int, taken: int) -> None:
    if slot >= 0 and base(tables, shard, slot):
        for i in range(taken):
            event = first + read_i8(scratch.chosen, i)
            _want(tables, pages, shard, slot, event, event)


@jit
def list_rows(tables: Any, slot: int, per_row: int, shards: Any, records: Any, pages: Any) -> None:
    """Rows of `per_row` items each."""
    for i in range(len(shards)):
        if shards[i] >= 0 and per_row:
            first = records[i] * per_row
            _want(tables, pages, np.int64(shards[i]), slot, first, first + per_row - 1)


@jit
def list_lists(tables: Any, offsets: int, values: int, shards: Any, records: Any, pages: Any) -> None:
    """The values of one list per row. Offsets are read here, verified or not: a wrong one lists what is not read."""
    for i in range(len(shards)):
        shard, record = np.int64(shards[i]), records[i]
        if shard >= 0 and record + 1 < items(tables, shard, offsets):
            first = read_i8(base(tables, shard, offsets), record)
            stop = read_i8(base(tables, shard, offsets), record + 1)
            if first < stop:
                _want(tables, pages, shard, values, first, stop - 1)


@jit
def list_windows(tables: Any, slot: int, per_event: int, shards: Any, firsts: Any, counts: Any, pages: Any) -> None:
    """Some events of each row, of `per_event` items each; a shard without the column has nothing to read."""
    for i in range(len(shards)):
        shard = np.int64(shards[i])
        if shard >= 0 and counts[i] and base(tables, shard, slot):
            _want(tables, pages, shard, slot, firsts[i] * per_event, (firsts[i] + counts[i]) * per_event - 1)
