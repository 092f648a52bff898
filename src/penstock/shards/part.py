"""Part: samples or tokens of one task on their way, in one file. A sink writes it, placing.py or token_stream.py reads.

Pieces of columns as they come, of all splits, then an index of where each lies and its checksum, then the index's
length. Nothing is laid out and nothing waits: the order that readers want is made when the pieces are placed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from penstock.base.errors import IntegrityError
from penstock.base.fingerprint import digest
from penstock.base.stores.store import Store
from penstock.shards.columns import FileFacts
from penstock.shards.record import encoders
from penstock.shards.schema import Schema

if TYPE_CHECKING:
    import pyarrow as pa

Array = np.ndarray[Any, Any]
SUFFIX = ".part"
_LENGTH = struct.Struct("<Q")
_PIECE = tuple[int, int, int]  # where it starts, its bytes, its xxh3


class PartWriter:
    """Takes batches of any split. After `finish` the part appears when the stack is left; without it nothing does."""

    def __init__(
        self,
        store: Store,
        name: str,
        schema: Schema,
        splits: tuple[str, ...],
        stack: ExitStack,
        lasting: bool = True,
    ) -> None:
        self._name = f"{name}{SUFFIX}"
        self._file = stack.enter_context(store.commit(self._name, lasting))
        self._encoders = {split: encoders(schema) for split in splits}
        self._pieces: dict[str, dict[str, list[_PIECE]]] = {split: {} for split in splits}
        self.records = dict.fromkeys(splits, 0)

    def write(self, split: str, batch: pa.RecordBatch) -> None:
        for encoder, array in zip(self._encoders[split], batch.columns, strict=True):
            for column, piece in encoder.encode(array):
                if piece.size:
                    view = bytes_of(piece)
                    found = (self._file.size, len(view), xxhash.xxh3_64_intdigest(view))
                    self._pieces[split].setdefault(column, []).append(found)
                    self._file.write(view)
        self.records[split] += batch.num_rows

    def finish(self, groups: dict[str, str]) -> FileFacts:
        """The file is whole now, and appears when the stack it was opened on is left."""
        index = json.dumps({"pieces": self._pieces, "groups": groups}).encode()
        self._file.write(index)
        self._file.write(_LENGTH.pack(len(index)))
        return FileFacts(self._name, self._file.size, digest(index))


@dataclass(frozen=True)
class PartColumn:
    """The pieces of one column, in order."""

    name: str
    file: str
    mapped: memoryview
    pieces: tuple[_PIECE, ...]

    @property
    def bytes(self) -> int:
        return sum(size for _, size, _ in self.pieces)

    @property
    def last(self) -> int:
        """Of offsets: where the column's data end."""
        if not self.pieces:
            return 0
        start, size, _ = self.pieces[-1]
        return int.from_bytes(self.mapped[start + size - 8 : start + size], "little")

    def read(self) -> Iterator[tuple[int, memoryview]]:
        """Each piece with its place in the file, checked."""
        for number, (start, _, _) in enumerate(self.pieces):
            yield start, self.piece(number)

    def piece(self, number: int) -> memoryview:
        start, size, written = self.pieces[number]
        view = self.mapped[start : start + size]
        if xxhash.xxh3_64_intdigest(view) != written:
            raise IntegrityError(
                f"bytes {start:,} to {start + size:,} of {self.file} are not the ones that were written",
                where=f"{self.file}, column {self.name!r}",
                next_step="delete that file and run the job again: its task is done again. Then check the disk",
            )
        return view


@dataclass(frozen=True)
class PartFile:
    file: str
    mapped: memoryview
    index: dict[str, Any]

    def column(self, split: str, name: str) -> PartColumn:
        pieces = self.index["pieces"][split].get(name, ())
        return PartColumn(name, self.file, self.mapped, tuple((start, size, hashed) for start, size, hashed in pieces))

    def groups(self, split: str) -> str:
        found: str = self.index["groups"][split]
        return found


def open_part(store: Store, facts: FileFacts) -> PartFile:
    """The part, mapped. Size and index are held against the facts."""
    if store.size(facts.file) != facts.bytes:
        raise _damaged(facts, f"has {store.size(facts.file):,} bytes, {facts.bytes:,} were written")
    mapped = store.map(facts.file)
    (length,) = _LENGTH.unpack(mapped[-_LENGTH.size :])
    index = mapped[-_LENGTH.size - length : -_LENGTH.size]
    if digest(index) != facts.digest:
        raise _damaged(facts, "has an index other than the one that was written")
    return PartFile(facts.file, mapped, json.loads(bytes(index)))


def _damaged(facts: FileFacts, reason: str) -> IntegrityError:
    return IntegrityError(
        f"{facts.file} {reason}",
        where=facts.file,
        next_step="delete that file and run the job again: its task is done again. Then check the disk",
    )


def bytes_of(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")
