"""Sinks: where the rows of a task end up: shards, the spill of an exchange, or `rejected/`. Next: ledger.py.

Each writes as rows come and appears when the task is done, or not at all.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.files import STATE, Folder, Scratch, WriteFile
from penstock.base.machine import boot_id
from penstock.prepare.exchange import Exchange, bucket_numbers, hash_keys
from penstock.prepare.exchange.spill import SpillWriter, with_codes
from penstock.prepare.rows import Rows, SetAside
from penstock.shards.arrayrecord_file import PartWriter
from penstock.shards.columns import Container, FileFacts, Hold
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import Schema
from penstock.shards.shard import ShardWriter

SPILL = f"{STATE}/spill"
PARTS = f"{STATE}/parts"
_MOST_WAITING = 1 << 20


@dataclass(frozen=True)
class Produced:
    """What a task's sink has written."""

    shards: dict[str, ShardFacts] = field(default_factory=dict)
    spill: FileFacts | None = None
    states: dict[str, Any] = field(default_factory=dict)  # for the ledger, beside those of fits
    outlasts_machine: bool = True  # else it is needed only while this run of the machine lasts


class Sink(Protocol):
    def write(self, rows: Rows) -> None: ...
    def finish(self) -> Produced: ...


class Nothing:
    """The sink of a pass that only measures."""

    def write(self, rows: Rows) -> None: ...

    def finish(self) -> Produced:
        return Produced()


@dataclass(frozen=True)
class ShardsInto:
    """How to write the shards of a task."""

    schema: Schema
    splits: tuple[str, ...]
    container: Container | Literal["arrayrecord"]
    task_count: int
    exchange: Exchange | None  # by which its records were grouped

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:
        return Shards(folder, self, number, stack, hold_bytes)


class Shards:
    """The shards of one task, one a split, each opened when its first record comes."""

    def __init__(self, folder: Folder, into: ShardsInto, number: int, stack: ExitStack, hold_bytes: int) -> None:
        self._folder, self._into, self._number = folder, into, number
        self._writers: dict[str, ShardWriter | PartWriter] = {}
        self._hold = Hold(hold_bytes)
        stack.callback(self._close)

    def write(self, rows: Rows) -> None:
        for number, split in enumerate(self._into.splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self.add(split, batch)

    def add(self, split: str, batch: pa.RecordBatch) -> None:
        if split not in self._writers:
            self._writers[split] = self._open(split)
        self._writers[split].write(batch)

    def _open(self, split: str) -> ShardWriter | PartWriter:
        into, name = self._into, f"{split}/{self._number:05d}-of-{self._into.task_count:05d}"
        if into.container == "arrayrecord":
            assert into.exchange
            return PartWriter(self._folder, f"{PARTS}/{name}", into.exchange.by[0], into.exchange.order[0])
        return ShardWriter(self._folder, name, into.schema, into.container, self._hold)

    def finish(self) -> Produced:
        writers = {split: self._writers[split] for split in self._into.splits if split in self._writers}
        return Produced(shards={split: writer.commit() for split, writer in writers.items()})

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()


@dataclass(frozen=True)
class SpillInto:
    """How to put the rows of a task down for an exchange."""

    number: int  # of the pass
    exchange: Exchange
    buckets: int

    def name(self, number: int) -> str:
        return f"{SPILL}/{self.number}-{number:05d}.spill"


class Spill:
    """The rows of one task by bucket.

    It is needed for minutes, and costs the disk nothing if it is gone by then; the ledger remembers under which boot
    of the machine it was written, and after another it is written again.
    """

    def __init__(self, folder: Folder, into: SpillInto, number: int, stack: ExitStack, batch_bytes: int) -> None:
        self._into, self._name = into, into.name(number)
        self._file = stack.enter_context(folder.commit(self._name, outlasts_machine=not boot_id()))
        self._writer = SpillWriter(self._file, into.buckets, batch_bytes)

    def write(self, rows: Rows) -> None:
        if len(rows):
            batch = with_codes(rows.batch)
            hashes = hash_keys([batch.column(name) for name in self._into.exchange.by])
            self._writer.write(batch, bucket_numbers(hashes, self._into.buckets))

    def finish(self) -> Produced:
        digest = self._writer.finish()
        return Produced(spill=FileFacts(self._name, self._file.size, digest))


class Rejected:
    """Lines of rows that were set aside; the file appears with the task, if there is a line at all.

    A pass that only measures writes no lines: the pass that does the same work for good sees the same rows again.
    """

    def __init__(
        self, folder: Folder, name: str, stack: ExitStack, writes: bool, files: Sequence[tuple[int, str]] = ()
    ) -> None:
        """`files` (source, path) in the order in which they are read."""
        self._folder, self._name, self._stack, self._writes = folder, name, stack, writes
        self._order = {file: number for number, file in reversed(list(enumerate(files)))}
        self._file: WriteFile | None = None
        self._hasher = xxhash.xxh3_128()
        self._waiting = _Waiting(folder)
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
                self._file = self._stack.enter_context(self._folder.commit(self._name))
            self._hasher.update(data)
            self._file.write(data)

    @property
    def facts(self) -> FileFacts | None:
        if self._file is None:
            return None
        return FileFacts(self._name, self._file.size, str(self._hasher.hexdigest()))


class _Waiting:
    """Lines and their positions: the lines in memory while they are few, then in a scratch file."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
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
            self._scratch = self._scratch or self._folder.borrow_scratch()
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
            self._folder.return_scratch(self._scratch)
            self._scratch = None
