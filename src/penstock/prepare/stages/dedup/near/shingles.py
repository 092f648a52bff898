"""Shingles: documents -> hashes of all runs of so many units. Next: signatures.py.

A document with fewer units than a shingle has one, of all its units: short documents are compared as a whole. Two runs
share a hash with a chance of 2**-64.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.hashing import Array, mix
from penstock.prepare.stages.dedup.near.units import (
    PORTION_BYTES,
    Units,
    characters_in_portions,
    characters_of,
    count_unspaced,
    is_unspaced,
    unspaced_in_portions,
    words_in_portions,
    words_of,
)
from penstock.shards.arrays import text_parts

MOST_UNITS = 100
_MOST_DOCUMENTS = 1 << 12  # that are hashed together
_RANGE_BYTES = 8 << 20  # of a giant's text per range of hashes: as many hashes at most, which are 64 MiB
CHUNK = 1 << 16  # hashes of a set that are read at a time
_FACTORS = mix(np.arange(MOST_UNITS + 2, dtype="u8")) | np.uint64(1)
_CHARACTERS, _FEW = np.uint64(1 << 32), np.uint64(1 << 33)  # so that these shingles are others than those of words


@dataclass(frozen=True)
class Hashed:
    """Hashes of the shingles of some documents of a batch, with repeats; `bounds` say where those of each begin."""

    documents: Array
    hashes: Array
    bounds: Array


@dataclass(frozen=True)
class Giant:
    """A document whose shingles come in portions, as often as they are asked for."""

    document: int
    bytes: int
    portions: Callable[[], Iterator[Array]]

    def sorted_set(self) -> Iterator[Array]:
        """Its distinct hashes, ascending, at most CHUNK at a time."""
        ranges = 1 + self.bytes // _RANGE_BYTES
        edges = [(1 << 64) * number // ranges for number in range(ranges + 1)]
        for low, high in itertools.pairwise(edges):
            held = bytearray()  # grows and is sorted in place: more copies would take several times as much
            for each in self.portions():
                held += _between(each, low, high).tobytes()
            found = np.frombuffer(held, "u8")
            found.sort()
            for start in range(0, len(found), CHUNK):
                before = found[start - 1] if start else ~found[0]
                some = found[start : start + CHUNK]
                if len(new := some[np.append(some[0] != before, some[1:] != some[:-1])]):
                    yield new


@dataclass(frozen=True)
class Way:
    """How documents are taken apart: their units, those of a giant in portions, and how many are a shingle."""

    units_of: Callable[[Array, Array], Units]
    in_portions: Callable[[Array], Iterator[Array]]
    count: int
    tag: np.uint64

    def portions(self, data: Array) -> Iterator[Array]:
        """Hashes of the shingles of one document, some at a time."""
        carried, total = np.zeros(0, "u8"), 0
        for hashes in self.in_portions(data):
            total, hashes = total + len(hashes), np.concatenate([carried, hashes])
            if len(hashes) >= self.count:
                yield _windows(Units(hashes, np.array([len(hashes)])), self.count, self.tag)[0]
            carried = hashes[max(0, len(hashes) - self.count + 1) :]
        if total < self.count:
            yield _windows(Units(carried, np.array([total])), self.count, self.tag)[0]


@dataclass(frozen=True)
class Shingling:
    """Units per shingle: words, and characters of scripts without spaces. 0: all documents by the other."""

    words: int
    characters: int

    def of(self, texts: pa.Array) -> Iterator[Hashed | Giant]:
        """Shingles of each text; a null is an empty text. Every document comes once, in any order."""
        data, offsets = text_parts(texts.fill_null("") if texts.null_count else texts)
        offsets = offsets.astype("i8") - int(offsets[0])
        for first, last in _portions(offsets):
            start, end = int(offsets[first]), int(offsets[last])
            if end - start > PORTION_BYTES:
                yield self._giant(first, data[start:end])
            else:
                yield from self._hashed(first, data[start:end], offsets[first : last + 1] - start)

    def _hashed(self, first: int, data: Array, offsets: Array) -> Iterator[Hashed]:
        by_characters = self._by_characters(*count_unspaced(data, offsets))
        for are, way in enumerate(self._ways):
            documents = np.flatnonzero(by_characters == bool(are))
            if len(documents):
                units = way.units_of(*_taken(data, offsets, documents))
                yield Hashed(first + documents, *_windows(units, way.count, way.tag))

    def _giant(self, document: int, data: Array) -> Giant:
        way = self._ways[int(self._by_characters(*unspaced_in_portions(data)))]
        return Giant(document, len(data), partial(way.portions, data))

    @property
    def _ways(self) -> tuple[Way, Way]:
        by_words = Way(words_of, words_in_portions, self.words, np.uint64(0))
        return by_words, Way(characters_of, characters_in_portions, self.characters, _CHARACTERS)

    def _by_characters(self, unspaced: Array | int, characters: Array | int) -> Array:
        """Whether each document is compared by its characters."""
        if self.words and self.characters:
            return is_unspaced(unspaced, characters)
        return np.full(np.shape(unspaced), not self.words)


def _portions(offsets: Array) -> Iterator[tuple[int, int]]:
    """Ranges of documents of about PORTION_BYTES; one that is larger is alone."""
    first, count = 0, len(offsets) - 1
    while first < count:
        last = int(np.searchsorted(offsets, offsets[first] + PORTION_BYTES, side="right")) - 1
        last = min(max(last, first + 1), first + _MOST_DOCUMENTS, count)
        yield first, last
        first = last


def _taken(data: Array, offsets: Array, documents: Array) -> tuple[Array, Array]:
    """The bytes of some documents, and their offsets."""
    if len(documents) == len(offsets) - 1:
        return data, offsets
    pieces = [data[offsets[each] : offsets[each + 1]] for each in documents]
    return np.concatenate(pieces), np.append(0, np.cumsum([len(each) for each in pieces]))


def _windows(units: Units, count: int, tag: np.uint64) -> tuple[Array, Array]:
    """Hashes of the shingles of each document, and their bounds."""
    ends = np.cumsum(units.counts)
    amounts = np.maximum(units.counts - count + 1, 1)
    bounds = np.append(0, np.cumsum(amounts))
    few = np.flatnonzero(units.counts < count)
    hashes = np.empty(bounds[-1], "u8")
    is_whole = np.ones(len(hashes), bool)
    is_whole[bounds[few]] = False
    starts = np.ones(len(units.hashes), bool)
    for back in range(1, count):
        starts[ends[ends >= back] - back] = False
    hashes[is_whole] = _combined(units.hashes, np.flatnonzero(starts), count, tag)
    for size in np.unique(units.counts[few]).tolist():
        own = few[units.counts[few] == size]
        hashes[bounds[own]] = _combined(units.hashes, ends[own] - size, size, tag + _FEW + np.uint64(size))
    return hashes, bounds[:-1]


def _combined(units: Array, starts: Array, count: int, tag: np.uint64) -> Array:
    """A hash of the `count` units from each start on."""
    with np.errstate(over="ignore"):
        total = np.full(len(starts), tag * _FACTORS[-1])
        for place in range(count):
            total += units[starts + place] * _FACTORS[place]
        return mix(total)


def _between(hashes: Array, low: int, high: int) -> Array:
    return distinct(hashes[(hashes >= np.uint64(low)) & (hashes <= np.uint64(high - 1))])


def distinct(hashes: Array) -> Array:
    """Each hash once, ascending. np.unique takes twice as long for sets of this size."""
    ordered = np.sort(hashes)
    found: Array = ordered[np.append(np.ones(min(1, len(ordered)), bool), ordered[1:] != ordered[:-1])]
    return found
