"""Rejected: lines of rows that were set aside, one file per task, in the order of the rows."""

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

import numpy as np
import xxhash

from penstock.base.stores.scratch import Scratch, borrow_scratch, return_scratch
from penstock.base.stores.store import Store, Writer
from penstock.prepare.rows.rows import SetAside
from penstock.shards.columns import FileFacts

_MOST_WAITING = 1 << 20


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
            self._waiting.add(file, int(line["position"]), json.dumps(line, ensure_ascii=False).encode() + b"\n")
        return aside

    def write(self) -> None:
        """Write what a batch set aside in the order of its rows: by step, it would depend on where batches end."""
        for data in self._waiting.take():
            if self._file is None:
                self._file = self._stack.enter_context(self._store.commit(self._name))
            self._hasher.update(data)
            self._file.write(data)

    @property
    def facts(self) -> FileFacts | None:
        if self._file is None:
            return None
        return FileFacts(self._name, self._file.size, str(self._hasher.hexdigest()))


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
        for number in np.lexsort((np.array(self._positions, "i8"), np.array(self._files, "i8"))).tolist():
            if number >= put_down:
                yield self._lines[number - put_down]
            elif self._scratch:
                start = self._ends[number - 1] if number else 0
                yield self._scratch.read_range(start, self._ends[number] - start)
        self.close()
        self._begin()

    def close(self) -> None:
        if self._scratch:
            return_scratch(self._scratch)
            self._scratch = None
