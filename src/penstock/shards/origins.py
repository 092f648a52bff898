"""Origins: the column `_origin` of a dataset -> the file and the position that each document or sample came from.

An origin is one int64: the number of a piece of the input (artifacts/origins.json), and in the lowest `shift` bits the
position in its file. Rows of packed tokens hold one per segment, other rows hold one. Beside it, `_origin_hash` has the
hash of each document's text as the input has it: xxh3 with 64 bits, of UTF-8.
"""

import json
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import xxhash

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.shards.columns import Column, damaged_file
from penstock.shards.manifest import Manifest, read_artifact
from penstock.shards.schema import Field, Schema

ORIGIN, HASH = "_origin", "_origin_hash"
# What a job with near_dedup leaves: a column of `act: mark`, the documents that were removed, and what was found.
SURVIVOR, DUPLICATES, NEAR_SUMMARY = "near_duplicate_of", "duplicates", "artifacts/near_duplicates.json"
NO_ORIGINS = "prepare it again with `provenance: true`; a record of `group` is made of many rows, and has no origin"
TABLE = "artifacts/origins.json"
_BITS = 63  # of an int64 without its sign
Array = np.ndarray[Any, Any]


class Piece(NamedTuple):
    """A piece of the input: its source, its file, and the position of its first row."""

    source: int
    file: str
    first: int


class Origin(NamedTuple):
    """Place that a document or sample came from. `file` is relative to the input of its source, counted from 0.

    Sources are the inputs of the job. An input that is a dataset with origins counts as the inputs of its own job.
    """

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
    """The pieces of a dataset's input, by number; and its sources, where they are not the inputs of the job."""

    pieces: tuple[Piece, ...]
    sources: tuple[Mapping[str, Any], ...] | None = None  # options of each, as in the manifest

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
        firsts = self._firsts[origin.source, origin.file]
        return firsts[bisect_right(firsts, origin.position) - 1]

    @cached_property
    def _firsts(self) -> dict[tuple[int, str], list[int]]:
        """First positions of all pieces of a file, in order."""
        found: dict[tuple[int, str], list[int]] = {}
        for piece in sorted(self.pieces, key=lambda each: each.first):
            found.setdefault((piece.source, piece.file), []).append(piece.first)
        return found

    def encode(self) -> bytes:
        """One line per piece: people search for names in it."""
        lines = ",\n".join(json.dumps(list(piece), ensure_ascii=False) for piece in self.pieces)
        sources = "" if self.sources is None else f', "sources": {json.dumps(self.sources, ensure_ascii=False)}'
        return f'{{"shift": {self.shift}, "pieces": [\n{lines}\n]{sources}}}\n'.encode()

    @staticmethod
    def decode(data: bytes) -> "Origins":
        facts = json.loads(data)
        sources = tuple(facts["sources"]) if "sources" in facts else None
        found = Origins(tuple(Piece(*each) for each in facts["pieces"]), sources)
        if found.encode() != data:
            raise damaged_file(TABLE, "is not the file that was written")
        return found


def has_origins(schema: Schema) -> bool:
    return any(field.name == ORIGIN for field in schema)


def has_hashes(schema: Schema) -> bool:
    """Whether the texts of the documents are known by their hashes."""
    return has_origins(schema) and any(field.name == HASH for field in schema)


def origin_columns(schema: Schema) -> tuple[str, ...]:
    """Names of the columns that say where rows came from."""
    return ((ORIGIN, HASH) if has_hashes(schema) else (ORIGIN,)) if has_origins(schema) else ()


def with_origins(schema: Schema, columns: tuple[str, ...], per_segment: bool = False) -> Schema:
    """The columns, and behind them those of origins."""
    types = {ORIGIN: "int64", HASH: "uint64"}
    return (*schema, *(Field(name, f"list<{types[name]}>" if per_segment else types[name]) for name in columns))


def without_origins(schema: Schema) -> Schema:
    """The columns that are data."""
    own = origin_columns(schema)
    return tuple(field for field in schema if field.name not in own)


def content_hash(text: bytes) -> int:
    """Hash of a document's text in UTF-8. Part of the format: lists of excluded documents have it."""
    return xxhash.xxh3_64_intdigest(text)


def read_origins(store: Store, manifest: Manifest) -> Origins | None:
    """None where the job kept no provenance."""
    data = read_artifact(store, manifest, TABLE) if has_origins(manifest.schema) else None
    return None if data is None else Origins.decode(data)


def origin_list(columns: Mapping[str, Column], record: int, of: str = ORIGIN) -> list[int]:
    """Origins of one row of a shard, or their hashes: one per segment, or one."""
    name, low, high = of, record, record + 1
    if of not in columns:
        name = f"{of}/values"
        low, high = columns[f"{of}/offsets"].read(record, record + 2).tolist()
    found: list[int] = columns[name].read(low, high).tolist()
    return found
