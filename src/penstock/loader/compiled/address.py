"""Address: IPv4 and IPv6 text -> family and bytes, compiled. ../tokens/address.py is the plain version."""

from typing import Any

from penstock.loader.compiled.jit import jit, jit_part, keep_apart
from penstock.loader.compiled.pointers import read_i8, read_u1, shifted, write_u1

ENTRY = 17  # bytes of a parsed address: its family (0 unreadable, 4, 6), then the address, zeros behind IPv4's four
_DOT, _COLON, _PERCENT, _ZERO = ord("."), ord(":"), ord("%"), ord("0")


@jit
def parse_texts(flat: Any, offsets: Any, count: int, entries: Any) -> None:
    """`count` texts, by the addresses of their bytes and offsets -> entries of 17 bytes."""
    for i in range(count):
        parse_address(flat, read_i8(offsets, i), read_i8(offsets, i + 1), shifted(entries, ENTRY * i))


@jit_part
def parse_address(flat: Any, start: int, stop: int, entry: Any) -> None:
    """Parse a text into the entry at an address. If the text is not an address, the family is 0."""
    keep_apart()
    for i in range(ENTRY):
        write_u1(entry, i, 0)
    if _parse_ipv4(flat, start, stop, entry, 1):
        write_u1(entry, 0, 4)
    elif _parse_ipv6(flat, start, stop, entry):
        write_u1(entry, 0, 6)


@jit_part
def _parse_ipv4(flat: Any, start: int, stop: int, entry: Any, place: int) -> bool:
    number, digits, parts = 0, 0, 0
    for i in range(start, stop + 1):
        byte = read_u1(flat, i) if i < stop else _DOT
        if byte == _DOT:
            if digits == 0 or parts == 4:
                return False
            write_u1(entry, place + parts, number)
            number, digits, parts = 0, 0, parts + 1
        elif 0 <= byte - _ZERO <= 9:
            if digits and number == 0:  # a leading zero: some read it as octal
                return False
            number, digits = number * 10 + byte - _ZERO, digits + 1
            if number > 255:
                return False
        else:
            return False
    return parts == 4


@jit_part
def _hex(byte: int) -> int:
    if 48 <= byte <= 57:
        return byte - 48
    if 97 <= byte <= 102:
        return byte - 87
    if 65 <= byte <= 70:
        return byte - 55
    return -1


@jit_part
def _without_zone(flat: Any, start: int, stop: int) -> int:
    """Place at which the address ends and its zone begins; -1 for a zone that is empty or has another % in it."""
    for i in range(start, stop):
        if read_u1(flat, i) == _PERCENT:
            for j in range(i + 1, stop):
                if read_u1(flat, j) == _PERCENT:
                    return -1
            return i if i + 1 < stop else -1
    return stop


@jit_part
def _parse_ipv6(flat: Any, start: int, stop: int, entry: Any) -> bool:
    end = _without_zone(flat, start, stop)
    if end - start < 2:
        return False
    groups, gap, place = 0, -1, start
    if read_u1(flat, place) == _COLON:
        if read_u1(flat, place + 1) != _COLON:
            return False
        gap, place = 0, start + 2
    while place < end:
        if groups == 8:
            return False
        first, value = place, 0
        while place < end and place - first < 4 and _hex(read_u1(flat, place)) >= 0:
            value, place = value * 16 + _hex(read_u1(flat, place)), place + 1
        if place < end and read_u1(flat, place) == _DOT:
            if groups > 6 or not _parse_ipv4(flat, first, end, entry, 1 + 2 * groups):
                return False
            groups, place = groups + 2, end
            break
        if place == first:
            return False
        write_u1(entry, 1 + 2 * groups, value >> 8)
        write_u1(entry, 2 + 2 * groups, value & 255)
        groups += 1
        if place == end:
            break
        if read_u1(flat, place) != _COLON or place + 1 == end:
            return False
        place += 1
        if read_u1(flat, place) == _COLON:
            if gap >= 0:
                return False
            gap, place = groups, place + 1
    if gap < 0:
        return groups == 8
    return groups < 8 and _open_gap(entry, gap, groups)


@jit_part
def _open_gap(entry: Any, gap: int, groups: int) -> bool:
    """Move the groups behind `::` to the end, and fill with zeros."""
    for i in range(2 * (groups - gap)):
        write_u1(entry, 16 - i, read_u1(entry, 2 * groups - i))
    for i in range(2 * gap, 16 - 2 * (groups - gap)):
        write_u1(entry, 1 + i, 0)
    return True
