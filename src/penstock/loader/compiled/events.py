"""Events: rows of tokens from the columns of grouped events, a whole batch at a time. docs/tokens.md, compiled.

reference.py gives the same bytes in plain Python. Data is used before it is known to be intact: the blocks that were
touched and not yet verified are listed, and the batch is made again when they are (tables.py). Until then no number
read from a column is trusted: indexes are held against the columns' lengths.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from penstock.loader.compiled.address import ENTRY, parse_address
from penstock.loader.compiled.columns import BLOCK_BITS, base, count, is_valid, items, real, touch, whole
from penstock.loader.compiled.counter import below, chain, draw, log_uniform, permute, start_draws
from penstock.loader.compiled.jit import jit, jit_inline
from penstock.loader.compiled.pointers import (
    U8,
    copy_bytes,
    fetch,
    read_i4,
    read_i8,
    read_u1,
    shifted,
    write_i4,
    write_i8,
)
from penstock.loader.compiled.token_rows import write_places
from penstock.loader.counts import (
    CUT,
    EVENTS,
    NOT_A_NUMBER,
    OTHER_CATEGORY,
    OTHER_VERSION,
    OUT_OF_RANGE,
    SEGMENTS,
    UNREADABLE,
)
from penstock.loader.order import EVENTS_A_CONTEXT
from penstock.loader.vocabulary import START

IP, TIME, FLOAT11, INT, CATEGORY, BYTES = range(6)  # in the order of vocabulary.KINDS
# One row of `Plan.fields` a field: its kind, its markers, then the slots of its columns (-1: it has none).
(
    KIND,
    MARKER,  # the first of its tokens, and the second and third where it has them
    MARKER_2,
    MARKER_3,
    OF_EVENTS,  # 1: a column of events, 0: of the record
    VALUE,  # slot of numbers, or of the bytes of text
    VALID,
    CODES,
    OFFSETS,  # of text
    PARSED,  # slot of parsed addresses, or of the categories of codes
    VERSION,
    VERSION_VALID,
    VERSION_OF_EVENTS,
    TICKS,  # a second, in a time column
    WIDTH,
    FIRST_CATEGORY,  # in Plan.categories
    CATEGORIES,
    FIELD_FACTS,
) = range(18)
_BLOCK_ITEMS = 1 << BLOCK_BITS  # of a column of bytes
_MOST_BLOCK = 2 + 255  # tokens of one field: a marker, a length, 255 bytes
_NO_TIME = -(2**63)  # no event happened then: numpy's NaT
_SHORT_BLOCK = 8  # tokens
_NO_VERSION = -1
_TWO, _THREE, _FOUR, _MILLION = np.uint64(2), np.uint64(3), np.uint64(4), np.uint64(10**6)
_LARGEST = 2**63 - 1


class Plan(NamedTuple):
    """What is made of them: the vocabulary and the shape of a row."""

    fields: int
    facts: Any  # address of int64 [fields, FIELD_FACTS]
    categories: Any  # address of int64 [values, 2]: whole numbers in order, and the place of each in its vocabulary
    offsets: int  # slot of the records' events
    address_field: int  # the field of the record's own address, or -1
    time_field: int
    packed: bool
    length: int
    byte_base: int
    smallest: int
    typical: int
    typical_ipv6: int


class Scratch(NamedTuple):
    """Memory that the rows of a batch use one after the other: addresses within one array."""

    tokens: Any  # int32, of the row
    blocks: Any  # int32 [fields, _MOST_BLOCK]
    sizes: Any  # int64, of each field's block; 0: the event has none
    noted: Any  # int64, of each field: what to count when the event is taken, or -1
    families: Any  # int64, of each address: 4, 6, or 0 if there is none
    places: Any  # int64, the order of blocks
    chosen: Any  # int64, events of the record in time order
    order: Any  # int64, numbers of chosen events in the order they are written
    timed: Any  # int64, whether each keeps its time
    keeps: Any  # int64
    shuffled: Any  # int64
    entry: Any  # an address
    stream: Any  # two words: the segment's draws


def scratch_words(fields: int, length: int, typical: int) -> int:
    """int64 words of scratch memory that a kernel call needs."""
    return _row_words(length, fields) + fields * _MOST_BLOCK + 4 * fields + 5 * _most_events(length, typical) + 8


@jit_inline
def _row_words(length: int, fields: int) -> int:
    """A row and one event behind it, of int32."""
    return (length + 2 + fields * _MOST_BLOCK + _SHORT_BLOCK) // 2 + 1


def _most_events(length: int, typical: int) -> int:
    return (length + 1) // min(typical, EVENTS_A_CONTEXT) + 2


@jit_inline
def lay_out(memory: Any, plan: Any) -> Any:
    """Cut scratch memory into its parts. The sum is `scratch_words`."""
    events = 8 * ((plan.length + 1) // min(plan.typical, EVENTS_A_CONTEXT) + 2)
    blocks = shifted(memory, 8 * _row_words(plan.length, plan.fields))
    sizes = shifted(blocks, 8 * plan.fields * _MOST_BLOCK)
    noted = shifted(sizes, 8 * plan.fields)
    families = shifted(noted, 8 * plan.fields)
    places = shifted(families, 8 * plan.fields)
    chosen = shifted(places, 8 * plan.fields)
    order, timed = shifted(chosen, events), shifted(chosen, 2 * events)
    keeps, shuffled = shifted(chosen, 3 * events), shifted(chosen, 4 * events)
    entry = shifted(chosen, 5 * events)
    return Scratch(
        memory, blocks, sizes, noted, families, places, chosen, order, timed, keeps, shuffled, entry, shifted(entry, 32)
    )


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
    for number in range(plan.fields):
        if not fact(plan, number, OF_EVENTS):
            _encode_field(tables, plan, scratch, notes, shard, record, first, number)
    taken = _arrange(scratch, choose_events(scratch, events, target_events(plan, scratch, left)))
    _fetch_events(tables, plan, scratch, shard, first, taken)
    took, last_time = 0, _NO_TIME
    for i in range(taken):
        event = first + read_i8(scratch.chosen, read_i8(scratch.order, i))
        time, size = _NO_TIME, 1
        for number in range(plan.fields):
            if number == plan.time_field:
                time = _time(tables, plan, notes, shard, event) if read_i8(scratch.timed, i) else _NO_TIME
                _encode_time(plan, scratch, time, last_time)
            elif fact(plan, number, OF_EVENTS):
                _encode_field(tables, plan, scratch, notes, shard, record, event, number)
            elif fact(plan, number, VERSION_OF_EVENTS):
                _hold_against_version(tables, plan, scratch, notes, shard, record, event, number)
            size += read_i8(scratch.sizes, number)
        if plan.packed and size > left - took:
            return _end_segment(notes, took), True
        last_time = last_time if time == _NO_TIME else time
        _write_event(plan, scratch, notes, filled + took)
        took += size
        if took >= left:
            return _end_segment(notes, left), True
    return _end_segment(notes, took), False


@jit_inline
def target_events(plan: Any, scratch: Any, left: int) -> int:
    """How many events the segment would take."""
    if not plan.packed:
        return max(1, plan.length // EVENTS_A_CONTEXT)
    ipv6 = plan.address_field >= 0 and read_i8(scratch.families, plan.address_field) == 6
    return left // (plan.typical_ipv6 if ipv6 else plan.typical) + 1


@jit_inline
def _end_segment(notes: Any, took: int) -> int:
    if took:
        count(notes, SEGMENTS)
    return took


@jit_inline
def fact(plan: Any, number: int, fact: int) -> int:
    return read_i8(plan.facts, number * FIELD_FACTS + fact)


@jit_inline
def _write_event(plan: Any, scratch: Any, notes: Any, place: int) -> None:
    """The start token and the blocks in random order; scratch memory has room for one event behind the row."""
    blocks = 0
    for number in range(plan.fields):
        if read_i8(scratch.sizes, number):
            write_i8(scratch.places, blocks, number)
            blocks += 1
            if read_i8(scratch.noted, number) >= 0:
                count(notes, read_i8(scratch.noted, number))
    count(notes, EVENTS)
    mixed = draw(scratch.stream) >> np.uint64(32)
    for i in range(blocks - 1, 0, -1):
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
        to, block = shifted(scratch.tokens, 4 * place), shifted(scratch.blocks, 4 * number * _MOST_BLOCK)
        # Most blocks are short, and a copy of known size is a few instructions; what is too much is written over.
        copy_bytes(to, block, 4 * _SHORT_BLOCK)
        if size > _SHORT_BLOCK:
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


# Which events.


@jit_inline
def _record_events(tables: Any, plan: Any, notes: Any, shard: int, record: int) -> tuple[int, int]:
    """The first event of a record, and how many it has. Offsets that lead outside are damaged: none."""
    start = whole(tables, notes, shard, plan.offsets, record)
    stop = whole(tables, notes, shard, plan.offsets, record + 1)
    return (start, stop - start) if 0 <= start <= stop else (0, 0)


@jit_inline
def choose_events(scratch: Any, events: int, target: int) -> int:
    """Put the numbers of the chosen events into `chosen`, in time order; how many they are."""
    window, offset = events, 0
    if events >= target:
        window = log_uniform(draw(scratch.stream), events)
        offset = below(draw(scratch.stream), events - window + 1)
    taken = min(window, target)
    if window <= target:
        for i in range(taken):
            write_i8(scratch.chosen, i, offset + i)
        return taken
    own = draw(scratch.stream)
    for i in range(taken):
        write_i8(scratch.chosen, i, offset + permute(i, window, own))
    _sort(scratch.chosen, taken)
    return taken


@jit_inline
def _sort(values: Any, count: int) -> None:
    """Shell's sort: dozens of numbers, in place, no call."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(gap, count):
            value, j = read_i8(values, i), i
            while j >= gap and read_i8(values, j - gap) > value:
                write_i8(values, j, read_i8(values, j - gap))
                j -= gap
            write_i8(values, j, value)
        gap //= 3


@jit_inline
def _arrange(scratch: Any, taken: int) -> int:
    """Decide the time mode: the order of the chosen events, and which of them keep their time."""
    mode = below(draw(scratch.stream), 10)
    if mode < 4:
        for i in range(taken):
            write_i8(scratch.order, i, i)
            write_i8(scratch.timed, i, 1)
    elif mode < 7:
        _interleave(scratch, taken)
    else:
        own = draw(scratch.stream)
        for i in range(taken):
            write_i8(scratch.order, i, permute(i, taken, own))
            write_i8(scratch.timed, i, 0)
    return taken


@jit_inline
def _interleave(scratch: Any, taken: int) -> None:
    """Some lose their time and are shuffled; a fair coin says which of the two sequences goes on."""
    share = np.int64(draw(scratch.stream) >> np.uint64(32))
    lost = max(1, taken * (2**32 + 8 * share) // (10 * 2**32))
    own = draw(scratch.stream)
    for i in range(taken):
        write_i8(scratch.keeps, i, 1)
    for i in range(lost):
        write_i8(scratch.shuffled, i, permute(i, taken, own))
        write_i8(scratch.keeps, read_i8(scratch.shuffled, i), 0)
    next_timed, next_lost = 0, 0
    for i in range(taken):
        while next_timed < taken and not read_i8(scratch.keeps, next_timed):
            next_timed += 1
        takes_lost = next_timed == taken
        if next_timed < taken and next_lost < lost:
            takes_lost = draw(scratch.stream) >> np.uint64(63) == 1
        write_i8(scratch.timed, i, 0 if takes_lost else 1)
        if takes_lost:
            write_i8(scratch.order, i, read_i8(scratch.shuffled, next_lost))
            next_lost += 1
        else:
            write_i8(scratch.order, i, next_timed)
            next_timed += 1


@jit_inline
def _fetch_record(tables: Any, plan: Any, shard: int, record: int) -> None:
    """The same for the next record: where its events begin, and its own address."""
    fetch(base(tables, shard, plan.offsets), 8 * record)
    if plan.address_field >= 0:
        fetch(base(tables, shard, fact(plan, plan.address_field, PARSED)), ENTRY * record)


@jit_inline
def _fetch_events(tables: Any, plan: Any, scratch: Any, shard: int, first: int, taken: int) -> None:
    """Ask for what the chosen events lie in, all at once: one after the other, the encoding would wait for each."""
    for number in range(plan.fields):
        if fact(plan, number, OF_EVENTS):
            codes = fact(plan, number, CODES)
            value = codes if codes >= 0 else fact(plan, number, VALUE)
            for slot in (value, fact(plan, number, VALID), fact(plan, number, VERSION)):
                if slot >= 0 and base(tables, shard, slot):
                    column, size = base(tables, shard, slot), read_i8(tables.sizes, slot)
                    for i in range(taken):
                        fetch(column, size * (first + read_i8(scratch.chosen, i)))
    for number in range(plan.fields):
        codes, parsed = fact(plan, number, CODES), fact(plan, number, PARSED)
        if fact(plan, number, OF_EVENTS) and codes >= 0 and parsed >= 0 and base(tables, shard, parsed):
            entries, count = base(tables, shard, parsed), items(tables, shard, codes)
            size = ENTRY if fact(plan, number, KIND) == IP else 4
            for i in range(taken):
                event = first + read_i8(scratch.chosen, i)
                if event < count:
                    fetch(entries, size * read_i4(base(tables, shard, codes), event))


# The block of a field: its tokens into `blocks`, their number into `sizes`, what to count into `noted`.


@jit_inline
def _encode_field(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, event: int, number: int
) -> None:
    """The event's value, or the record's own."""
    index = event if fact(plan, number, OF_EVENTS) else record
    write_i8(scratch.noted, number, -1)
    valid = is_valid(tables, notes, shard, fact(plan, number, VALID), index)
    kind = fact(plan, number, KIND)
    if kind == IP:
        version = _version(tables, plan, notes, shard, record, event, number)
        _encode_address(tables, plan, scratch, notes, shard, index, number, valid, version)
    elif kind == FLOAT11:
        value = real(tables, notes, shard, fact(plan, number, VALUE), index) if valid else np.nan
        _encode_float11(plan, scratch, number, value)
    elif kind == INT:
        _encode_int(tables, plan, scratch, notes, shard, index, number, valid)
    elif kind == CATEGORY:
        _encode_category(tables, plan, scratch, notes, shard, index, number, valid)
    else:
        _encode_bytes(tables, plan, scratch, notes, shard, index, number, valid)


@jit_inline
def _put(scratch: Any, number: int, place: int, token: int) -> None:
    write_i4(scratch.blocks, number * _MOST_BLOCK + place, token)


@jit_inline
def _put_number(plan: Any, scratch: Any, number: int, marker: int, value: int, width: int) -> None:
    """A marker and the big-endian bytes of a whole number: the whole block."""
    _put(scratch, number, 0, fact(plan, number, marker))
    for i in range(width):
        _put(scratch, number, 1 + i, plan.byte_base + ((value >> (8 * (width - 1 - i))) & 255))
    write_i8(scratch.sizes, number, 1 + width)


@jit_inline
def _put_marker(plan: Any, scratch: Any, number: int, marker: int, noted: int) -> None:
    """A marker alone, which says that there is no value."""
    _put(scratch, number, 0, fact(plan, number, marker))
    write_i8(scratch.noted, number, noted)
    write_i8(scratch.sizes, number, 1)


@jit_inline
def _encode_address(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool, version: int
) -> None:
    family, entry = 0, scratch.entry
    if valid:
        entry = _read_address(tables, plan, scratch, notes, shard, index, number)
        family = read_u1(entry, 0)
        if family == 0:
            write_i8(scratch.noted, number, UNREADABLE)
        elif version != _NO_VERSION and version != family:
            write_i8(scratch.noted, number, OTHER_VERSION)
    write_i8(scratch.families, number, family)
    block = shifted(scratch.blocks, 4 * (number * _MOST_BLOCK + 1))
    is_long = family == 6 or (family == 0 and version == 6)
    _put(scratch, number, 0, fact(plan, number, MARKER_2 if is_long else MARKER))
    write_i8(scratch.sizes, number, 17 if is_long else 5)
    if family == 0:
        for i in range(16):
            write_i4(block, i, plan.byte_base)
    elif is_long:
        for i in range(16):
            write_i4(block, i, plan.byte_base + read_u1(entry, 1 + i))
    else:
        for i in range(4):
            write_i4(block, i, plan.byte_base + read_u1(entry, 1 + i))


@jit_inline
def _hold_against_version(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, event: int, number: int
) -> None:
    """The record's own address beside the version of one of its events. One without a family has the event's zeros."""
    family = read_i8(scratch.families, number)
    if family == 0:
        _encode_field(tables, plan, scratch, notes, shard, record, event, number)
        return
    version = _version(tables, plan, notes, shard, record, event, number)
    write_i8(scratch.noted, number, OTHER_VERSION if version not in (_NO_VERSION, family) else -1)


@jit_inline
def _version(tables: Any, plan: Any, notes: Any, shard: int, record: int, event: int, number: int) -> int:
    """What the version column says, if it says anything."""
    slot = fact(plan, number, VERSION)
    place = event if fact(plan, number, VERSION_OF_EVENTS) else record
    if slot < 0 or not is_valid(tables, notes, shard, fact(plan, number, VERSION_VALID), place):
        return _NO_VERSION
    return whole(tables, notes, shard, slot, place)


@jit_inline
def _read_address(tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int) -> Any:
    """Where the entry of a value's address is: among the parsed ones if they are held, else parsed from its text."""
    code = _code(tables, plan, notes, shard, index, number)
    parsed = fact(plan, number, PARSED)
    entries = base(tables, shard, parsed)
    if entries and 0 <= code < items(tables, shard, parsed):
        return shifted(entries, ENTRY * code)
    start, stop = _text(tables, plan, notes, shard, code, number)
    parse_address(base(tables, shard, fact(plan, number, VALUE)), start, stop, scratch.entry)
    return scratch.entry


@jit_inline
def _time(tables: Any, plan: Any, notes: Any, shard: int, event: int) -> int:
    if not is_valid(tables, notes, shard, fact(plan, plan.time_field, VALID), event):
        return _NO_TIME
    return whole(tables, notes, shard, fact(plan, plan.time_field, VALUE), event)


@jit_inline
def _seconds(time: int, last_time: int, ticks: int) -> int:
    """Whole seconds since the last time, none of them negative; -1 if there was none, or it is too long ago."""
    if last_time == _NO_TIME:
        return -1
    if time <= last_time:
        return 0
    difference = time - last_time
    if difference < 0:  # beyond 2^63 ticks it wraps
        return -1
    if ticks == 10**6:  # by a constant it is four times as fast
        return np.int64(np.uint64(difference) // _MILLION)
    return difference // ticks


@jit_inline
def _encode_time(plan: Any, scratch: Any, time: int, last_time: int) -> None:
    number, ticks = plan.time_field, fact(plan, plan.time_field, TICKS)
    write_i8(scratch.noted, number, -1)
    if time == _NO_TIME:
        write_i8(scratch.sizes, number, 0)
        return
    seconds = _seconds(time, last_time, ticks)
    if 0 <= seconds < 256:
        _put_number(plan, scratch, number, MARKER_2, seconds, 1)
    elif 0 <= seconds < 2**32:
        _put_number(plan, scratch, number, MARKER_3, seconds, 4)
    else:
        _put_number(plan, scratch, number, MARKER, time // ticks, 8)


@jit_inline
def _encode_float11(plan: Any, scratch: Any, number: int, value: float) -> None:
    if np.isnan(value):
        _put_marker(plan, scratch, number, MARKER_2, NOT_A_NUMBER)
        return
    if value < 0:
        _put_marker(plan, scratch, number, MARKER_2, -1)
        return
    scaled, exponent = max(1.0, 1000.0 * value), 0
    while scaled >= 2048.0 and exponent < 31:
        scaled *= 0.5
        exponent += 1
    mantissa = 2047 if scaled >= 2048.0 else np.int64(scaled)
    _put_number(plan, scratch, number, MARKER, exponent << 11 | mantissa, 2)


@jit_inline
def _encode_int(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    if not valid:
        _put_marker(plan, scratch, number, MARKER_2, -1)
        return
    slot, width = fact(plan, number, VALUE), fact(plan, number, WIDTH)
    value = whole(tables, notes, shard, slot, index)
    most = _LARGEST >> (64 - 8 * width)
    beyond = read_i8(tables.kinds, slot) == U8 and value < 0  # a uint64 that int64 cannot hold
    fitting = most if beyond or value > most else max(value, -most - 1)
    if beyond or fitting != value:
        write_i8(scratch.noted, number, OUT_OF_RANGE)
    _put_number(plan, scratch, number, MARKER, fitting, width)


@jit_inline
def _encode_category(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    other = fact(plan, number, CATEGORIES)
    category, parsed = other, fact(plan, number, PARSED)
    if valid and parsed >= 0:
        code = _code(tables, plan, notes, shard, index, number)
        if 0 <= code < items(tables, shard, parsed):
            category = read_i4(base(tables, shard, parsed), code)
    elif valid:
        category = _find_category(plan, number, whole(tables, notes, shard, fact(plan, number, VALUE), index))
    if category == other:
        write_i8(scratch.noted, number, OTHER_CATEGORY)
    _put(scratch, number, 0, fact(plan, number, MARKER) + category)
    write_i8(scratch.sizes, number, 1)


@jit_inline
def _find_category(plan: Any, number: int, value: int) -> int:
    """Which of the declared whole numbers it is, by halving; one more than the last if none."""
    categories = fact(plan, number, CATEGORIES)
    low = fact(plan, number, FIRST_CATEGORY)
    high = end = low + categories
    while low < high:
        middle = (low + high) // 2
        if read_i8(plan.categories, 2 * middle) < value:
            low = middle + 1
        else:
            high = middle
    found = low < end and read_i8(plan.categories, 2 * low) == value
    return read_i8(plan.categories, 2 * low + 1) if found else categories


@jit_inline
def _encode_bytes(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    if not valid:
        _put_marker(plan, scratch, number, MARKER_2, -1)
        return
    start, stop = _text(tables, plan, notes, shard, _code(tables, plan, notes, shard, index, number), number)
    size = min(stop - start, fact(plan, number, WIDTH))
    if stop - start > size:
        write_i8(scratch.noted, number, CUT)
    _put(scratch, number, 0, fact(plan, number, MARKER))
    _put(scratch, number, 1, plan.byte_base + size)
    flat = base(tables, shard, fact(plan, number, VALUE))
    for i in range(size):
        _put(scratch, number, 2 + i, plan.byte_base + read_u1(flat, start + i))
    write_i8(scratch.sizes, number, 2 + size)


# Text.


@jit_inline
def _code(tables: Any, plan: Any, notes: Any, shard: int, index: int, number: int) -> int:
    """Which text of the column: its code, or its own number where it has no dictionary."""
    slot = fact(plan, number, CODES)
    return index if slot < 0 else whole(tables, notes, shard, slot, index)


@jit_inline
def _text(tables: Any, plan: Any, notes: Any, shard: int, code: int, number: int) -> tuple[int, int]:
    """Where a text lies in its bytes."""
    offsets, flat = fact(plan, number, OFFSETS), fact(plan, number, VALUE)
    start = whole(tables, notes, shard, offsets, code)
    stop = whole(tables, notes, shard, offsets, code + 1)
    if not 0 <= start <= stop <= items(tables, shard, flat):
        return 0, 0
    for index in range(start, stop, _BLOCK_ITEMS):
        touch(tables, notes, shard, flat, index)
    if stop > start:
        touch(tables, notes, shard, flat, stop - 1)
    return start, stop
