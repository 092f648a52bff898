"""Token stream: the tokens that tasks have left -> one stream of a split's documents, in order of their positions."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from penstock.base.fingerprint import fingerprint
from penstock.base.stores.store import Store
from penstock.prepare.passes import LedgerRows
from penstock.prepare.passes.text.tokens import CONTENT, COUNTED
from penstock.prepare.rows.part import PartFile, open_part
from penstock.shards.columns import FileFacts
from penstock.shards.packed import TOKENS
from penstock.shards.schema import NUMBERS, Schema

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class TokenPart:
    """Tokens that one task has written: its file, the tokens of each split in it, and a name for their content."""

    file: FileFacts
    tokens: dict[str, int]
    content: str


@dataclass(frozen=True)
class Piece:
    """Some documents of a stream: where their tokens begin in it, how many each has, and the tokens."""

    at: int
    lengths: Array
    tokens: Array

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


def token_dtype(schema: Schema) -> str:
    tokens = next(each.parsed for each in schema if each.name == TOKENS)
    assert tokens.inner
    return f"<{NUMBERS[tokens.inner.name]}"


class Stream:
    """The tokens of a split, over all parts."""

    def __init__(self, store: Store, parts: Sequence[TokenPart], split: str, dtype: str) -> None:
        self._store, self._parts, self._split, self._dtype = store, parts, split, dtype
        self._starts = np.cumsum([0, *(part.tokens.get(split, 0) for part in parts)])
        self.total = int(self._starts[-1])

    def pieces(self, first: int, last: int) -> Iterator[Piece]:
        """Pieces with tokens between `first` and `last`, whole."""
        for number, (start, stop) in enumerate(pairwise(self._starts.tolist())):
            if start < last and stop > first and stop > start:
                part = open_part(self._store, self._parts[number].file)
                yield from self._pieces_of(part, start, first, last)

    def _pieces_of(self, part: PartFile, start: int, first: int, last: int) -> Iterator[Piece]:
        values, offsets = (part.column(self._split, f"{TOKENS}/{name}") for name in ("values", "offsets"))
        at = 0
        for number, (_, view) in enumerate(offsets.read()):
            lengths = np.diff(np.frombuffer(view, "<i8"), prepend=at)
            count = int(lengths.sum())
            if start + at < last and start + at + count > first:
                yield Piece(start + at, lengths, np.frombuffer(values.piece(number), self._dtype))
            at += count
