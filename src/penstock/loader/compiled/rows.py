"""Rows: rows of tokens and of arrays, windows of records, copied out of mapped columns. ../kinds/ says it plainly."""

from typing import Any

import numpy as np

from penstock.loader.compiled.columns import base, items, offset, touch_all, whole
from penstock.loader.compiled.jit import jit, jit_inline, jit_part
from penstock.loader.compiled.places import places_of as places_of
from penstock.loader.compiled.places import write_places
from penstock.loader.compiled.pointers import (
    U2,
    clear_bytes,
    copy_bytes,
    read_i8,
    read_u2,
    read_whole,
    shifted,
    write_i4,
    write_u1,
)


@jit
def copy_rows(tables: Any, notes: Any, slot: int, row_bytes: int, shards: Any, records: Any, out: Any) -> None:
    """Record after record of one column into `out`; a row that has none is zeros."""
    for i in range(len(shards)):
        shard, record = np.int64(shards[i]), records[i]
        place = shifted(out, i * row_bytes)
        if shard < 0 or not _touch_row(tables, notes, shard, slot, record, row_bytes):
            clear_bytes(place, row_bytes)
        else:
            copy_bytes(place, shifted(base(tables, shard, slot), record * row_bytes), row_bytes)


@jit
def find_lists(tables: Any, notes: Any, slot: int, shards: Any, records: Any, firsts: Any, counts: Any) -> None:
    """First event and number of events of each record, by the offsets of a list; a row without a record has none."""
    for i in range(len(shards)):
        shard, first, stop = np.int64(shards[i]), 0, 0
        if shard >= 0:
            first = offset(tables, notes, shard, slot, records[i])
            stop = offset(tables, notes, shard, slot, records[i] + 1)
        firsts[i], counts[i] = first, max(0, stop - first)


@jit
def copy_windows(
    tables: Any, notes: Any, slot: int, per_event: int, shards: Any, firsts: Any, counts: Any, places: Any, out: Any
) -> None:
    """Events of row i to place `places[i]` of `out`, and zeros from there to the next place.

    An event has `per_event` items. `places` has one more entry than there are rows: the end of `out`.
    """
    event_bytes = per_event * read_i8(tables.sizes, slot)
    for i in range(len(shards)):
        shard, first, count = np.int64(shards[i]), firsts[i], counts[i]
        place, room = shifted(out, places[i] * event_bytes), (places[i + 1] - places[i]) * event_bytes
        filled = 0
        if count and touch_all(tables, notes, shard, slot, first * per_event, (first + count) * per_event):
            filled = count * event_bytes
            copy_bytes(place, shifted(base(tables, shard, slot), first * event_bytes), filled)
        clear_bytes(shifted(place, filled), room - filled)


@jit
def copy_valid(
    tables: Any, notes: Any, slot: int, shards: Any, firsts: Any, counts: Any, places: Any, out: Any
) -> None:
    """`counts[i]` values of a validity column to place `places[i]` of `out`, and zeros from there to the next place.

    In a shard without the column every value is valid.
    """
    for i in range(len(shards)):
        shard, first, count = np.int64(shards[i]), firsts[i], counts[i]
        place, room = shifted(out, places[i]), places[i + 1] - places[i]
        filled = 0
        if count and not base(tables, shard, slot):
            filled = count
            for j in range(count):
                write_u1(place, j, 1)
        elif count and touch_all(tables, notes, shard, slot, first, first + count):
            filled = count
            copy_bytes(place, shifted(base(tables, shard, slot), first), count)
        clear_bytes(shifted(place, filled), room - filled)


@jit_part
def _touch_row(tables: Any, notes: Any, shard: int, slot: int, record: int, row_bytes: int) -> bool:
    """Whether the record is there; its blocks are put on the list."""
    per_row = row_bytes // read_i8(tables.sizes, slot)
    return touch_all(tables, notes, shard, slot, record * per_row, (record + 1) * per_row)


@jit
def encode_rows(
    tables: Any, notes: Any, slots: Any, width: int, length: int, shards: Any, records: Any, rows: Any
) -> int:
    """Token rows: `slots` are those of the tokens, of their offsets (-1: all rows have `width`), of the documents'
    offsets and of their starts (-1: a row is one document). How many tokens had no room."""
    truncated = 0
    for i in range(len(shards)):
        shard, record = np.int64(shards[i]), records[i]
        first, filled = _row_tokens(tables, notes, slots, width, shard, record)
        truncated += max(0, filled - (length + 1))
        filled = min(filled, length + 1)
        _copy_tokens(tables, slots[0], shard, first, filled, length, rows, i)
        _number_documents(tables, notes, slots, shard, record, filled, length, rows, i)
    return truncated


@jit
def copy_kept(
    tables: Any, notes: Any, slots: Any, width: int, length: int, shards: Any, records: Any, inputs: Any, targets: Any
) -> None:
    """Values beside the tokens, as they are stored: `slots` are those of the values and of the tokens' offsets."""
    size = read_i8(tables.sizes, slots[0])
    for i in range(len(shards)):
        shard, record = np.int64(shards[i]), records[i]
        first, filled = _row_tokens(tables, notes, slots, width, shard, record)
        flat = shifted(base(tables, max(shard, 0), slots[0]), first * size)
        shown, following = min(filled, length), min(max(filled - 1, 0), length)
        _copy_padded(shifted(inputs, i * length * size), flat, shown * size, length * size)
        _copy_padded(shifted(targets, i * length * size), shifted(flat, size), following * size, length * size)


@jit_inline
def _copy_padded(place: Any, source: Any, count: int, room: int) -> None:
    """Copy `count` bytes, and fill up to `room` with zeros."""
    copy_bytes(place, source, count)
    clear_bytes(shifted(place, count), room - count)


@jit_part
def _row_tokens(tables: Any, notes: Any, slots: Any, width: int, shard: int, record: int) -> tuple[int, int]:
    """Start of a row's tokens, and how many they are; a row without a shard has none."""
    if shard < 0:
        return 0, 0
    first, stop = record * width, (record + 1) * width
    if slots[1] >= 0:
        first, stop = _range(tables, notes, shard, slots[1], record)
    return (first, stop - first) if touch_all(tables, notes, shard, slots[0], first, stop) else (0, 0)


@jit_part
def _range(tables: Any, notes: Any, shard: int, slot: int, record: int) -> tuple[int, int]:
    """Start and end of a record's list, by its offsets."""
    return offset(tables, notes, shard, slot, record), offset(tables, notes, shard, slot, record + 1)


@jit_part
def _copy_tokens(tables: Any, slot: int, shard: int, first: int, filled: int, length: int, rows: Any, row: int) -> None:
    inputs, targets = shifted(rows.inputs, 4 * row * length), shifted(rows.targets, 4 * row * length)
    kind = read_i8(tables.kinds, slot)
    flat = base(tables, max(shard, 0), slot)
    shown = min(filled, length)
    if kind == U2:  # the usual case, in a loop that the processor does several tokens at a time
        for i in range(shown):
            write_i4(inputs, i, read_u2(flat, first + i))
    else:
        for i in range(shown):
            write_i4(inputs, i, read_whole(flat, first + i, kind))
    for i in range(filled, length):
        write_i4(inputs, i, 0)
    copy_bytes(targets, shifted(inputs, 4), 4 * (length - 1))
    write_i4(targets, length - 1, read_whole(flat, first + length, kind) if filled > length else 0)


@jit_part
def _number_documents(
    tables: Any, notes: Any, slots: Any, shard: int, record: int, filled: int, length: int, rows: Any, row: int
) -> None:
    """Segments from 1 and positions from 0 in each document; what is not filled is 0."""
    start, stop = 0, 0
    if shard >= 0 and slots[2] >= 0:
        start, stop = _range(tables, notes, shard, slots[2], record)
        if not 0 <= start <= stop <= items(tables, shard, slots[3]):  # damaged: the block is refused afterwards
            start, stop = 0, 0
    begin, segment = 0, 0
    while begin < filled:
        segment += 1
        end = filled
        while start < stop:  # starts that are not behind the last one are none: 0 is where every row begins
            candidate = whole(tables, notes, shard, slots[3], start)
            start += 1
            if candidate > begin:
                end = min(candidate, filled)
                break
        write_places(rows, row, length, begin, end, segment)
        begin = end
    write_places(rows, row, length, filled, length, 0)
