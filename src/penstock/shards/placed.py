"""Placed: one .npy per column and split, which many tasks write at once, each the rows that are its own.

Where every task's rows lie is known before the first is written, so nothing is merged. A block's checksum is computed
by the task that writes the whole block, and at the end for the few blocks that two tasks share.
"""

import math
import urllib.parse
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import xxhash

from penstock.base.errors import IntegrityError
from penstock.base.files import Copyable
from penstock.base.fingerprint import digest
from penstock.base.stores.store import PLACING, SharedWriter, Store
from penstock.shards.columns import BLOCK, FileFacts, checksum_table, npy_header
from penstock.shards.manifest import ShardFacts
from penstock.shards.record import Encoder
from penstock.shards.schema import Schema

Array = np.ndarray[Any, Any]
SPLIT_PROOF = "artifacts/split.json"  # how many groups each split has, and that none is in two
OFFSETS, VALID = "/offsets", "/valid"
EDGES = "edges"  # in the states of a ledger row: what the task wrote of blocks that it shares
_FEATURES = ("features", "strategic_features")  # the column that readers of X_train.npy mean


@dataclass(frozen=True)
class PlacedColumn:
    """A column of a split in its file: the items of part i lie from `starts[i]` up to `starts[i + 1]`."""

    file: str
    column: str
    dtype: str
    row_shape: tuple[int, ...]
    starts: tuple[int, ...]
    bases: tuple[int, ...] = ()  # of offsets: what each part's must be raised by

    @property
    def items(self) -> int:
        return self.starts[-1]

    @property
    def is_validity(self) -> bool:
        return self.column.endswith(VALID)

    @property
    def item_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize * math.prod(self.row_shape)

    @property
    def data_bytes(self) -> int:
        return self.items * self.item_bytes

    @property
    def blocks(self) -> int:
        return -(-self.data_bytes // BLOCK)

    @property
    def head(self) -> bytes:
        return npy_header(self.dtype, [self.items, *self.row_shape])

    @property
    def shared_blocks(self) -> list[int]:
        """Blocks in which the rows of one part end and those of another begin, or what none has written."""
        ends = [start * self.item_bytes for start in self.starts]
        shared = {end // BLOCK for end in ends if end % BLOCK and end < self.data_bytes}
        return sorted(shared | ({0} if ends[0] else set()))

    @property
    def placing(self) -> FileFacts:
        """The file while it grows."""
        return FileFacts(f"{PLACING}/{self.file}", len(self.head) + self.data_bytes, "")


# A piece of a block that parts share, or of the blocks' checksums, which count as if they lay behind the data: where it
# starts, its bytes, its xxh3.
Edge = tuple[int, int, int]
Edges = dict[str, list[Edge]]  # by file
Facts = tuple[str, str, tuple[int, ...]]  # of a column: its name, dtype and row shape
Size = tuple[int, int]  # of a column in a part: its bytes, of offsets where the data end that they divide
Layout = dict[str, tuple[PlacedColumn, ...]]  # by split, the columns in their order


def file_of(column: str, split: str) -> str:
    """`X_train.npy`, `labels_action_type_train.npy`, `game_id_train.offsets.npy`; odd characters percent-encoded."""
    name, *inner = [urllib.parse.quote(part, safe=" ").replace(".", "%2E") for part in column.split("/")]
    name = "X" if name in _FEATURES else name
    return ".".join([f"{name}_{split}", *inner, "npy"])


def columns_of(schema: Schema, optional: Container[str] = ()) -> list[Facts]:
    """The flat columns of records; only `optional` fields have nulls. Bools are numpy's own: they can choose rows."""
    columns: list[Facts] = []
    for field in schema:
        is_bool = field.parsed.is_fixed and field.parsed.number.name == "bool"
        for name, piece in Encoder(field).start():
            columns.append((name, "b1" if is_bool else piece.dtype.str.lstrip("<|="), piece.shape[1:]))
        columns += [(f"{field.name}{VALID}", "b1", ())] if field.name in optional else []
    return columns


def lay_out_fixed(split: str, columns: Iterable[Facts], counts: Iterable[int]) -> tuple[PlacedColumn, ...]:
    """The columns of a split whose parts have so many records each."""
    starts = tuple(accumulate(counts, initial=0))
    return tuple(PlacedColumn(file_of(name, split), name, dtype, shape, starts) for name, dtype, shape in columns)


def lay_out(split: str, columns: Iterable[Facts], parts: Iterable[Sequence[Size]]) -> tuple[PlacedColumn, ...]:
    """The columns of any kind of a split, from the sizes that they have in each part."""
    every = list(parts)
    return tuple(_lay_out_column(split, each, [part[n] for part in every]) for n, each in enumerate(columns))


def _lay_out_column(split: str, column: Facts, sizes: list[Size]) -> PlacedColumn:
    name, dtype, shape = column
    item = np.dtype(dtype).itemsize * math.prod(shape)
    lengths = [size // item for size, _ in sizes]
    if not name.endswith(OFFSETS):
        return PlacedColumn(file_of(name, split), name, dtype, shape, tuple(accumulate(lengths, initial=0)))
    # Before the first end stands a 0, which a new file has by itself.
    starts = tuple(accumulate(lengths, initial=1))
    bases = tuple(accumulate((last for _, last in sizes), initial=0))[:-1]
    return PlacedColumn(file_of(name, split), name, dtype, shape, starts, bases)


class Placer:
    """Writes items of a column one after the other from `start` on, and hashes the blocks that lie within."""

    def __init__(self, store: Store, column: PlacedColumn, start: int) -> None:
        self._store = store
        self._file = open_placing(store, column)
        self._hashes = open_hashes(store, column)
        self._column = column
        self._head = len(column.head)
        self._position = self._first = start * column.item_bytes
        self._hasher = xxhash.xxh3_64()
        self._done: list[int] = []
        self._edges: list[Edge] = []

    @property
    def items(self) -> int:
        return self._position // self._column.item_bytes

    def write(self, view: memoryview) -> None:
        self._file.write_at(self._head + self._position, view)
        self._hash(view)

    def copy(self, source: Copyable, start: int, view: memoryview) -> None:
        """The bytes of `view`, which lie from `start` on in `source`: copied inside the kernel where it can."""
        self._file.copy_at(self._head + self._position, source, start, len(view))
        self._hash(view)

    def _hash(self, view: memoryview) -> None:
        while view:
            room = BLOCK - self._position % BLOCK
            piece, view = view[:room], view[room:]
            self._hasher.update(piece)
            self._position += len(piece)
            if self._position % BLOCK == 0:
                self._end_block()

    def _end_block(self) -> None:
        if self._block_start >= self._first:
            self._done.append(self._hasher.intdigest())
        else:  # another task has its beginning
            self._edges.append((self._first, self._position - self._first, self._hasher.intdigest()))
        self._hasher.reset()

    @property
    def _block_start(self) -> int:
        return (self._position - 1) // BLOCK * BLOCK

    def finish(self) -> list[Edge]:
        """Pieces that it wrote of the blocks that it shares, and the checksums of those that are its own."""
        if self._position % BLOCK and self._position > self._first:
            if self._position == self._column.data_bytes:
                self._end_block()
            else:
                start = max(self._block_start, self._first)
                self._edges.append((start, self._position - start, self._hasher.intdigest()))
        first, hashes = 8 * -(-self._first // BLOCK), np.array(self._done, "<u8").tobytes()
        self._hashes.write_at(first, hashes)
        if hashes:
            self._edges.append((self._column.data_bytes + first, len(hashes), xxhash.xxh3_64_intdigest(hashes)))
        if not self._store.session:  # nothing would tell that the machine has lost them
            self._file.sync()
            self._hashes.sync()
        self.close()
        return self._edges

    def close(self) -> None:
        self._file.close()
        self._hashes.close()


def open_placing(store: Store, column: PlacedColumn) -> SharedWriter:
    """The growing file, at its full size and with its header, whoever comes first."""
    facts = column.placing
    file = store.place(facts.file, facts.bytes)
    file.write_at(0, column.head)
    return file


def open_hashes(store: Store, column: PlacedColumn) -> SharedWriter:
    return store.place(f"{PLACING}/{column.file}.hashes", 8 * column.blocks)


def make_room(store: Store, layout: Layout) -> None:
    """Every file at its full size, before the first task looks for it."""
    for column in (column for columns in layout.values() for column in columns):
        open_placing(store, column).close()
        open_hashes(store, column).close()


def finish_column(store: Store, column: PlacedColumn, edges: Iterable[Edge]) -> Array:
    """The checksums of all its blocks; what parts share is held against what each part has noted of it."""
    file, kept = open_placing(store, column), open_hashes(store, column)
    try:
        head, unwritten = len(column.head), column.starts[0] * column.item_bytes
        if any(file.read_at(head, unwritten)):  # the 0 that offsets begin with
            raise _changed(column, 0, unwritten)
        for start, size, written in edges:
            is_data = start < column.data_bytes
            data = file.read_at(head + start, size) if is_data else kept.read_at(start - column.data_bytes, size)
            if xxhash.xxh3_64_intdigest(data) != written:
                raise _changed(column, start, size)
        hashes = np.frombuffer(kept.read_at(0, 8 * column.blocks), "<u8").copy()
        for block in column.shared_blocks:
            start = block * BLOCK
            data = file.read_at(head + start, min(BLOCK, column.data_bytes - start))
            hashes[block] = xxhash.xxh3_64_intdigest(data)
        file.sync()
    finally:
        file.close()
        kept.close()
    return hashes


def read_placed(store: Store, column: PlacedColumn, hashes: Array) -> Iterator[Array]:
    """The bytes of a column that is whole and not yet moved, block by block, checked."""
    with store.open(column.placing.file) as file:
        file.seek(len(column.head))
        for block, written in enumerate(hashes.tolist()):
            data = file.read(BLOCK)
            if xxhash.xxh3_64_intdigest(data) != written:
                raise _changed(column, block * BLOCK, len(data))
            yield np.frombuffer(data, "u1")


def _changed(column: PlacedColumn, start: int, size: int) -> IntegrityError:
    is_data = start < column.data_bytes
    what = f"bytes {start:,} to {start + size:,}" if is_data else "checksums"
    return IntegrityError(
        f"{what} of {column.file} differ from the bytes that were placed",
        where=f"{column.placing.file}, column {column.column!r}",
        next_step="delete that file and run the job again: samples are placed again. Then check the disk",
    )


def finish_split(
    store: Store, split: str, records: int, columns: Mapping[PlacedColumn, Array], metadata: dict[str, str]
) -> ShardFacts:
    """Write the checksums of every column, and move its file, which is synced, into the dataset."""
    name = f"{split}.checksums.json"
    body = checksum_table([column.column for column in columns], list(columns.values()), metadata)
    store.commit_bytes(name, body)
    files = []
    for column, hashes in columns.items():
        store.publish(column.placing.file, column.file)
        files.append(FileFacts(column.file, column.placing.bytes, digest(column.head, hashes.tobytes())))
    return ShardFacts(split, records, (*files, FileFacts(name, len(body), digest(body))))
