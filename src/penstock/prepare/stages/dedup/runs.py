"""Runs: texts -> keys, 128-bit hashes of them, sorted on disk in small blocks of a container. Next: matching.py.

Equal texts have equal keys; two others share one with a chance of 2**-128 a pair.
A run is some consecutive blocks whose keys ascend; a file may hold several. Who wants a range of keys reads the
blocks that reach into it and no others, so that a question costs what its answer weighs. Remembered keys outlast jobs:
these bytes change only with a new version in remembered.py.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.stores.store import STATE, Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import Container
from penstock.prepare.rows.kept import keep
from penstock.shards.columns import FileFacts

Array = np.ndarray[Any, Any]
HASH = "xxh3-128"
KEY = np.dtype([("high", "<u8"), ("low", "<u8")])
KEYS = f"{STATE}/keys"
ENTRY = np.dtype([*KEY.descr, ("number", "<u4")])  # of a row of this job: its number among those of its slice
_BLOCK = np.dtype([("start", "<i8"), ("count", "<i8"), ("first", "<u8"), ("last", "<u8"), ("checksum", "<u8")])
_ORDERED = np.dtype([*_BLOCK.descr, ("first_low", "<u8"), ("last_low", "<u8")])  # if ranges are divided by both words
_LOWS = "lows"  # array: second words of the first and the last entry of each block
ENTRIES = "entry"  # in an index: the type of its entries
_BLOCK_KEYS = 512  # 10 kB: what is read too much at either end of a range
_BLOCKS_AT_ONCE = 128
_KEPT_FILE_BYTES = 8 << 10  # its index, its last block, and the open file
END_OF_KEYS = 1 << 64
_WORDS = container.Words("a file of keys", again="what made it is done again")


def hash_texts(texts: pa.Array) -> Array:
    """The key of each text; a null has that of an empty one, which is no document either."""
    if not len(texts):
        return np.zeros(0, KEY)
    texts = texts.cast(pa.large_binary())
    offsets = np.frombuffer(texts.buffers()[1], "i8")[texts.offset : texts.offset + len(texts) + 1]
    data = memoryview(texts.buffers()[2] or b"")
    hashed = xxhash.xxh3_128_digest
    digests = b"".join([hashed(data[start:end]) for start, end in itertools.pairwise(offsets.tolist())])
    words = np.frombuffer(digests, ">u8").reshape(-1, 2)
    keys = np.empty(len(texts), KEY)
    keys["high"], keys["low"] = words[:, 0], words[:, 1]
    return keys


def sort_order(keys: Array) -> Array:
    """The stable order of keys: equal ones stay as they came."""
    order = np.argsort(keys["high"], kind="stable")
    high, low = keys["high"][order], keys["low"][order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():  # two keys share 64 bits: seldom, so it may cost
        return np.lexsort((keys["low"], keys["high"]))
    return order


def repeats(keys: Array) -> Array:
    """For sorted keys: whether each equals the one before it."""
    same = (keys["high"][1:] == keys["high"][:-1]) & (keys["low"][1:] == keys["low"][:-1])
    return np.concatenate([np.zeros(min(1, len(keys)), bool), same])


class RunsWriter:
    """Takes sorted runs, and arrays beside them in `file`; the file appears when the stack is left.

    If entries are `ordered` by both of their words, the table has the second words too.
    """

    def __init__(
        self,
        store: Store,
        name: str,
        stack: ExitStack,
        dtype: np.dtype[Any],
        lasting: bool,
        block: int = _BLOCK_KEYS,
        ordered: bool = False,
    ) -> None:
        self._dtype, self._block = dtype, block
        self.file = container.begin_container(store, name, stack, lasting)
        self._blocks: list[Array] = [np.zeros(0, _BLOCK)]
        self._lows: list[Array] | None = [np.zeros((0, 2), "<u8")] if ordered else None

    def write(self, entries: Array) -> None:
        """One run, or the next piece of one: keys ascend."""
        starts = np.arange(0, len(entries), self._block)
        edges = np.append(starts, len(entries))
        blocks = np.zeros(len(starts), _BLOCK)
        blocks["start"], blocks["checksum"] = self.file.write(container.bytes_of(entries), edges * self._dtype.itemsize)
        blocks["count"] = np.diff(edges)
        blocks["first"], blocks["last"] = entries["high"][starts], entries["high"][edges[1:] - 1]
        self._blocks.append(blocks)
        if self._lows is not None:
            self._lows.append(np.stack([entries["low"][starts], entries["low"][edges[1:] - 1]], axis=1))

    def finish(self, facts: Mapping[str, Any]) -> FileFacts:
        if self._lows is not None:
            self.file.put(_LOWS, np.concatenate(self._lows).reshape(-1))
        self.file.put("blocks", np.concatenate(self._blocks).view("u8"))
        return self.file.finish({**facts, "arrays": {}, ENTRIES: self._dtype.descr})  # the order of VERSION 2


@dataclass(frozen=True)
class RunsFile:
    """A finished file of runs."""

    file: Container
    dtype: np.dtype[Any]
    blocks: Array

    @property
    def keys(self) -> int:
        return int(self.blocks["count"].sum())

    @property
    def is_ordered(self) -> bool:
        """Whether the table has the second words of its blocks."""
        return "first_low" in (self.blocks.dtype.names or ())

    def between(self, low: int, high: int) -> Array:
        """Entries whose first word is at least `low` and below `high`, run after run."""
        blocks = self.blocks[(self.blocks["last"] >= np.uint64(low)) & (self.blocks["first"] <= np.uint64(high - 1))]
        entries = np.concatenate([np.zeros(0, self.dtype), *self.read(blocks)])
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
            yield np.concatenate(list(self.read(blocks[first : first + _BLOCKS_AT_ONCE])))

    def read(self, blocks: Array) -> Iterator[Array]:
        """Entries of each of these blocks."""
        places = np.empty(len(blocks), container.BLOCK)
        places["start"], places["length"] = blocks["start"], blocks["count"] * self.dtype.itemsize
        places["checksum"] = blocks["checksum"]
        return (np.frombuffer(data, self.dtype) for data in self.file.blocks(places))


def open_index(store: Store, facts: FileFacts) -> Container:
    """A file that a task has entered in the ledger, for its facts and arrays. The process reads its index once."""

    def opened() -> Container:
        container.refuse_other_size(store, facts, _WORDS)
        return container.open_container(container.Stored(store, facts.file, facts.digest), _WORDS, facts.digest)

    return keep(("index", store, facts), opened)


def open_runs(store: Store, facts: FileFacts) -> RunsFile:
    """Runs of a file. The process does not keep their blocks for other tasks."""
    file = open_index(store, facts)
    return RunsFile(file, entry_of(file.facts), _table_of(file))


def runs_at(store: Store, facts: FileFacts, dtype: np.dtype[Any], blocks: Array) -> RunsFile:
    """Some blocks of a file whose table was read elsewhere."""
    source = container.Stored(store, facts.file, facts.digest)
    return RunsFile(Container(source, _WORDS, {}, facts.digest), dtype, blocks)


def read_table(store: Store, facts: FileFacts) -> tuple[Any, Array]:
    """Type of the entries, as in an index, and the table of blocks. The process keeps neither."""
    container.refuse_other_size(store, facts, _WORDS)
    with container.Stored(store, facts.file).opened() as held:
        file = container.open_container(held, _WORDS, facts.digest)
        return file.facts[ENTRIES], _table_of(file)


def entry_of(facts: Mapping[str, Any]) -> np.dtype[Any]:
    return np.dtype([(name, kind) for name, kind in facts[ENTRIES]])


def _table_of(file: Container) -> Array:
    blocks = file.array("blocks").view(_BLOCK)
    if _LOWS not in file.facts["arrays"]:
        return blocks
    table = np.empty(len(blocks), _ORDERED)
    for name in _BLOCK.names or ():
        table[name] = blocks[name]
    table["first_low"], table["last_low"] = file.array(_LOWS).reshape(-1, 2).T
    return table


def keep_runs(store: Store, facts: FileFacts) -> RunsFile:
    """Runs of a file, for all tasks of this process: they hold `kept_bytes`."""
    return keep(("runs", store, facts), lambda: open_runs(store, facts))


def kept_bytes(files: int, entries: int) -> int:
    """Memory for so many entries in so many kept files."""
    return files * _KEPT_FILE_BYTES + entries // _BLOCK_KEYS * _BLOCK.itemsize


def read_index(store: Store, name: str) -> Container:
    """The file, of which nothing but the index was read."""
    return container.open_container(container.Stored(store, name), _WORDS)


def entries_of(store: Store, files: Iterable[FileFacts]) -> Iterator[Array]:
    """All entries of several files, one file after the other."""
    for facts in files:
        yield from open_runs(store, facts).entries()
