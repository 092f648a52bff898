"""Units: the text of documents -> hashes of their words, or of their characters. Next: shingles.py.

A word is a run of characters between Unicode white space. Where characters count, a run of white space inside of a
document is one space, and outer white space is left out. `data` is UTF-8, and `offsets` say where each document begins.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from penstock.prepare.rows.hashing import Array, hash_ranges

_WIDE = frozenset(range(0x2000, 0x200B)) | {0x85, 0xA0, 0x1680, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000}
_TWO_BYTES = np.isin(np.arange(1 << 11), [each for each in _WIDE if each < 1 << 11])
_THREE_BYTES = np.isin(np.arange(1 << 16), [each for each in _WIDE if each >= 1 << 11])
# Scripts that put no spaces between words: Thai, Lao, Tibetan, Myanmar, Khmer, kana, and the ideographs of the BMP.
_UNSPACED = (
    (0x0E00, 0x1000), (0x1000, 0x10A0), (0x1780, 0x1800), (0x3040, 0x3100), (0x31F0, 0x3200),
    (0x3400, 0x4DC0), (0x4E00, 0xA000), (0xF900, 0xFB00),
)  # fmt: skip
_IS_UNSPACED = np.zeros(1 << 16, bool)
for _first, _last in _UNSPACED:
    _IS_UNSPACED[_first:_last] = True
PORTION_BYTES = 1 << 20
_IDEOGRAPHS_BEYOND = (0xF0, 0xA0, 0xB3)  # first byte, and the range of the second


@dataclass(frozen=True)
class Units:
    """Hashes of the units of all documents, one document after the other, and the number that each has."""

    hashes: Array
    counts: Array


def spaces_in(data: Array) -> Array:
    """Whether each byte belongs to white space."""
    found: Array = (data - np.uint8(0x09) < 5) | (data - np.uint8(0x1C) < 5)  # ASCII's: \t to \r, and \x1c to a space
    if data.max(initial=0) < 0xC2:
        return found
    for length, leads, table in ((2, (0xC2, 0xC2), _TWO_BYTES), (3, (0xE1, 0xE3), _THREE_BYTES)):
        at, points = _code_points(data, length, *leads)
        for start in (at[table[points]] + step for step in range(length)):
            found[start] = True
    return found


def count_unspaced(data: Array, offsets: Array) -> tuple[Array, Array]:
    """Number of characters of scripts without spaces in each document, and of all that are no white space.

    Where there are none of the former, bytes stand for the latter.
    """
    if data.max(initial=0) < 0xE0:
        return np.zeros(len(offsets) - 1, "i8"), np.diff(offsets)
    return _within(_unspaced(data), offsets), _within(np.flatnonzero(_begins(data)), offsets)


def is_unspaced(unspaced: Array | int, characters: Array | int) -> Array:
    """Whether at least half of the characters belong to scripts without spaces."""
    found: Array = np.asarray((unspaced > 0) & (2 * unspaced >= characters))
    return found


def words_of(data: Array, offsets: Array) -> Units:
    inside = ~spaces_in(data)
    first = np.zeros(len(data), bool)
    first[1:] = ~inside[:-1]
    last = np.zeros(len(data), bool)
    last[:-1] = ~inside[1:]
    edges = offsets[offsets < len(data)]
    first[edges] = True
    last[offsets[offsets > 0] - 1] = True
    starts = np.flatnonzero(inside & first)
    ends = np.flatnonzero(inside & last) + 1
    return Units(hash_ranges(data, starts, ends - starts), _within(starts, offsets))


def characters_of(data: Array, offsets: Array) -> Units:
    spaces = spaces_in(data)
    starts = np.flatnonzero(_is_first_byte(data))
    is_space = spaces[starts]
    documents = np.searchsorted(offsets, starts, side="right") - 1
    before = np.append(True, is_space[:-1] | (documents[1:] != documents[:-1]))
    kept = ~(is_space & before)  # the first space of a run, unless the document begins with it
    starts, is_space, documents = starts[kept], is_space[kept], documents[kept]
    is_last = np.append(documents[1:] != documents[:-1], True)[: len(documents)]
    kept = ~(is_space & is_last)
    starts, is_space, documents = starts[kept], is_space[kept], documents[kept]
    lengths = np.select([is_space, data[starts] >= 0xF0, data[starts] >= 0xE0, data[starts] >= 0xC0], [0, 4, 3, 2], 1)
    counts = np.bincount(documents, minlength=len(offsets) - 1)
    return Units(hash_ranges(data, starts, lengths), counts)


def _within(places: Array, offsets: Array) -> Array:
    """Number of places in each document."""
    return np.diff(np.searchsorted(places, offsets))


def _is_first_byte(data: Array) -> Array:
    found: Array = (data & 0xC0) != 0x80
    return found


def _code_points(data: Array, length: int, low: int, high: int) -> tuple[Array, Array]:
    """Characters of so many bytes whose first is in a range: where each begins, and its code point."""
    at = np.flatnonzero((data >= low) & (data <= high))
    at = at[at + length <= len(data)]
    points = data[at].astype("i4") & (0x1F if length == 2 else 0x0F)
    for step in range(1, length):
        points = points << 6 | (data[at + step] & 0x3F)
    return at, points


def _unspaced(data: Array) -> Array:
    """Offsets of the characters that belong to scripts without spaces."""
    at, points = _code_points(data, 3, 0xE0, 0xEF)
    lead, low, high = _IDEOGRAPHS_BEYOND
    beyond = np.flatnonzero(data[:-3] == lead)
    beyond = beyond[(data[beyond + 1] >= low) & (data[beyond + 1] <= high)]
    return np.sort(np.concatenate([at[_IS_UNSPACED[points]], beyond]))


# A document that is larger than a portion is taken apart portion by portion.


def words_in_portions(data: Array) -> Iterator[Array]:
    """Hashes of the words of one document, as words_of gives them."""
    start = 0
    while start < len(data):
        portion = data[start : start + PORTION_BYTES]
        spaces = np.flatnonzero(spaces_in(portion))
        if start + len(portion) == len(data) or len(spaces):
            end = start + (len(portion) if start + len(portion) == len(data) else int(spaces[-1]) + 1)
            yield words_of(data[start:end], np.array([0, end - start])).hashes
        else:  # the beginning of one word
            end = _next(data, start + len(portion) - 2, spaces_in)  # two bytes of a space may be there
            yield hash_ranges(data[start:end], np.array([0]), np.array([end - start]))
        start = end


def characters_in_portions(data: Array) -> Iterator[Array]:
    """Hashes of the characters of one document, as characters_of gives them.

    Each portion ends before a character that is no space. It is read too, so that a space before it counts.
    """
    start = 0
    while start < len(data):
        portion = data[start : start + PORTION_BYTES]
        ends = np.flatnonzero(_begins(data[start : start + PORTION_BYTES + 2])[1:PORTION_BYTES]) + 1
        if start + len(portion) == len(data):
            yield characters_of(portion, np.array([0, len(portion)])).hashes
            return
        end = start + int(ends[-1]) if len(ends) else _next(data, start + len(portion), _begins)
        behind = data[start : end + 4]
        further = np.flatnonzero(_is_first_byte(behind[end - start + 1 :]))
        behind = behind[: end - start + 1 + int(further[0])] if len(further) else behind
        hashes = characters_of(behind, np.array([0, len(behind)])).hashes
        yield hashes[:-1] if end < len(data) else hashes
        start = end


def unspaced_in_portions(data: Array) -> tuple[int, int]:
    """count_unspaced of one document."""
    start, counted = 0, np.zeros(2, "i8")
    while start < len(data):
        end = min(start + PORTION_BYTES, len(data))
        end = _next(data, end, _is_first_byte) if end < len(data) else end
        part = data[start:end]
        counted += len(_unspaced(part)), len(np.flatnonzero(_begins(part)))
        start = end
    unspaced, characters = counted.tolist()
    return unspaced, characters


def _begins(data: Array) -> Array:
    """Whether a character that is no white space begins at each byte."""
    found: Array = _is_first_byte(data) & ~spaces_in(data)
    return found


def _next(data: Array, place: int, wanted: Callable[[Array], Array]) -> int:
    """The first place from `place` on whose byte is wanted; the end where there is none."""
    while place < len(data):
        low = max(place - 2, 0)  # a space may have begun two bytes before
        seen = wanted(data[low : place + PORTION_BYTES + 2])  # two more, so that no space is cut
        found = np.flatnonzero(seen[place - low : place - low + PORTION_BYTES])
        if len(found):
            return place + int(found[0])
        place += PORTION_BYTES
    return len(data)
