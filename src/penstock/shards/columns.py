"""Columns: flat arrays on disk, laid out in a container, mapped into memory, checked block by block.

Pieces are hashed as they come and kept in memory while there is room, then in a scratch file: memory does not grow with
the shard. When their sizes are known, safetensors (one self-describing file per shard) or npy (one file per column) is
laid out. A block of 64 KiB is checked the first time it is touched.
"""

import base64
import json
import math
import mmap
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, BinaryIO, Literal

import numpy as np
import xxhash

from penstock.base.errors import FileError, IntegrityError
from penstock.base.fingerprint import digest
from penstock.base.stores.scratch import Scratch, borrow_scratch, return_scratch
from penstock.base.stores.store import Store, Writer

Container = Literal["safetensors", "npy"]
Piece = bytes | memoryview | tuple[int, int]  # the bytes, or (start, length) in the scratch file
BLOCK = 64 * 1024
_AT_ONCE = 1 << 20  # bytes of a whole file, hashed at a time
CHECKSUMS = "/checksums"  # no field can have this name: theirs never start with a slash
_DTYPES = ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
_SAFETENSORS_DTYPES = {dtype: f"{dtype[0].upper()}{8 * int(dtype[1])}" for dtype in _DTYPES}
_NUMPY_DTYPES = {ours: dtype for dtype, ours in _SAFETENSORS_DTYPES.items()}


@dataclass(frozen=True)
class FileFacts:
    """A committed file: its size, and the digest of its header and block checksums."""

    file: str
    bytes: int
    digest: str


def commit_file(store: Store, name: str, data: bytes) -> FileFacts:
    """A file that is written at once; its digest is that of all its bytes."""
    store.commit_bytes(name, data)
    return FileFacts(name, len(data), digest(data))


@dataclass
class _Pieces:
    """One column while it is written: its pieces, or where they lie in the scratch file, and their block hashes."""

    dtype: str
    row_shape: tuple[int, ...]
    bytes: int = 0
    pieces: list[Piece] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    hasher: Any = field(default_factory=xxhash.xxh3_64)

    def add(self, view: memoryview, piece: Piece) -> None:
        self.pieces.append(piece)
        while view:
            room = BLOCK - self.bytes % BLOCK
            self.hasher.update(view[:room])
            self.bytes += len(view[:room])
            view = view[room:]
            if self.bytes % BLOCK == 0:
                self.end_block()

    def end_block(self) -> None:
        self.hashes.append(self.hasher.intdigest())
        self.hasher.reset()

    @property
    def shape(self) -> list[int]:
        row_bytes = np.dtype(self.dtype).itemsize * math.prod(self.row_shape)
        return [self.bytes // row_bytes, *self.row_shape]


@dataclass
class Hold:
    """Memory in which the shards of one task may keep pieces; other pieces go to a scratch file."""

    room: int

    def take(self, size: int) -> bool:
        fits = size <= self.room
        self.room -= size if fits else 0
        return fits


class ColumnWriter:
    """Takes pieces of columns in any order; `commit` lays them out as the files of one shard."""

    def __init__(self, store: Store, name: str, container: Container, hold: Hold) -> None:
        self._store = store
        self._name = name
        self._container = container
        self._hold = hold
        self._scratch: Scratch | None = None  # borrowed when the first piece finds no room
        self._columns: dict[str, _Pieces] = {}

    def add(self, column: str, array: np.ndarray[Any, Any]) -> None:
        """Append rows to `column`. A declared but empty column takes an array of no rows."""
        dtype = array.dtype.str.lstrip("<|=")
        pieces = self._columns.setdefault(column, _Pieces(dtype, array.shape[1:]))
        if array.size:
            view = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            piece: Piece = view
            if not self._hold.take(len(view)):
                piece = self._spill(view)
            elif array.base is not None:  # a part of an Arrow buffer would keep the whole buffer
                piece = bytes(view)
            pieces.add(view, piece)

    def _spill(self, view: memoryview) -> tuple[int, int]:
        """Write it to the scratch file, and return its place there: (start, length)."""
        self._scratch = self._scratch or borrow_scratch(self._store.scratch_folder)
        self._scratch.write(view)
        return self._scratch.size - len(view), len(view)

    def commit(self, metadata: dict[str, str]) -> tuple[FileFacts, ...]:
        for pieces in self._columns.values():
            if pieces.bytes % BLOCK:
                pieces.end_block()
        # The widest items first: every column then starts at a multiple of its item size. Then by name: a validity
        # column comes when the first null does, and that is sooner or later as batches are small or large.
        columns = dict(sorted(self._columns.items(), key=lambda item: (-np.dtype(item[1].dtype).itemsize, item[0])))
        write = _write_safetensors if self._container == "safetensors" else _write_npy
        facts = write(self._store, self._name, columns, self._scratch, metadata)
        self.close()
        return facts

    def close(self) -> None:
        """Let go of the pieces and hand the scratch file back, committed or not."""
        self._columns = {}
        if self._scratch:
            return_scratch(self._scratch)
            self._scratch = None


def _copy(pieces: _Pieces, scratch: Scratch | None, file: Writer) -> None:
    for piece in pieces.pieces:
        if not isinstance(piece, tuple):
            file.write(piece)
        elif scratch:
            file.copy_range(scratch, *piece)


def _write_safetensors(
    store: Store, name: str, columns: dict[str, _Pieces], scratch: Scratch | None, metadata: dict[str, str]
) -> tuple[FileFacts, ...]:
    hashes = np.array([value for pieces in columns.values() for value in pieces.hashes], dtype="<u8")
    header: dict[str, Any] = {"__metadata__": metadata}
    end = hashes.nbytes
    header[CHECKSUMS] = {"dtype": "U64", "shape": [len(hashes)], "data_offsets": [0, end]}
    for column, pieces in columns.items():
        offsets = [end, end := end + pieces.bytes]
        header[column] = {"dtype": _SAFETENSORS_DTYPES[pieces.dtype], "shape": pieces.shape, "data_offsets": offsets}
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    head = len(text).to_bytes(8, "little") + text
    with store.commit(f"{name}.safetensors") as file:
        file.write(head)
        file.write(hashes.tobytes())
        for pieces in columns.values():
            _copy(pieces, scratch, file)
    return (FileFacts(f"{name}.safetensors", len(head) + end, digest(head, hashes.tobytes())),)


def _write_npy(
    store: Store, name: str, columns: dict[str, _Pieces], scratch: Scratch | None, metadata: dict[str, str]
) -> tuple[FileFacts, ...]:
    facts, every = [], [np.array(pieces.hashes, dtype="<u8") for pieces in columns.values()]
    for (column, pieces), hashes in zip(columns.items(), every, strict=True):
        head = npy_header(pieces.dtype, pieces.shape)
        with store.commit(npy_name(name, column)) as file:
            file.write(head)
            _copy(pieces, scratch, file)
        facts.append(FileFacts(npy_name(name, column), len(head) + pieces.bytes, digest(head, hashes.tobytes())))
    facts.append(commit_file(store, f"{name}.checksums.json", checksum_table(list(columns), every, metadata)))
    return tuple(facts)


def checksum_table(columns: list[str], hashes: list[np.ndarray[Any, Any]], metadata: dict[str, str]) -> bytes:
    """The file beside .npy files: the columns, and the xxh3 of every block of each in order, packed."""
    every = base64.b64encode(b"".join(each.tobytes() for each in hashes)).decode()
    return json.dumps({**metadata, "columns": columns, "checksums": every}).encode() + b"\n"


def npy_name(name: str, column: str) -> str:
    """`train/00000-of-00004.rtt.npy`; characters that file systems dislike are percent-encoded.

    So is a dot in a field's name: field `a.valid` and the validity of field `a` are two files.
    """
    parts = [urllib.parse.quote(part, safe=" ").replace(".", "%2E") for part in column.split("/")]
    return f"{name}.{'.'.join(parts)}.npy"


def npy_header(dtype: str, shape: list[int]) -> bytes:
    """Version 1.0, padded to 64 bytes as numpy does, so that data is aligned."""
    descr = np.dtype(dtype).newbyteorder("<").str
    shape_text = f"({shape[0]},)" if len(shape) == 1 else "(" + ", ".join(map(str, shape)) + ")"
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape_text}, }}"
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode("latin1")


class Column:
    """A mapped column. `read` checks the blocks it touches, each once."""

    def __init__(self, file: str, name: str, array: np.ndarray[Any, Any], hashes: np.ndarray[Any, Any]) -> None:
        self.file = file
        self.name = name
        self.array = array
        self._row_bytes = array.itemsize * math.prod(array.shape[1:])
        self._hashes = hashes
        self.checked = np.zeros(len(hashes), dtype=bool)  # one per block; the loader's kernels read it too

    def __len__(self) -> int:
        return len(self.array)

    @cached_property
    def _bytes(self) -> memoryview:
        return self.array.reshape(-1).view(np.uint8).data if self.array.size else memoryview(b"")

    @property
    def mapped(self) -> mmap.mmap | None:
        """The map it is a view of."""
        owner: Any = self.array
        while isinstance(owner, np.ndarray):
            owner = owner.base
        return owner.obj if isinstance(owner, memoryview) and isinstance(owner.obj, mmap.mmap) else None

    def read(self, start: int, stop: int) -> np.ndarray[Any, Any]:
        self.check(start, stop)
        return self.array[start:stop]

    def check(self, start: int, stop: int) -> None:
        for block in self.damaged(start, stop):
            raise damaged_block(self.file, self.name, block)

    def damaged(self, start: int, stop: int) -> Iterator[int]:
        """Numbers of the blocks under rows `start` to `stop` whose bytes are not the ones written."""
        if stop <= start:
            return
        first, last = start * self._row_bytes // BLOCK, -(-stop * self._row_bytes // BLOCK)
        for block in np.flatnonzero(~self.checked[first:last]) + first:
            if not self._is_intact(block):
                yield int(block)

    def check_block(self, block: int) -> None:
        if not self.checked[block] and not self._is_intact(block):
            raise damaged_block(self.file, self.name, block)

    def _is_intact(self, block: int) -> bool:
        data = self._bytes[block * BLOCK : (block + 1) * BLOCK]
        intact = xxhash.xxh3_64_intdigest(data) == int(self._hashes[block])
        self.checked[block] |= intact
        return bool(intact)


def damaged_block(file: str, column: str, block: int) -> IntegrityError:
    return IntegrityError(
        f"block {block} of column {column!r} is damaged: its bytes differ from the bytes that were written",
        where=f"{file}, column {column!r}, bytes {block * BLOCK:,} to {(block + 1) * BLOCK:,} of it",
        next_step="delete that file and run the job again: its tasks are done again. Then check the disk",
    )


def damaged_file(file: str, reason: str, do: str = "delete that file and run the job again") -> IntegrityError:
    return IntegrityError(
        f"{file} {reason}",
        where=f"{file}, header (block 0 of the file)",
        next_step=f"{do}: its tasks are done again. Then check the disk",
    )


def check_size(store: Store, file: FileFacts) -> None:
    size = store.size(file.file)
    if size < 0:
        raise damaged_file(file.file, "is missing", "run the job again")
    if size != file.bytes:
        raise damaged_file(file.file, f"has {size:,} bytes, {file.bytes:,} were written")


def check_file(store: Store, file: FileFacts) -> None:
    """Every byte of a file whose digest is that of all its bytes is the one that was written."""
    check_size(store, file)
    if file_digest(store.open(file.file)) != file.digest:
        raise damaged_file(file.file, "is not the file that was written")


def file_digest(file: BinaryIO) -> str:
    """The digest of a whole file, read a piece at a time; it is closed then."""
    hasher = xxhash.xxh3_128()
    with file:
        while data := file.read(_AT_ONCE):
            hasher.update(data)
    return str(hasher.hexdigest())


def is_columns(files: tuple[FileFacts, ...]) -> bool:
    return files[0].file.endswith((".safetensors", ".npy", ".checksums.json"))


def open_columns(store: Store, files: tuple[FileFacts, ...]) -> dict[str, Column]:
    """Map the columns of one shard. Sizes, headers and checksums are held against the manifest's facts."""
    if files[0].file.endswith(".safetensors"):
        return _open_safetensors(store, files[0])
    return _open_npy(store, files)


def _map(store: Store, facts: FileFacts) -> memoryview:
    """Map a file, and hold its size against the manifest: that of the map, without another call per file."""
    try:
        mapped = store.map(facts.file)
    except (FileError, ValueError):  # no such file, or an empty one
        check_size(store, facts)
        raise
    if len(mapped) != facts.bytes:
        check_size(store, facts)
    return mapped


def _open_safetensors(store: Store, facts: FileFacts) -> dict[str, Column]:
    mapped = _map(store, facts)
    length = int.from_bytes(mapped[:8], "little")
    if length > len(mapped) - 8:
        raise damaged_file(facts.file, f"claims a header of {length:,} bytes, more than the file has")
    data = mapped[8 + length :]
    try:
        header = json.loads(bytes(mapped[8 : 8 + length]))
        end = header[CHECKSUMS]["data_offsets"][1]
        found = digest(mapped[: 8 + length], data[:end])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise damaged_file(facts.file, "has a header that cannot be read") from error
    if found != facts.digest:
        raise damaged_file(facts.file, "has a header or checksum table other than the one that was written")
    hashes = np.frombuffer(data[:end], dtype="<u8")
    columns, first = {}, 0
    for column, entry in header.items():
        if column in ("__metadata__", CHECKSUMS):
            continue
        start, stop = entry["data_offsets"]
        array = np.frombuffer(data[start:stop], dtype="<" + _NUMPY_DTYPES[entry["dtype"]]).reshape(entry["shape"])
        blocks = -(-(stop - start) // BLOCK)
        columns[column] = Column(facts.file, column, array, hashes[first : first + blocks])
        first += blocks
    return columns


def _open_npy(store: Store, files: tuple[FileFacts, ...]) -> dict[str, Column]:
    check_size(store, files[-1])
    table = store.read(files[-1].file)
    if digest(table) != files[-1].digest:
        raise damaged_file(files[-1].file, "is not the checksum table that was written")
    facts = json.loads(table)
    packed = facts["checksums"]  # a list of numbers in datasets that were made before arrays were
    hashes = np.array(packed, "<u8") if isinstance(packed, list) else np.frombuffer(base64.b64decode(packed), "<u8")
    columns, first = {}, 0
    for column, file in zip(facts["columns"], files, strict=False):
        mapped = _map(store, file)
        head = 10 + int.from_bytes(mapped[8:10], "little")
        blocks = -(-(file.bytes - head) // BLOCK)
        own = hashes[first : first + blocks]
        if digest(mapped[:head], own.tobytes()) != file.digest:
            raise damaged_file(file.file, "has a header other than the one that was written")
        array = _npy_array(mapped, head)
        columns[column] = Column(file.file, column, array, own)
        first += blocks
    return columns


def _npy_array(mapped: memoryview, head: int) -> np.ndarray[Any, Any]:
    import ast

    header = ast.literal_eval(bytes(mapped[10:head]).decode("latin1"))
    array = np.frombuffer(mapped[head:], dtype=header["descr"]).reshape(header["shape"])
    return array.view("u1") if array.dtype == bool else array  # as safetensors files have it
