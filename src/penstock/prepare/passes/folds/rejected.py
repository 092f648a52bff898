"""Rejected: lines of rows that were set aside, one file per task, in the order of the rows."""

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any

import numpy as np
import xxhash

from penstock.base.stores.scratch import Scratch, borrow_scratch, return_scratch
from penstock.base.stores.store import Store, Writer
from penstock.prepare.rows.rows import SetAside
from penstock.shards.columns import FileFacts

Array = np.ndarray[Any, Any]
_MOST_WAITING, _PIECE = 1 << 20, 1 << 16
_encode = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each line


class Rejected:
    """The file appears with the task, if there is a line at all. A pass that only measures writes none: the pass that
    does the same work for good sees the same rows again."""

    def __init__(
        self, store: Store, name: str, stack: ExitStack, writes: bool, files: Sequence[tuple[int, str]] = ()
    ) -> None:
        """`files` (source, path) in the order in which they are read."""
        self._store, self._name, self._stack, self._writes = store, name, stack, writes
        self._order = {file: number for number, file in reversed(list(enumerate(files)))}
        self._file: Writer | None = None
        self._hasher = xxhash.xxh3_128()
        self._waiting = _Waiting(store)
        stack.callback(self._waiting.close)

    def take(self, aside: SetAside) -> SetAside:
        for line in aside.kept if self._writes else ():
            file = self._order.get((line["source"], line["file"]), 0)
            self._waiting.add(file, int(line["position"]), _encode(line).encode() + b"\n")
        return aside

    def write(self) -> None:
        """Write what a batch set aside in the order of its rows: by step, it would depend on where batches end."""
        for data in _joined(self._waiting.take()):
            if self._file is None:
                self._file = self._stack.enter_context(self._store.commit(self._name))
            self._hasher.update(data)
            self._file.write(data)

    @property
    def facts(self) -> FileFacts | None:
        if self._file is None:
            return None
        return FileFacts(self._name, self._file.size, str(self._hasher.hexdigest()))


def _joined(lines: Iterator[bytes]) -> Iterator[bytes]:
    """The lines, many in one piece: where steps take turns to set rows aside, each comes alone."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > _PIECE:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _runs(order: Array, cut: int) -> Iterator[tuple[int, int]]:
    """Runs of numbers that follow each other, as first and behind the last; none goes past `cut`."""
    edges = [0, *(np.flatnonzero((np.diff(order) != 1) | (order[1:] == cut)) + 1).tolist(), len(order)]
    return ((int(order[low]), int(order[high - 1]) + 1) for low, high in pairwise(edges) if high > low)


class _Waiting:
    """Lines and their positions: the lines in memory while they are few, then in a scratch file."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._scratch: Scratch | None = None
        self._begin()

    def _begin(self) -> None:
        self._files, self._positions, self._ends = array("q"), array("q"), array("q")
        self._lines: list[bytes] = []
        self._bytes = 0  # of the lines in memory

    def add(self, file: int, position: int, line: bytes) -> None:
        self._files.append(file)
        self._positions.append(position)
        self._ends.append((self._ends[-1] if self._ends else 0) + len(line))
        self._lines.append(line)
        self._bytes += len(line)
        if self._bytes > _MOST_WAITING:
            self._scratch = self._scratch or borrow_scratch(self._store.scratch_folder)
            self._scratch.write(b"".join(self._lines))
            self._lines, self._bytes = [], 0

    def take(self) -> Iterator[bytes]:
        """The lines in the order of their positions; none are left."""
        put_down = len(self._positions) - len(self._lines)
        ends = np.append(0, np.array(self._ends, "i8"))
        order = np.lexsort((np.array(self._positions, "i8"), np.array(self._files, "i8")))
        for first, last in _runs(order, put_down):
            if first >= put_down:
                yield b"".join(self._lines[first - put_down : last - put_down])
                continue
            assert self._scratch
            start, stop = ends[[first, last]].tolist()
            for at in range(start, stop, _PIECE):
                yield self._scratch.read_range(at, min(_PIECE, stop - at))
        self.close()
        self._begin()

    def close(self) -> None:
        if self._scratch:
            return_scratch(self._scratch)
            self._scratch = None
