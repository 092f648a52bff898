"""Token stream: the tokens that tasks have left -> one stream of a split's documents, in order of their positions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.fingerprint import fingerprint
from penstock.base.stores.store import Store
from penstock.prepare.passes import LedgerRows
from penstock.prepare.passes.text.tokens import CONTENT, COUNTED
from penstock.prepare.rows.part import PartFile, open_part
from penstock.prepare.stages.text.kept import Kept, Values
from penstock.shards.columns import FileFacts
from penstock.shards.origins import HASH
from penstock.shards.packed import TOKENS

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenPart:
    """Tokens that one task has written: its file, the tokens of each split in it, and a name for their content."""

    file: FileFacts
    tokens: dict[str, int]
    content: str


@dataclass(frozen=True)
class Piece:
    """Some documents of a stream: where their tokens begin in it, how many each has, the tokens and what is beside."""

    at: int
    lengths: Array
    columns: tuple[Values, ...]  # the tokens first
    origins: Array  # a row for each document, with a number for each column that is kept

    @property
    def count(self) -> int:
        return int(self.lengths.sum())

    @property
    def starts(self) -> Array:
        """Start of each document, in the stream."""
        found: Array = self.at + np.cumsum(self.lengths) - self.lengths
        return found


def token_parts(rows: LedgerRows) -> tuple[TokenPart, ...]:
    """The parts that these tasks have written."""
    return tuple(_part(row.spill, row.states) for row in rows if row.spill)


def _part(file: FileFacts, states: Mapping[str, Any]) -> TokenPart:
    counted = states[COUNTED].items()
    tokens = {split: sum(each["tokens"] for each in sources.values()) for split, sources in counted}
    return TokenPart(file, tokens, fingerprint(states[CONTENT]))


class Stream:
    """The tokens of a split and the columns beside them, over all parts."""

    def __init__(
        self,
        store: Store,
        parts: Sequence[TokenPart],
        split: str,
        columns: Sequence[Kept],
        of_origins: Sequence[str] = (),
    ) -> None:
        self._store, self._parts, self._split, self.columns = store, parts, split, tuple(columns)
        self.of_origins = tuple(of_origins)  # names of the columns that say where documents came from
        self._starts = np.cumsum([0, *(part.tokens.get(split, 0) for part in parts)])
        self.total = int(self._starts[-1])

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Pieces with tokens between `first` and `last`, whole."""
        for number, (start, stop) in enumerate(pairwise(self._starts.tolist())):
            if start < last and stop > first and stop > start:
                part = open_part(self._store, self._parts[number].file)
                yield from self._pieces_of(part, start, first, last)

    def with_origins(self, batch: pa.RecordBatch, rows: Array, origins: Array) -> pa.RecordBatch:
        """Packed rows with what is kept of the origin of each segment. `rows` has the row of each segment."""
        ends = np.cumsum(np.bincount(rows, minlength=len(batch)))
        offsets = pa.array(np.concatenate([[0], ends]).astype("i4"))
        for name, values in zip(self.of_origins, origins.T, strict=True):
            own = np.ascontiguousarray(values).view("u8" if name == HASH else "i8")
            batch = batch.append_column(name, pa.ListArray.from_arrays(offsets, pa.array(own)))
        return batch

    def _pieces_of(self, part: PartFile, start: int, first: int, last: int) -> Iterator[Piece]:
        offsets = part.column(self._split, f"{TOKENS}/offsets")
        stored = [(each, part.column(self._split, each.part_column)) for each in self.columns]
        origins = [part.column(self._split, name) for name in self.of_origins]
        at = 0
        for number, (_, view) in enumerate(offsets.read()):
            lengths = np.diff(np.frombuffer(view, "<i8"), prepend=at)
            count = int(lengths.sum())
            if start + at < last and start + at + count > first:
                flat = ((each, np.frombuffer(found.piece(number), each.dtype)) for each, found in stored)
                values = tuple(each.values(values, lengths) for each, values in flat)
                own = [np.frombuffer(found.piece(number), "<i8") for found in origins]
                yield Piece(start + at, lengths, values, np.reshape(own, (len(own), len(lengths))).T)
            at += count
