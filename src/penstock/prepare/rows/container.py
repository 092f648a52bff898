"""Container: a file that tasks leave for others: blocks with checksums, arrays of numbers, an index of facts.

Blocks lie one after the other as they came, then arrays, then the index (JSON: facts, and where each array lies), then
the index's checksum and length. A reader takes one small range at the end, then what it wants, and checks it.
Who writes blocks (spill.py, part.py, runs.py) keeps a table of them. An array may be in groups with a checksum each.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
import xxhash

from penstock.base.errors import IntegrityError
from penstock.base.fingerprint import digest
from penstock.base.stores.store import Store, Writer
from penstock.prepare.rows.kept import OpenFile, keep_open
from penstock.shards.columns import FileFacts

Array = np.ndarray[Any, Any]
FORMAT = 2  # of spills, parts and losers, in the fingerprints of their tasks. Files of keys are as they always were.
BLOCK = np.dtype([("start", "<i8"), ("length", "<i8"), ("checksum", "<u8")])
_GROUP = np.dtype([("first", "<i8"), ("last", "<i8"), ("checksum", "<u8")])  # of its place and items
_TRAILER = struct.Struct("<QQ")  # of the index: its xxh3, its length
_TAIL_BYTES = 1024  # what is read first: most indexes are within
_READ_BYTES = 1 << 19  # of blocks that are read at once, and one more block
_xxh3 = xxhash.xxh3_64_intdigest


class Source(Protocol):
    """Finished file that ranges are read from."""

    @property
    def path(self) -> str: ...
    @property
    def size(self) -> int: ...
    def read_range(self, start: int, length: int) -> bytes | memoryview: ...
    def opened(self) -> AbstractContextManager[Source]: ...


@dataclass(frozen=True)
class Stored:
    """A committed file. It is opened for each range, unless it is `opened` for several, or kept open for all tasks:
    this may be a file whose index has the digest `written`."""

    store: Store
    name: str
    written: str = ""

    @property
    def path(self) -> str:
        return self.store.where(self.name)

    @property
    def size(self) -> int:
        size = self.store.size(self.name)
        if size < 0:
            self.store.open(self.name).close()  # which says that it is not there
        return size

    def read_range(self, start: int, length: int) -> bytes:
        with self.opened() as source:
            return source.read_range(start, length)

    @contextmanager
    def opened(self) -> Iterator[OpenFile]:
        """The open file, for several reads: opening costs more than reading a small range."""
        if kept := self.written and keep_open(self.store, self.name, self.written):
            yield kept
            return
        with self.store.open(self.name) as file:
            yield OpenFile(self.path, file)


@dataclass(frozen=True)
class Mapped:
    """A committed file in memory, as far as it is touched."""

    path: str
    view: memoryview

    @property
    def size(self) -> int:
        return len(self.view)

    def read_range(self, start: int, length: int) -> memoryview:
        return self.view[start : start + length]

    def opened(self) -> AbstractContextManager[Source]:
        return nullcontext(self)


class Words(NamedTuple):
    """Words for people: what the file is, and what becomes of it when it is deleted."""

    file: str
    again: str = "its task is done again"

    def damaged(self, path: str, place: str) -> IntegrityError:
        return IntegrityError(
            f"{self.file} is damaged: its bytes differ from the bytes that were written",
            where=f"{path}, {place}",
            next_step=f"delete that file and run the job again: {self.again}. Then check the disk",
        )


class ContainerWriter:
    """Takes blocks, then arrays; `finish` makes the file whole."""

    def __init__(self, file: Writer, name: str = "") -> None:
        self._file, self._name = file, name
        self._arrays: dict[str, tuple[int, int, str, int]] = {}

    def write(self, data: memoryview, edges: Array) -> tuple[Array, list[int]]:
        """Write blocks, which lie between `edges` of the data: (where each starts, its checksum)."""
        checksums = [_xxh3(data[first:last]) for first, last in pairwise(edges.tolist())]
        starts = self._file.size + edges[:-1]
        self._file.write(data)
        return starts, checksums

    def put(self, name: str, array: Array) -> None:
        data = bytes_of(array)
        self._arrays[name] = (self._file.size, len(array), array.dtype.str, _xxh3(data))
        self._file.write(data)

    def put_groups(self, name: str, array: Array, bounds: Array) -> None:
        """Write an array; the items between two bounds are a group."""
        data, size = bytes_of(array), array.itemsize
        groups = np.zeros(len(bounds) - 1, _GROUP)
        groups["first"], groups["last"] = bounds[:-1], bounds[1:]
        groups["checksum"] = [
            _group_checksum(data[first * size : last * size], number, first, last)
            for number, (first, last) in enumerate(pairwise(bounds.tolist()))
        ]
        self.put(name, array)
        self.put(_groups_of(name), groups)

    def finish(self, facts: Mapping[str, Any]) -> FileFacts:
        index = json.dumps({**facts, "arrays": self._arrays}).encode()
        self._file.write(index)
        self._file.write(_TRAILER.pack(_xxh3(index), len(index)))
        return FileFacts(self._name, self._file.size, digest(index))


def begin_container(store: Store, name: str, stack: ExitStack, lasting: bool) -> ContainerWriter:
    """Begin a file that appears when the stack is left."""
    return ContainerWriter(stack.enter_context(store.commit(name, lasting)), name)


def bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _groups_of(name: str) -> str:
    return f"groups of {name}"


def _group_checksum(data: bytes | memoryview, *place: int) -> int:
    hasher = xxhash.xxh3_64(np.array(place, "<i8").tobytes())
    hasher.update(data)
    return int(hasher.intdigest())


@dataclass(frozen=True)
class Container:
    """A finished file, and its index."""

    source: Source
    words: Words
    facts: dict[str, Any]
    digest: str  # of the index

    @property
    def first_array(self) -> int:
        """Where the blocks end, and its arrays and index begin."""
        return min((start for start, *_ in self.facts["arrays"].values()), default=0)

    def damaged(self, place: str) -> IntegrityError:
        return self.words.damaged(self.source.path, place)

    def block(self, start: int, length: int, checksum: int, of: str = "") -> bytes | memoryview:
        data = self.source.read_range(start, length)
        if _xxh3(data) != checksum:
            raise self.damaged(f"bytes {start:,} to {start + length:,}{of}")
        return data

    def blocks(self, places: Array, of: str = "") -> Iterator[memoryview]:
        """Blocks at `places` (start, length, checksum); those that lie one after the other are read at once."""
        with self.source.opened() as source:
            for run in _runs(places):
                first, (start, length, _) = run["start"][0], run[-1].tolist()
                view = memoryview(source.read_range(int(first), start + length - int(first)))
                for start, length, checksum in run.tolist():
                    data = view[start - first : start - first + length]
                    if _xxh3(data) != checksum:
                        raise self.damaged(f"bytes {start:,} to {start + length:,}{of}")
                    yield data

    def array(self, name: str) -> Array:
        start, count, dtype, checksum = self.facts["arrays"][name]
        data = self.source.read_range(start, count * np.dtype(dtype).itemsize)
        if _xxh3(data) != checksum:
            raise self.damaged(f"its {name}")
        return np.frombuffer(data, dtype)

    def groups(self, name: str) -> Array:
        """Bounds of the groups of an array: where each begins, and where the last ends."""
        groups = self.array(_groups_of(name)).view(_GROUP)
        return np.append(groups["first"], groups["last"][-1:])

    def group(self, name: str, number: int, what: str) -> bytes | memoryview:
        """Items of one group. `what` is said of them where they are damaged."""
        start, count, dtype, _ = self.facts["arrays"][name]
        at, size = self.facts["arrays"][_groups_of(name)][0] + number * _GROUP.itemsize, np.dtype(dtype).itemsize
        first, last, checksum = np.frombuffer(self.source.read_range(at, _GROUP.itemsize), _GROUP)[0].tolist()
        if not 0 <= first <= last <= count:
            raise self.damaged(what)
        data = self.source.read_range(start + first * size, (last - first) * size)
        if _group_checksum(data, number, first, last) != checksum:
            raise self.damaged(what)
        return data


def _runs(places: Array) -> Iterator[Array]:
    """Places of blocks in runs of some bytes, without a gap."""
    ends = places["start"] + places["length"]
    gaps = np.flatnonzero(places["start"][1:] != ends[:-1]) + 1
    for run in np.split(places, gaps) if len(places) else []:
        sizes = np.cumsum(run["length"]) - run["length"]
        yield from np.split(run, np.flatnonzero(np.diff(sizes // _READ_BYTES)) + 1)


def open_container(source: Source, words: Words, written: str = "") -> Container:
    """The file, whose index has the digest `written`, where that is known."""
    with source.opened() as opened:
        return replace(_open_container(opened, words, written), source=source)


def _open_container(source: Source, words: Words, written: str) -> Container:
    size = source.size
    if size < _TRAILER.size:
        raise words.damaged(source.path, f"{size:,} bytes are too few")
    tail = source.read_range(max(0, size - _TAIL_BYTES), min(size, _TAIL_BYTES))
    checksum, length = _TRAILER.unpack(tail[-_TRAILER.size :])
    end = size - _TRAILER.size
    if length > end:
        raise words.damaged(source.path, "its last bytes")
    whole = tail if length + _TRAILER.size <= len(tail) else source.read_range(end - length, length + _TRAILER.size)
    index = whole[-_TRAILER.size - length : -_TRAILER.size]
    found = digest(index)
    if _xxh3(index) != checksum or found != (written or found):
        raise words.damaged(source.path, "its index")
    return Container(source, words, json.loads(bytes(index)), found)


def refuse_other_size(store: Store, facts: FileFacts, words: Words) -> None:
    """Refuse a file that is not as large as the task that wrote it has noted."""
    if (size := store.size(facts.file)) != facts.bytes:
        raise words.damaged(store.where(facts.file), f"{facts.bytes:,} bytes were written, there are {size:,}")
