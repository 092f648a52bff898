"""Run ranges: many files of runs -> the blocks of each range of first words, from one catalogue. Next: ranged_work.py.

A block that reaches into several ranges is listed once in each of them, and read once for each.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows.catalogue import FILE, CatalogueWriter, open_catalogue, places_of_part
from penstock.prepare.rows.container import Array
from penstock.prepare.stages.dedup.runs import END_OF_KEYS, ENTRIES, RunsFile, entry_of, open_runs, read_table, runs_at
from penstock.shards.columns import FileFacts

_AT_ONCE = 1 << 14  # entries of the catalogue: 1 MB
_KEYS = "keys"


@dataclass(frozen=True)
class RunRanges:
    """Files of runs, in their order, and the first words at which ranges begin: 0, then larger ones.

    Without a catalogue there is one range, and its only task reads the tables.
    """

    name: str  # of the catalogue
    files: tuple[FileFacts, ...]
    edges: tuple[int, ...] = (0,)
    written: FileFacts | None = None  # the catalogue, when it is there

    def ready(self, store: Store) -> Self:
        """Write the catalogue, so that the table of each file is read once, not by every task."""
        entry: Any = []
        keys = 0
        with ExitStack() as stack:
            catalogue = CatalogueWriter(store, self.name, len(self.edges), stack)
            for number, file in enumerate(self.files):
                entry, blocks = read_table(store, file)
                keys += int(blocks["count"].sum())
                for some, ranges in _in_ranges(blocks, np.array(self.edges, "u8")):
                    catalogue.add(number, some, ranges)
            written = catalogue.finish({ENTRIES: entry, _KEYS: keys})
        return replace(self, written=written)

    def of_range(self, store: Store, number: int) -> list[RunsFile]:
        """All files, each with the blocks that reach into a range."""
        if self.written is None:
            return [open_runs(store, each) for each in self.files]
        catalogue = open_catalogue(store, self.written)
        places, dtype = places_of_part(catalogue, number), entry_of(catalogue.facts)
        bounds = np.searchsorted(places[FILE], np.arange(len(self.files) + 1)) if len(places) else None
        return [
            runs_at(store, file, dtype, places[:0] if bounds is None else places[bounds[each] : bounds[each + 1]])
            for each, file in enumerate(self.files)
        ]

    def ends(self, number: int) -> tuple[int, int]:
        """First word of a range, and the first word behind it."""
        low, high = (*self.edges, END_OF_KEYS)[number : number + 2]
        return low, high

    def keys(self, store: Store, found: Sequence[RunsFile]) -> int:
        """Number of keys in all ranges. `found` are the files of one range."""
        if self.written is None:
            return sum(each.keys for each in found)
        return int(open_catalogue(store, self.written).facts[_KEYS])


def equal_edges(ranges: int) -> tuple[int, ...]:
    """Edges of equal ranges of all first words."""
    return tuple(END_OF_KEYS * each // ranges for each in range(ranges))


def _in_ranges(blocks: Array, edges: Array) -> Iterator[tuple[Array, Array]]:
    """Blocks, repeated for each range that they reach into, and the range of each. Yields some at a time."""
    first, last = (np.searchsorted(edges, blocks[word], side="right") - 1 for word in ("first", "last"))
    counts = last - first + 1
    for some in np.split(np.arange(len(blocks)), np.flatnonzero(np.diff(np.cumsum(counts) // _AT_ONCE)) + 1):
        times = counts[some]
        places = np.repeat(some, times)
        nth = np.arange(len(places)) - np.repeat(np.cumsum(times) - times, times)
        yield blocks[places], first[places] + nth
