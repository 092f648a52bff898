"""Fields: the block of a field: its tokens into `blocks`, their number into `sizes`, what to count into `noted`."""

from typing import Any

import numpy as np

from penstock.loader.compiled import plan as facts
from penstock.loader.compiled.address import ENTRY, parse_address
from penstock.loader.compiled.columns import BLOCK_BITS, base, is_valid, items, offset, real, touch, whole
from penstock.loader.compiled.jit import jit, jit_inline, jit_part, keep_apart
from penstock.loader.compiled.plan import fact
from penstock.loader.compiled.pointers import (
    U8,
    ieee_bits,
    read_f8,
    read_i4,
    read_i8,
    read_u1,
    shifted,
    write_i4,
    write_i8,
)
from penstock.loader.tokens import counts

NO_TIME = -(2**63)  # no event happened then: numpy's NaT
_NO_VERSION = -1
_BLOCK_ITEMS = 1 << BLOCK_BITS  # of a column of bytes
_LARGEST = 2**63 - 1
_INFINITE_16, _INFINITE_32 = 31 << 10, 255 << 23  # bits of infinity
_MILLION = np.uint64(10**6)


@jit_inline
def encode_field(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, event: int, number: int
) -> None:
    """The event's value, or the record's own."""
    index = event if fact(plan, number, facts.OF_EVENTS) else record
    write_i8(scratch.noted, number, -1)
    valid = is_valid(tables, notes, shard, fact(plan, number, facts.VALID), index)
    kind = fact(plan, number, facts.KIND)
    if kind == facts.IP:
        version = _version(tables, plan, notes, shard, record, event, number)
        _encode_address(tables, plan, scratch, notes, shard, index, number, valid, version)
    elif kind == facts.FLOAT11:
        value = real(tables, notes, shard, fact(plan, number, facts.VALUE), index) if valid else np.nan
        _encode_float11(plan, scratch, number, value, valid)
    elif kind == facts.INT:
        _encode_int(tables, plan, scratch, notes, shard, index, number, valid)
    elif kind == facts.CATEGORY:
        _encode_category(tables, plan, scratch, notes, shard, index, number, valid)
    elif kind == facts.BYTES:
        _encode_bytes(tables, plan, scratch, notes, shard, index, number, valid)
    elif kind == facts.BOOLEAN:
        truth = whole(tables, notes, shard, fact(plan, number, facts.VALUE), index) if valid else 0
        _encode_boolean(plan, scratch, number, truth, valid)
    else:
        value = real(tables, notes, shard, fact(plan, number, facts.VALUE), index) if valid else np.nan
        if kind == facts.BINS:
            _encode_bin(plan, scratch, number, value, valid)
        else:
            _encode_ieee(plan, scratch, number, value, valid)


@jit_inline
def _put(scratch: Any, number: int, place: int, token: int) -> None:
    write_i4(scratch.blocks, number * facts.MOST_BLOCK + place, token)


@jit_inline
def _put_number(plan: Any, scratch: Any, number: int, marker: int, value: int, width: int) -> None:
    """A marker and the big-endian bytes of a whole number: the whole block."""
    _put(scratch, number, 0, fact(plan, number, marker))
    for i in range(width):
        _put(scratch, number, 1 + i, plan.byte_base + ((value >> (8 * (width - 1 - i))) & 255))
    write_i8(scratch.sizes, number, 1 + width)


@jit_inline
def _put_marker(plan: Any, scratch: Any, number: int, marker: int, noted: int) -> None:
    """A marker alone, without a value behind it."""
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
            write_i8(scratch.noted, number, counts.UNREADABLE)
        elif version != _NO_VERSION and version != family:
            write_i8(scratch.noted, number, counts.OTHER_VERSION)
    else:
        write_i8(scratch.noted, number, counts.NULLS)
    write_i8(scratch.families, number, family)
    block = shifted(scratch.blocks, 4 * (number * facts.MOST_BLOCK + 1))
    is_long = family == 6 or (family == 0 and version == 6)
    _put(scratch, number, 0, fact(plan, number, facts.MARKER_2 if is_long else facts.MARKER))
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
def agrees_with_version(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, record: int, event: int, number: int
) -> bool:
    """Hold the record's own address against the version of one of its events. One without a family has the event's
    zeros: False, it has to be encoded again."""
    family = read_i8(scratch.families, number)
    if family == 0:
        return False
    version = _version(tables, plan, notes, shard, record, event, number)
    write_i8(scratch.noted, number, counts.OTHER_VERSION if version not in (_NO_VERSION, family) else -1)
    return True


@jit_inline
def _version(tables: Any, plan: Any, notes: Any, shard: int, record: int, event: int, number: int) -> int:
    """Version that the version column states, if it states any."""
    slot = fact(plan, number, facts.VERSION)
    place = event if fact(plan, number, facts.VERSION_OF_EVENTS) else record
    if slot < 0 or not is_valid(tables, notes, shard, fact(plan, number, facts.VERSION_VALID), place):
        return _NO_VERSION
    return whole(tables, notes, shard, slot, place)


@jit_inline
def _read_address(tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int) -> Any:
    """Place of the entry of a value's address: among the parsed ones if they are held, else parsed from its text."""
    code = _code(tables, plan, notes, shard, index, number)
    parsed = fact(plan, number, facts.PARSED)
    entries = base(tables, shard, parsed)
    if entries and 0 <= code < items(tables, shard, parsed):
        return shifted(entries, ENTRY * code)
    start, stop = _text(tables, plan, notes, shard, code, number)
    parse_address(base(tables, shard, fact(plan, number, facts.VALUE)), start, stop, scratch.entry)
    return scratch.entry


@jit_inline
def read_time(tables: Any, plan: Any, notes: Any, shard: int, event: int) -> int:
    if not is_valid(tables, notes, shard, fact(plan, plan.time_field, facts.VALID), event):
        return NO_TIME
    return whole(tables, notes, shard, fact(plan, plan.time_field, facts.VALUE), event)


@jit_inline
def _seconds(time: int, last_time: int, ticks: int) -> int:
    """Whole seconds since the last time, none of them negative; -1 if there was none, or it is too long ago."""
    if last_time == NO_TIME:
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
def encode_time(plan: Any, scratch: Any, time: int, last_time: int, is_timed: bool) -> None:
    """An event that keeps its time may have none: that is a null."""
    number, ticks = plan.time_field, fact(plan, plan.time_field, facts.TICKS)
    if time == NO_TIME:
        write_i8(scratch.noted, number, counts.NULLS if is_timed else -1)
        write_i8(scratch.sizes, number, 0)
        return
    write_i8(scratch.noted, number, counts.GOING_BACK if time < last_time else -1)
    seconds = _seconds(time, last_time, ticks)
    if 0 <= seconds < 256:
        _put_number(plan, scratch, number, facts.MARKER_2, seconds, 1)
    elif 0 <= seconds < 2**32:
        _put_number(plan, scratch, number, facts.MARKER_3, seconds, 4)
    else:
        _put_number(plan, scratch, number, facts.MARKER, time // ticks, 8)


@jit_inline
def _encode_float11(plan: Any, scratch: Any, number: int, value: float, valid: bool) -> None:
    if np.isnan(value):
        _put_marker(plan, scratch, number, facts.MARKER_2, counts.NOT_A_NUMBER if valid else counts.NULLS)
        return
    if value < 0:
        _put_marker(plan, scratch, number, facts.MARKER_2, counts.NEGATIVE)
        return
    scaled, exponent = 1000.0 * value, 0
    if scaled < 1.0:
        scaled = 1.0
        write_i8(scratch.noted, number, counts.TOO_SMALL)
    while scaled >= 2048.0 and exponent < 31:
        scaled *= 0.5
        exponent += 1
    mantissa = 2047
    if scaled >= 2048.0:
        write_i8(scratch.noted, number, counts.TOO_LARGE)
    else:
        mantissa = np.int64(scaled)
    _put_number(plan, scratch, number, facts.MARKER, exponent << 11 | mantissa, 2)


@jit_inline
def _encode_ieee(plan: Any, scratch: Any, number: int, value: float, valid: bool) -> None:
    """A finite number that would become infinite is the largest one."""
    if not valid:
        _put_marker(plan, scratch, number, facts.MARKER_2, counts.NULLS)
        return
    width = fact(plan, number, facts.WIDTH)
    bits = ieee_bits(value, width)
    sign = bits >> (8 * width - 1) << (8 * width - 1)
    if bits - sign == (_INFINITE_16 if width == 2 else _INFINITE_32) and not np.isinf(value):
        write_i8(scratch.noted, number, counts.TOO_LARGE)
        bits -= 1
    elif bits == sign and value != 0.0:
        write_i8(scratch.noted, number, counts.TOO_SMALL)
    _put_number(plan, scratch, number, facts.MARKER, bits, width)


@jit_inline
def _encode_bin(plan: Any, scratch: Any, number: int, value: float, valid: bool) -> None:
    first, count = fact(plan, number, facts.FIRST_CATEGORY), fact(plan, number, facts.CATEGORIES) - 1
    found = count
    if np.isnan(value):
        write_i8(scratch.noted, number, counts.NOT_A_NUMBER if valid else counts.NULLS)
    else:
        found = _find_bin(shifted(plan.categories, 8 * facts.CATEGORY_FACTS * first), count, value)
        if found < 0:
            found = 0
            write_i8(scratch.noted, number, counts.TOO_SMALL)
        elif value > read_f8(plan.categories, (first + count) * facts.CATEGORY_FACTS + facts.CATEGORY_VALUE):
            write_i8(scratch.noted, number, counts.TOO_LARGE)
    _put(scratch, number, 0, fact(plan, number, facts.MARKER) + found)
    write_i8(scratch.sizes, number, 1)


@jit_part
def _find_bin(edges: Any, count: int, value: float) -> int:
    """Number of the last of `count` lower edges that is not above the value; -1 if all are."""
    keep_apart()
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if read_f8(edges, middle * facts.CATEGORY_FACTS + facts.CATEGORY_VALUE) <= value:
            low = middle + 1
        else:
            high = middle
    return low - 1


@jit_inline
def _encode_boolean(plan: Any, scratch: Any, number: int, truth: int, valid: bool) -> None:
    if not valid:
        _put_marker(plan, scratch, number, facts.MARKER_3, counts.NULLS)
    else:
        _put_marker(plan, scratch, number, facts.MARKER_2 if truth else facts.MARKER, -1)


@jit_inline
def _encode_int(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    if not valid:
        _put_marker(plan, scratch, number, facts.MARKER_2, counts.NULLS)
        return
    slot, width = fact(plan, number, facts.VALUE), fact(plan, number, facts.WIDTH)
    value = whole(tables, notes, shard, slot, index)
    most = _LARGEST >> (64 - 8 * width)
    beyond = read_i8(tables.kinds, slot) == U8 and value < 0  # a uint64 that int64 cannot hold
    fitting = most if beyond or value > most else max(value, -most - 1)
    if beyond or fitting != value:
        write_i8(scratch.noted, number, counts.OUT_OF_RANGE)
    _put_number(plan, scratch, number, facts.MARKER, fitting, width)


@jit_inline
def _encode_category(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    other = fact(plan, number, facts.CATEGORIES)
    category = other
    if valid and fact(plan, number, facts.PARSED) >= 0:
        category = _read_category(tables, plan, notes, shard, index, number)
    elif valid:
        category = _find_category(plan, number, whole(tables, notes, shard, fact(plan, number, facts.VALUE), index))
    if category == other:
        write_i8(scratch.noted, number, counts.OTHER_CATEGORY if valid else counts.NULLS)
    _put(scratch, number, 0, fact(plan, number, facts.MARKER) + category)
    write_i8(scratch.sizes, number, 1)


@jit_inline
def _read_category(tables: Any, plan: Any, notes: Any, shard: int, index: int, number: int) -> int:
    """The category of a text: among those that are held, else found by its bytes."""
    code, parsed = _code(tables, plan, notes, shard, index, number), fact(plan, number, facts.PARSED)
    held = base(tables, shard, parsed)
    if held and 0 <= code < items(tables, shard, parsed):
        return read_i4(held, code)
    start, stop = _text(tables, plan, notes, shard, code, number)
    own, count = _own_categories(plan, number), fact(plan, number, facts.CATEGORIES)
    text = shifted(base(tables, shard, fact(plan, number, facts.VALUE)), start)
    return _find_text(own, count, plan.texts, text, stop - start)


@jit_inline
def _own_categories(plan: Any, number: int) -> Any:
    """The address at which the values of a field begin among all categories."""
    return shifted(plan.categories, 8 * facts.CATEGORY_FACTS * fact(plan, number, facts.FIRST_CATEGORY))


@jit
def find_texts(plan: Any, number: int, flat: Any, offsets: Any, count: int, found: Any) -> None:
    """`count` texts, by the addresses of their bytes and offsets -> the category of each, as int32."""
    own, categories = _own_categories(plan, number), fact(plan, number, facts.CATEGORIES)
    for i in range(count):
        start, stop = read_i8(offsets, i), read_i8(offsets, i + 1)
        write_i4(found, i, _find_text(own, categories, plan.texts, shifted(flat, start), stop - start))


@jit_part
def _find_text(categories: Any, count: int, texts: Any, text: Any, size: int) -> int:
    """Number of a text among `count` declared ones, by halving; one more than the last if none."""
    keep_apart()
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        other = shifted(texts, read_i8(categories, middle * facts.CATEGORY_FACTS + facts.CATEGORY_VALUE))
        order = _compare(text, size, other, read_i8(categories, middle * facts.CATEGORY_FACTS + facts.CATEGORY_SIZE))
        if order == 0:
            return read_i8(categories, middle * facts.CATEGORY_FACTS + facts.CATEGORY_PLACE)
        if order > 0:
            low = middle + 1
        else:
            high = middle
    return count


@jit_inline
def _compare(text: Any, size: int, other: Any, other_size: int) -> int:
    """Below, at or above 0, as the bytes of the first text are below, equal to or above those of the other."""
    for i in range(min(size, other_size)):
        difference = read_u1(text, i) - read_u1(other, i)
        if difference:
            return difference
    return size - other_size


@jit_inline
def _find_category(plan: Any, number: int, value: int) -> int:
    """Place of a whole number among the declared ones, by halving; one more than the last if none."""
    categories = fact(plan, number, facts.CATEGORIES)
    low = fact(plan, number, facts.FIRST_CATEGORY)
    high = end = low + categories
    while low < high:
        middle = (low + high) // 2
        if read_i8(plan.categories, middle * facts.CATEGORY_FACTS + facts.CATEGORY_VALUE) < value:
            low = middle + 1
        else:
            high = middle
    found = low < end and read_i8(plan.categories, low * facts.CATEGORY_FACTS + facts.CATEGORY_VALUE) == value
    return read_i8(plan.categories, low * facts.CATEGORY_FACTS + facts.CATEGORY_PLACE) if found else categories


@jit_inline
def _encode_bytes(
    tables: Any, plan: Any, scratch: Any, notes: Any, shard: int, index: int, number: int, valid: bool
) -> None:
    if not valid:
        _put_marker(plan, scratch, number, facts.MARKER_2, counts.NULLS)
        return
    start, stop = _text(tables, plan, notes, shard, _code(tables, plan, notes, shard, index, number), number)
    size = min(stop - start, fact(plan, number, facts.WIDTH))
    if stop - start > size:
        write_i8(scratch.noted, number, counts.CUT)
    _put(scratch, number, 0, fact(plan, number, facts.MARKER))
    _put(scratch, number, 1, plan.byte_base + size)
    flat = base(tables, shard, fact(plan, number, facts.VALUE))
    for i in range(size):
        _put(scratch, number, 2 + i, plan.byte_base + read_u1(flat, start + i))
    write_i8(scratch.sizes, number, 2 + size)


@jit_inline
def _code(tables: Any, plan: Any, notes: Any, shard: int, index: int, number: int) -> int:
    """Number of the text in the column: its code, or its own number where it has no dictionary."""
    slot = fact(plan, number, facts.CODES)
    return index if slot < 0 else whole(tables, notes, shard, slot, index)


@jit_inline
def _text(tables: Any, plan: Any, notes: Any, shard: int, code: int, number: int) -> tuple[int, int]:
    """Start and end of a text among the bytes of its column."""
    return _text_at(tables, notes, shard, fact(plan, number, facts.OFFSETS), fact(plan, number, facts.VALUE), code)


@jit_part
def _text_at(tables: Any, notes: Any, shard: int, offsets: int, flat: int, code: int) -> tuple[int, int]:
    keep_apart()
    start, stop = offset(tables, notes, shard, offsets, code), offset(tables, notes, shard, offsets, code + 1)
    if not 0 <= start <= stop <= items(tables, shard, flat):
        return 0, 0
    for index in range(start, stop, _BLOCK_ITEMS):
        touch(tables, notes, shard, flat, index)
    if stop > start:
        touch(tables, notes, shard, flat, stop - 1)
    return start, stop
