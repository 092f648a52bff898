"""Runs: keys on disk, sorted, in small blocks that are checked when they are read. Next: matching.py.

A file is blocks of entries, then arrays of plain numbers, then an index (JSON) of both, then the index's checksum and
length. A run is some consecutive blocks whose keys ascend; a file may hold several. Who wants a range of keys reads the
blocks that reach into it and no others, so that a question costs what its answer weighs.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import xxhash

from penstock.base.errors import IntegrityError
from penstock.base.fingerprint import digest
from penstock.base.stores.store import Store
from penstock.prepare.stages.dedup.keys import KEY, Array
from penstock.shards.columns import FileFacts

ENTRY = np.dtype([*KEY.descr, ("number", "<u4")])  # of a row of this job: its number among those of its slice
_BLOCK = np.dtype([("start", "<i8"), ("count", "<i8"), ("first", "<u8"), ("last", "<u8"), ("checksum", "<u8")])
_BLOCK_KEYS = 512  # 10 kB: what is read too much at either end of a range
_BLOCKS_AT_ONCE = 128
_TRAILER = struct.Struct("<QQ")  # of the index: its xxh3, its length
END_OF_KEYS = 1 << 64


class RunsWriter:
    """Takes sorted runs; `finish` makes the file whole, and it appears when the stack is left."""

    def __init__(self, store: Store, name: str, stack: ExitStack, dtype: np.dtype[Any], lasting: bool) -> None:
        self._name, self._dtype = name, dtype
        self._file = stack.enter_context(store.commit(name, lasting))
        self._blocks: list[Array] = []
        self._arrays: dict[str, tuple[int, int, str, int]] = {}

    def write(self, entries: Array) -> None:
        """One run, or the next piece of one: keys ascend."""
        entries = np.ascontiguousarray(entries)
        starts = np.arange(0, len(entries), _BLOCK_KEYS)
        stops = np.minimum(starts + _BLOCK_KEYS, len(entries))
        blocks = np.zeros(len(starts), _BLOCK)
        blocks["start"] = self._file.size + starts * self._dtype.itemsize
        blocks["count"] = stops - starts
        blocks["first"], blocks["last"] = entries["high"][starts], entries["high"][stops - 1]
        data = entries.view("u1").data
        size = self._dtype.itemsize
        blocks["checksum"] = [
            xxhash.xxh3_64_intdigest(data[start * size : stop * size])
            for start, stop in zip(starts.tolist(), stops.tolist(), strict=True)
        ]
        self._file.write(data)
        self._blocks.append(blocks)

    def put(self, name: str, array: Array) -> None:
        """An array of plain numbers beside the runs."""
        data = np.ascontiguousarray(array).reshape(-1).view("u1").data
        self._arrays[name] = (self._file.size, len(array), array.dtype.str, xxhash.xxh3_64_intdigest(data))
        self._file.write(data)

    def finish(self, facts: Mapping[str, Any]) -> FileFacts:
        self.put("blocks", (np.concatenate(self._blocks) if self._blocks else np.zeros(0, _BLOCK)).view("u8"))
        index = json.dumps({**facts, "arrays": self._arrays, "entry": self._dtype.descr}).encode()
        self._file.write(index)
        self._file.write(_TRAILER.pack(xxhash.xxh3_64_intdigest(index), len(index)))
        return FileFacts(self._name, self._file.size, digest(index))


@dataclass(frozen=True)
class RunsFile:
    """A finished file of runs."""

    store: Store
    name: str
    dtype: np.dtype[Any]
    facts: dict[str, Any]
    blocks: Array

    @property
    def path(self) -> str:
        return self.store.where(self.name)

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
        """Of a file that is one run, some at a time: the blocks that may hold a key with one of these first words,
        which ascend."""
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
        data = self.store.read_range(self.name, int(block["start"]), int(block["count"]) * self.dtype.itemsize)
        if xxhash.xxh3_64_intdigest(data) != int(block["checksum"]):
            raise damaged(self.path, f"bytes {block['start']:,} to {block['start'] + len(data):,}")
        return np.frombuffer(data, self.dtype)

    def array(self, name: str) -> Array:
        start, count, dtype, checksum = self.facts["arrays"][name]
        data = self.store.read_range(self.name, start, count * np.dtype(dtype).itemsize)
        if xxhash.xxh3_64_intdigest(data) != checksum:
            raise damaged(self.path, f"its {name}")
        return np.frombuffer(data, dtype)

    def slice_of(self, name: str, first: int, last: int) -> bytes:
        """Items of an array, unchecked: who wants some of many keeps checksums of their own beside them."""
        start, _, dtype, _ = self.facts["arrays"][name]
        size = np.dtype(dtype).itemsize
        return self.store.read_range(self.name, start + first * size, (last - first) * size)


@lru_cache(maxsize=4096)
def open_runs(store: Store, name: str, size: int, written: str) -> RunsFile:
    """A file of `size` bytes whose index has the digest `written`."""
    index = _index(store, name, size)
    if digest(index) != written:
        raise damaged(store.where(name), "its index")
    facts = json.loads(index)
    dtype = np.dtype([(name, kind) for name, kind in facts["entry"]])
    file = RunsFile(store, name, dtype, facts, np.zeros(0, _BLOCK))
    return replace(file, blocks=file.array("blocks").view(_BLOCK))


def open_written(store: Store, facts: FileFacts) -> RunsFile:
    """A file that a task has entered in the ledger."""
    if store.size(facts.file) != facts.bytes:
        written = f"{facts.bytes:,} bytes were written, there are {store.size(facts.file):,}"
        raise damaged(store.where(facts.file), written)
    return open_runs(store, facts.file, facts.bytes, facts.digest)


def read_facts(store: Store, name: str, size: int) -> tuple[dict[str, Any], str]:
    """What the index of a file says, and its digest."""
    index = _index(store, name, size)
    return json.loads(index), digest(index)


def _index(store: Store, name: str, size: int) -> bytes:
    path = store.where(name)
    if size < _TRAILER.size:
        raise damaged(path, f"{size:,} bytes are too few")
    checksum, length = _TRAILER.unpack(store.read_range(name, size - _TRAILER.size, _TRAILER.size))
    if length > size - _TRAILER.size:
        raise damaged(path, "its last bytes")
    index = store.read_range(name, size - _TRAILER.size - length, length)
    if xxhash.xxh3_64_intdigest(index) != checksum:
        raise damaged(path, "its index")
    return index


def damaged(path: str, place: str) -> IntegrityError:
    return IntegrityError(
        "a file of keys is damaged: its bytes are not the ones that were written",
        where=f"{path}, {place}",
        next_step="delete that file and run the job again: what made it is done again. Then check the disk",
    )
