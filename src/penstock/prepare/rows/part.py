"""Part: samples or tokens of one task on their way, in one container. Next: placing.py or token_stream.py.

Pieces of columns lie as they come, and a table per split and column tells where. Nothing is laid out and nothing waits.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.rows import container
from penstock.prepare.rows.container import BLOCK, Array
from penstock.shards.columns import FileFacts
from penstock.shards.placed import OFFSETS
from penstock.shards.record import encoders
from penstock.shards.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

PLACES = ("parts", container.FORMAT)  # in the fingerprints of all tasks of a job that writes parts
SUFFIX = ".part"
_WORDS = container.Words("a file of samples or tokens")


class PartWriter:
    """Takes batches of any split. After `finish` the part appears when the stack is left; without it nothing does."""

    def __init__(
        self, store: Store, name: str, schema: Schema, splits: tuple[str, ...], stack: ExitStack, lasting: bool = True
    ) -> None:
        self._file = container.begin_container(store, f"{name}{SUFFIX}", stack, lasting)
        self._encoders = {split: encoders(schema) for split in splits}
        self._pieces: dict[str, list[tuple[int, int, int]]] = {}
        self.records = dict.fromkeys(splits, 0)

    def write(self, split: str, batch: pa.RecordBatch) -> None:
        for encoder, array in zip(self._encoders[split], batch.columns, strict=True):
            for column, piece in encoder.encode(array):
                if piece.size:
                    view = container.bytes_of(piece)
                    (start,), (checksum,) = self._file.write(view, np.array([0, len(view)]))
                    self._pieces.setdefault(_table(split, column), []).append((start, len(view), checksum))
        self.records[split] += batch.num_rows

    def finish(self, groups: dict[str, str]) -> FileFacts:
        """Make the file whole; it appears when the stack it was opened on is left."""
        for table, pieces in self._pieces.items():
            self._file.put(table, np.array(pieces, BLOCK))
        return self._file.finish({"groups": groups})


def _table(split: str, column: str) -> str:
    return f"{split}/{column}"


@dataclass(frozen=True)
class PartColumn:
    """The pieces of one column, in order."""

    name: str
    file: container.Container
    pieces: Array

    @property
    def size(self) -> tuple[int, int]:
        """(its bytes, of offsets where the data end that they divide)."""
        if not len(self.pieces):
            return 0, 0
        start, length, _ = self.pieces[-1].tolist()
        last = self.file.source.read_range(start + length - 8, 8) if self.name.endswith(OFFSETS) else b""
        return int(self.pieces["length"].sum()), int.from_bytes(last, "little")

    def read(self) -> Iterator[tuple[int, memoryview]]:
        """Each piece with its place in the file, checked."""
        return ((start, self.piece(number)) for number, start in enumerate(self.pieces["start"].tolist()))

    def piece(self, number: int) -> memoryview:
        start, length, checksum = self.pieces[number].tolist()
        return memoryview(self.file.block(start, length, checksum, f", column {self.name!r}"))


@dataclass(frozen=True)
class PartFile:
    name: str
    file: container.Container

    def column(self, split: str, name: str) -> PartColumn:
        table = _table(split, name)
        is_there = table in self.file.facts["arrays"]
        return PartColumn(name, self.file, self.file.array(table).view(BLOCK) if is_there else np.zeros(0, BLOCK))

    def groups(self, split: str) -> str:
        found: str = self.file.facts["groups"][split]
        return found


def open_part(store: Store, facts: FileFacts) -> PartFile:
    """The part, mapped. Size and index are held against the facts."""
    container.refuse_other_size(store, facts, _WORDS)
    mapped = container.Mapped(store.where(facts.file), store.map(facts.file))
    return PartFile(facts.file, container.open_container(mapped, _WORDS, facts.digest))
