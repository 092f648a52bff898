"""Events: rows of tokens from the columns of grouped events, a batch at a time. docs/reference/tokens.md, compiled.

choosing.py says which events, fields.py what each becomes, plan.py what is asked for. Data is used before it is known
to be intact: the blocks that were touched and not yet verified are listed, and the batch is made again when they are
(tables.py). Until then no number read from a column is trusted: indexes are held against the columns' lengths.
"""

from typing import Any

import numpy as np

from penstock.loader.compiled import plan as facts
from penstock.loader.compiled.address import ENTRY
from penstock.loader.compiled.choosing import arrange_events, choose_events, target_events
from penstock.loader.compiled.columns import base, count, items, offset
from penstock.loader.compiled.counter import chain, draw, start_draws
from penstock.loader.compiled.fields import NO_TIME, agrees_with_version, encode_field, encode_time, read_time
from penstock.loader.compiled.jit import jit, jit_inline, jit_part, keep_apart
from penstock.loader.compiled.places import write_places
from penstock.loader.compiled.plan import fact, lay_out
from penstock.loader.compiled.pointers import copy_bytes, fetch, read_i4, read_i8, shifted, write_i4, write_i8
from penstock.loader.tokens import counts
from penstock.loader.tokens.vocabulary import START

_TWO, _THREE, _FOUR = np.uint64(2), np.uint64(3), np.uint64(4)


@jit
def encode_rows(
    tables: Any, plan: Any, memory: Any, shards: Any, records: Any, keys: Any, rows: Any, notes: Any, used: Any
) -> None:
    scratch = lay_out(memory, plan)
    for row in range(len(shards)):
        filled, segment = 0, 0
        used[row] = 0
        for j in range(shards.shape[1]):
            left = plan.length + 1 - filled
            if shards[row, j] < 0 or left < (plan.smallest if plan.packed else 1):
                break
            if j + 1 < shards.shape[1] and shards[row, j + 1] >= 0:
                _fetch_record(tables, plan, np.int64(shards[row, j + 1]), records[row, j + 1])
            own = chain(keys[row], j)
            took, full = _encode_segment(
                tables, plan, scratch, notes, np.int64(shards[row, j]), records[row, j], own, filled, left
            )
            if took:
                segment += 1
                used[row] = j + 1
                write_places(rows, row, plan.length, filled, filled + took, segment)
                filled += took
            if full or not plan.packed:
                break
        for i in range(filled, plan.length + 1):
            write_i4(scratch.tokens, i, 0)
        write_places(rows, row, plan.length, filled, plan.length, 0)
        start, size = 4 * row * plan.length, 4 * plan.length
        copy_bytes(shifted(rows.inputs, start), scratch.tokens, size)
        copy_bytes(shifted(rows.targets, start), shifted(scratch.tokens, 4), size)


@jit_inline
def _encode_segment(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, own: Any, filled: int, left: int
) -> tuple[int, bool]:
    """Write a segment behind `filled`; how many tokens it took, and whether the row is full."""
    first, events = _record_events(tables, plan, notes, shard, record)
    if events <= 0:
        return 0, False
    start_draws(scratch.stream, own)
    _encode_own_fields(tables, plan, scratch, notes, shard, record, first)
    taken = arrange_events(plan, scratch, choose_events(scratch, events, target_events(plan, scratch, left)))
    _fetch_events(tables, plan, scratch, shard, first, taken)
    took, last_time = 0, NO_TIME
    for i in range(taken):
        event = first + read_i8(scratch.chosen, read_i8(scratch.order, i))
        time, size = NO_TIME, 1
        for number in range(plan.fields):
            if number == plan.time_field:
                is_timed = read_i8(scratch.timed, i) != 0
                time = read_time(tables, plan, notes, shard, event) if is_timed else NO_TIME
                encode_time(plan, scratch, time, last_time, is_timed)
            elif fact(plan, number, facts.OF_EVENTS) or (
                fact(plan, number, facts.VERSION_OF_EVENTS)
                and not agrees_with_version(tables, plan, scratch, notes, shard, record, event, number)
            ):
                encode_field(tables, plan, scratch, notes, shard, record, event, number)
            size += read_i8(scratch.sizes, number)
        if plan.packed and size > left - took:
            return _end_segment(notes, took), True
        last_time = last_time if time == NO_TIME else time
        _write_event(plan, scratch, notes, filled + took)
        took += size
        if took >= left:
            return _end_segment(notes, left), True
    return _end_segment(notes, took), False


@jit_part
def _encode_own_fields(tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, first: int) -> None:
    """The fields of the record itself. Once per segment, so that copying encode_field here too would not pay."""
    keep_apart()
    for number in range(plan.fields):
        if not fact(plan, number, facts.OF_EVENTS):
            encode_field(tables, plan, scratch, notes, shard, record, first, number)


@jit_inline
def _record_events(tables: Any, plan: Any, notes: Any, shard: int, record: int) -> tuple[int, int]:
    """The first event of a record, and their count. The count is 0 if damaged offsets point outside the column."""
    start = offset(tables, notes, shard, plan.offsets, record)
    stop = offset(tables, notes, shard, plan.offsets, record + 1)
    return (start, stop - start) if 0 <= start <= stop else (0, 0)


@jit_inline
def _end_segment(notes: Any, took: int) -> int:
    if took:
        count(notes, counts.SEGMENTS)
    return took


@jit_inline
def _write_event(plan: Any, scratch: Any, notes: Any, place: int) -> None:
    """The start token and the blocks; scratch memory has room for one event behind the row."""
    blocks = 0
    for number in range(plan.fields):
        if read_i8(scratch.noted, number) >= 0:
            count(notes, read_i8(scratch.noted, number))
        if read_i8(scratch.sizes, number):
            write_i8(scratch.places, blocks, number)
            blocks += 1
    count(notes, counts.EVENTS)
    mixed = draw(scratch.stream) >> np.uint64(32)
    for i in range(blocks * plan.augment - 1, 0, -1):
        mixed, left_over = _divided(mixed, i + 1)
        j = np.int64(left_over)
        swapped = read_i8(scratch.places, i)
        write_i8(scratch.places, i, read_i8(scratch.places, j))
        write_i8(scratch.places, j, swapped)
    write_i4(scratch.tokens, place, START)
    place += 1
    for i in range(blocks):
        number = read_i8(scratch.places, i)
        size = read_i8(scratch.sizes, number)
        to, block = shifted(scratch.tokens, 4 * place), shifted(scratch.blocks, 4 * number * facts.MOST_BLOCK)
        # Most blocks are short, and a copy of known size is a few instructions; what is too much is written over.
        copy_bytes(to, block, 4 * facts.SHORT_BLOCK)
        if size > facts.SHORT_BLOCK:
            copy_bytes(to, block, 4 * size)
        place += size


@jit_inline
def _divided(number: Any, by: int) -> Any:
    """Quotient and remainder; of the usual few blocks by a constant, which is four times as fast."""
    if by == 4:
        return number // _FOUR, number % _FOUR
    if by == 3:
        return number // _THREE, number % _THREE
    if by == 2:
        return number // _TWO, number % _TWO
    divisor = np.uint64(by)
    return number // divisor, number % divisor


@jit_inline
def _fetch_record(tables: Any, plan: Any, shard: int, record: int) -> None:
    """Prefetch the next record into the CPU cache: where its events begin, and its own address."""
    fetch(base(tables, shard, plan.offsets), 8 * record)
    if plan.address_field >= 0:
        fetch(base(tables, shard, fact(plan, plan.address_field, facts.PARSED)), ENTRY * record)


@jit_inline
def _fetch_events(tables: Any, plan: Any, scratch: Any, shard: int, first: int, taken: int) -> None:
    """Prefetch the memory of all chosen events at once, so that the encoding does not wait for each."""
    for number in range(plan.fields):
        if fact(plan, number, facts.OF_EVENTS):
            codes = fact(plan, number, facts.CODES)
            value = codes if codes >= 0 else fact(plan, number, facts.VALUE)
            for slot in (value, fact(plan, number, facts.VALID), fact(plan, number, facts.VERSION)):
                if slot >= 0 and base(tables, shard, slot):
                    column, size = base(tables, shard, slot), read_i8(tables.sizes, slot)
                    for i in range(taken):
                        fetch(column, size * (first + read_i8(scratch.chosen, i)))
    for number in range(plan.fields):
        codes, parsed = fact(plan, number, facts.CODES), fact(plan, number, facts.PARSED)
        if fact(plan, number, facts.OF_EVENTS) and codes >= 0 and parsed >= 0 and base(tables, shard, parsed):
            entries, count = base(tables, shard, parsed), items(tables, shard, codes)
            size = ENTRY if fact(plan, number, facts.KIND) == facts.IP else 4
            for i in range(taken):
                event = first + read_i8(scratch.chosen, i)
                if event < count:
                    fetch(entries, size * read_i4(base(tables, shard, codes), event))
