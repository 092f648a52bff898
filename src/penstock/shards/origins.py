"""Origins: the column `_origin` of a dataset -> the file and the position that each document or sample came from.

An origin is one int64: the number of a piece of the input (artifacts/origins.json), and in the lowest `shift` bits the
position in its file. Rows of tokens hold one per segment, other rows hold one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.shards.columns import Column, damaged_file
from penstock.shards.manifest import Manifest, read_artifact
from penstock.shards.schema import Field, Schema

ORIGIN = "_origin"
TABLE = "artifacts/origins.json"
_BITS = 63  # of an int64 without its sign
Array = np.ndarray[Any, Any]


class Piece(NamedTuple):
    """A piece of the input: its source, its file, and the position of its first row."""

    source: int
    file: str
    first: int


class Origin(NamedTuple):
    """Place that a document or sample came from. `file` is relative to the input of its source, counted from 0."""

    source: int
    file: str
    position: int

    def __str__(self) -> str:
        return f"{self.file}:{self.position}"


def shift_of(pieces: int) -> int:
    """Bits that are left for positions beside the numbers of so many pieces."""
    return _BITS - max(1, (pieces - 1).bit_length())


def encode_origins(piece_numbers: Array, positions: Array, shift: int) -> Array:
    if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < 1 << shift:
        raise PenstockError(
            f"position {int(positions.max()):,} does not fit into an origin, which has {shift} bits for it",
            next_step="provenance: false, or fewer files per job",
        )
    found: Array = (piece_numbers.astype("i8") << shift) | positions.astype("i8")
    return found


@dataclass(frozen=True)
class Origins:
    """The pieces of a dataset's input, by number."""

    pieces: tuple[Piece, ...]

    @property
    def shift(self) -> int:
        return shift_of(len(self.pieces))

    def piece_of(self, value: int) -> Piece:
        return self.pieces[value >> self.shift]

    def of(self, value: int) -> Origin:
        piece = self.piece_of(value)
        return Origin(piece.source, piece.file, value & ((1 << self.shift) - 1))

    def first_of(self, origin: Origin) -> int:
        """First position of the piece that holds a position."""
        own = (each.first for each in self.pieces if (each.source, each.file) == origin[:2])
        return max(first for first in own if first <= origin.position)

    def encode(self) -> bytes:
        """One line per piece: people search for names in it."""
        lines = ",\n".join(json.dumps(list(piece), ensure_ascii=False) for piece in self.pieces)
        return f'{{"shift": {self.shift}, "pieces": [\n{lines}\n]}}\n'.encode()

    @staticmethod
    def decode(data: bytes) -> "Origins":
        found = Origins(tuple(Piece(*each) for each in json.loads(data)["pieces"]))
        if found.encode() != data:
            raise damaged_file(TABLE, "is not the file that was written")
        return found


def has_origins(schema: Schema) -> bool:
    return any(field.name == ORIGIN for field in schema)


def with_origins(schema: Schema, per_segment: bool = False) -> Schema:
    """The columns, and behind them that of origins."""
    return (*schema, Field(ORIGIN, "list<int64>" if per_segment else "int64"))


def without_origins(schema: Schema) -> Schema:
    """The columns that are data."""
    return tuple(field for field in schema if field.name != ORIGIN)


def read_origins(store: Store, manifest: Manifest) -> Origins | None:
    """None where the job kept no provenance."""
    data = read_artifact(store, manifest, TABLE) if has_origins(manifest.schema) else None
    return None if data is None else Origins.decode(data)


def origin_list(columns: Mapping[str, Column], record: int) -> list[int]:
    """Origins of one row of a shard: one per segment, or one."""
    name, low, high = ORIGIN, record, record + 1
    if ORIGIN not in columns:
        name = f"{ORIGIN}/values"
        low, high = columns[f"{ORIGIN}/offsets"].read(record, record + 2).tolist()
    found: list[int] = columns[name].read(low, high).tolist()
    return found
