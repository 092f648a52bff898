"""Runs: keys on disk, sorted, in small blocks of a container. Next: matching.py.

A run is some consecutive blocks whose keys ascend; a file may hold several. Who wants a range of keys reads the
blocks that reach into it and no others, so that a question costs what its answer weighs. Remembered keys outlast jobs:
these bytes change only with a new version in remembered.py.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from penstock.base.stores.store import STATE, Store
from penstock.prepare.rows.container import (
    Container,
    Stored,
    Words,
    begin_container,
    bytes_of,
    open_container,
    refuse_other_size,
)
from penstock.prepare.stages.dedup.keys import KEY, Array
from penstock.shards.columns import FileFacts

KEYS = f"{STATE}/keys"
ENTRY = np.dtype([*KEY.descr, ("number", "<u4")])  # of a row of this job: its number among those of its slice
_BLOCK = np.dtype([("start", "<i8"), ("count", "<i8"), ("first", "<u8"), ("last", "<u8"), ("checksum", "<u8")])
_BLOCK_KEYS = 512  # 10 kB: what is read too much at either end of a range
_BLOCKS_AT_ONCE = 128
END_OF_KEYS = 1 << 64
_WORDS = Words("a file of keys", again="what made it is done again")


class RunsWriter:
    """Takes sorted runs, and arrays beside them in `file`; the file appears when the stack is left."""

    def __init__(self, store: Store, name: str, stack: ExitStack, dtype: np.dtype[Any], lasting: bool) -> None:
        self._dtype = dtype
        self.file = begin_container(store, name, stack, lasting)
        self._blocks: list[Array] = [np.zeros(0, _BLOCK)]

    def write(self, entries: Array) -> None:
        """One run, or the next piece of one: keys ascend."""
        starts = np.arange(0, len(entries), _BLOCK_KEYS)
        edges = np.append(starts, len(entries))
        blocks = np.zeros(len(starts), _BLOCK)
        blocks["start"], blocks["checksum"] = self.file.write(bytes_of(entries), edges * self._dtype.itemsize)
        blocks["count"] = np.diff(edges)
        blocks["first"], blocks["last"] = entries["high"][starts], entries["high"][edges[1:] - 1]
        self._blocks.append(blocks)

    def finish(self, facts: Mapping[str, Any]) -> FileFacts:
        self.file.put("blocks", np.concatenate(self._blocks).view("u8"))
        return self.file.finish({**facts, "arrays": {}, "entry": self._dtype.descr})  # the order of VERSION 2


@dataclass(frozen=True)
class RunsFile:
    """A finished file of runs."""

    file: Container
    dtype: np.dtype[Any]
    blocks: Array

    @property
    def keys(self) -> int:
        return int(self.blocks["count"].sum())

    def between(self, low: int, high: int) -> Array:
        """Entries whose first word is at least `low` and below `high`, run after run."""
        blocks = self.blocks[(self.blocks["last"] >= np.uint64(low)) & (self.blocks["first"] <= np.uint64(high - 1))]
        pieces = [self._read(block) for block in blocks]
        entries = np.concatenate(pieces) if pieces else np.zeros(0, self.dtype)
        return entries[(entries["high"] >= np.uint64(low)) & (entries["high"] <= np.uint64(high - 1))]

    def near(self, words: Array) -> Iterator[Array]:
        """Blocks of a file of one run that may hold keys with these first words, which ascend; some at a time."""
        if not len(words):
            return
        start = np.searchsorted(self.blocks["last"], words[0], side="left")
        stop = np.searchsorted(self.blocks["first"], words[-1], side="right")
        blocks = self.blocks[start:stop]
        first = np.searchsorted(words, blocks["first"], side="left")
        last = np.searchsorted(words, blocks["last"], side="right")
        yield from self._some_at_a_time(blocks[last > first])

    def entries(self) -> Iterator[Array]:
        """All of them, some at a time."""
        yield from self._some_at_a_time(self.blocks)

    def _some_at_a_time(self, blocks: Array) -> Iterator[Array]:
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            yield np.concatenate([self._read(block) for block in blocks[first : first + _BLOCKS_AT_ONCE]])

    def _read(self, block: Any) -> Array:
        start, count, _, _, checksum = block.tolist()
        return np.frombuffer(self.file.block(start, count * self.dtype.itemsize, checksum), self.dtype)


@lru_cache(maxsize=4096)
def open_runs(store: Store, name: str, written: str) -> RunsFile:
    """A file whose index has the digest `written`."""
    file = open_container(Stored(store, name), _WORDS, written)
    dtype = np.dtype([(name, kind) for name, kind in file.facts["entry"]])
    return RunsFile(file, dtype, file.array("blocks").view(_BLOCK))


def open_written(store: Store, facts: FileFacts) -> RunsFile:
    """A file that a task has entered in the ledger."""
    refuse_other_size(store, facts, _WORDS)
    return open_runs(store, facts.file, facts.digest)


def read_index(store: Store, name: str) -> Container:
    """The file, of which nothing but the index was read."""
    return open_container(Stored(store, name), _WORDS)


def entries_of(store: Store, files: Iterable[FileFacts]) -> Iterator[Array]:
    """All entries of several files, one file after the other."""
    for facts in files:
        yield from open_written(store, facts).entries()
