"""Ranges: sorted runs in many files -> their entries in order, as many at a time as there is memory for.

Entries are sorted by two words, `high` and `low`. A range is two numbers of 128 bits: the words one after the other.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.base.stores.store import STATE, Store
from penstock.prepare.rows.container import Array
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter, repeats

FOLDER = f"{STATE}/near"
NUMBER_BITS = np.uint64(32)  # of a document: below, its number in its slice; above, the slice
NUMBER_MASK = np.uint64((1 << 32) - 1)
BLOCK = 512  # entries
WORD = 1 << 64
END = WORD * WORD
_TABLE = np.dtype([("file", "<i8"), ("block", "<i8"), ("count", "<i8")] + [(name, "<u8") for name in "abcd"])


def ordered_writer(store: Store, name: str, stack: ExitStack, dtype: np.dtype[Any]) -> RunsWriter:
    """A writer of runs whose entries have two words."""
    return RunsWriter(store, name, stack, dtype, lasting=False, block=BLOCK, ordered=True)


@dataclass(frozen=True)
class Piece:
    """A range, and the blocks that reach into it."""

    files: Sequence[RunsFile]
    blocks: Array
    low: int
    high: int
    found: tuple[Array, Array] | None = None  # what `read` gives, if it was read already

    @property
    def most_entries(self) -> int:
        """Upper bound: blocks that reach over an end of the range count as a whole."""
        return int(self.blocks["count"].sum())

    def estimate(self) -> float:
        """Number of entries, if those of each block are spread evenly."""
        width = float(self.high - self.low)
        first = _distance(self.blocks["a"], self.blocks["b"], self.low)
        last = _distance(self.blocks["c"], self.blocks["d"], self.low)
        inside = np.clip(last, 0.0, width) - np.clip(first, 0.0, width)
        shares = np.where(last > first, inside / np.maximum(last - first, 1.0), 1.0)
        return float((self.blocks["count"] * shares).sum())

    @property
    def is_one_word(self) -> bool:
        """Whether all entries have the same first word, and the second cannot divide them."""
        return self.high - self.low <= WORD

    def read(self) -> tuple[Array, Array]:
        """The entries, as they lie in the files, and the number of each one's file."""
        found = self.found or self.read_at_most(self.most_entries)
        assert found
        return found

    def read_at_most(self, most: int) -> tuple[Array, Array] | None:
        """None where there are more entries."""
        found, numbers, count = [], [], 0
        for file, entries in self._entries():
            entries = entries[_reach(entries["high"], _second(entries), self.low, self.high)]
            found.append(entries)
            numbers.append(np.full(len(entries), file))
            count += len(entries)
            if count > most:
                return None
        return np.concatenate(found), np.concatenate(numbers)

    def _entries(self) -> Iterator[tuple[int, Array]]:
        """Entries of each block, and the number of its file."""
        for blocks in np.split(self.blocks, np.flatnonzero(np.diff(self.blocks["file"])) + 1):
            file = int(blocks["file"][0])
            for entries in self.files[file].read(self.files[file].blocks[blocks["block"]]):
                yield file, entries

    def parts(self, most: int) -> Iterator["Piece"]:
        """The same range of some blocks at a time, with about `most` entries: for a piece that cannot be divided."""
        starts = np.flatnonzero(np.diff(np.cumsum(self.blocks["count"]) // most, prepend=-1))
        for blocks in np.split(self.blocks, starts[1:]):
            yield Piece(self.files, blocks, self.low, self.high)

    def within(self, low: int, high: int) -> "Piece":
        return Piece(self.files, self.blocks[_reaching(self.blocks, low, high)], low, high)

    def narrowed(self, step: int) -> "Piece":
        """Piece with the same entries, in a range without empty ends: so it takes few steps to halve it."""
        if not len(self.blocks):
            return self
        first = min(zip(self.blocks["a"].tolist(), self.blocks["b"].tolist(), strict=True))
        last = max(zip(self.blocks["c"].tolist(), self.blocks["d"].tolist(), strict=True))
        low, high = first[0] * WORD + first[1], last[0] * WORD + last[1] + 1
        return replace(self, low=max(self.low, low // step * step), high=min(self.high, -(-high // step) * step))


def pieces_of(files: Sequence[RunsFile], most: int, low: int = 0, high: int = END) -> Iterator[Piece]:
    """The range in pieces of about `most` entries, in order. A piece that cannot be divided may be larger.

    Where there are many runs, most blocks reach over the ends of a piece: entries count, not blocks.
    """
    parts, blocks = _within(files, low, high)
    step = 1 if parts and parts[0].is_ordered else WORD
    waiting = [Piece(parts, blocks, low, high).narrowed(step)]
    while waiting:
        piece = waiting.pop()
        if not len(piece.blocks) or piece.low >= piece.high:
            continue
        if piece.most_entries <= most or piece.high - piece.low <= step:
            yield piece
        elif piece.estimate() <= most and (found := piece.read_at_most(2 * most)):
            yield replace(piece, found=found)
        else:
            middle = (piece.low + piece.high) // 2 // step * step
            halves = piece.within(middle, piece.high), piece.within(piece.low, middle)
            waiting += [each.narrowed(step) for each in halves]


def distinct_entries(entries: Array) -> Array:
    """Sorted entries by their two words, each once."""
    entries = entries[np.lexsort((entries["low"], entries["high"]))]
    return entries[~repeats(entries)]


def _within(files: Sequence[RunsFile], low: int, high: int) -> tuple[list[RunsFile], Array]:
    """The files, each with the blocks that reach into a range, and the words of their first and last entries."""
    parts, tables = [], [np.zeros(0, _TABLE)]
    for number, file in enumerate(files):
        table = np.zeros(len(file.blocks), _TABLE)
        table["file"], table["count"] = number, file.blocks["count"]
        table["a"], table["c"], table["d"] = file.blocks["first"], file.blocks["last"], WORD - 1
        if file.is_ordered:
            table["b"], table["d"] = file.blocks["first_low"], file.blocks["last_low"]
        reaching = _reaching(table, low, high)
        parts.append(file if reaching.all() else replace(file, blocks=file.blocks[reaching]))
        tables.append(table[reaching])
        tables[-1]["block"] = np.arange(len(tables[-1]))
    return parts, np.concatenate(tables)


def _reaching(blocks: Array, low: int, high: int) -> Array:
    found: Array = _after(blocks["c"], blocks["d"], low) & ~_after(blocks["a"], blocks["b"], high)
    return found


def _second(entries: Array) -> Array:
    return entries["low"] if "low" in (entries.dtype.names or ()) else np.zeros(len(entries), "u8")


def _reach(high: Array, low: Array, first: int, last: int) -> Array:
    return _after(high, low, first) & ~_after(high, low, last)


def _distance(high: Array, low: Array, number: int) -> Array:
    """By how much the words are above this number."""
    first, second = np.uint64(number // WORD), np.uint64(number % WORD)
    return _difference(high, first) * float(WORD) + _difference(low, second)


def _difference(words: Array, word: np.uint64) -> Array:
    above: Array = words >= word
    with np.errstate(over="ignore"):
        return np.where(above, (words - word).astype("f8"), -(word - words).astype("f8"))


def _after(high: Array, low: Array, number: int) -> Array:
    """Whether the words are at least this number."""
    if number >= END:
        return np.zeros(len(high), bool)
    first, second = np.uint64(number // WORD), np.uint64(number % WORD)
    found: Array = (high > first) | ((high == first) & (low >= second))
    return found
