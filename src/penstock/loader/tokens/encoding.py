"""Encoding: how events become rows of tokens: the fields and their columns, the length of a row, how it is filled."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from penstock.loader.order.order import Fill, Stream
from penstock.loader.tokens.binding import Bound, bind
from penstock.loader.tokens.vocabulary import Vocabulary
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class TokenOptions:
    """Options of load() about events, before their columns are known."""

    vocabulary: Vocabulary
    length: int
    fill: Fill
    augment: bool

    def bind(self, schema: Schema, where: str) -> Encoding:
        bound = bind(self.vocabulary, schema, where)
        return Encoding(bound.vocabulary, self.length, self.fill, self.augment, bound)


@dataclass(frozen=True)
class Encoding(TokenOptions):
    """Options with every width of the vocabulary decided, and the columns that it is read from."""

    bound: Bound

    @property
    def slots(self) -> list[str]:
        """Names of the columns that are read, and one of the loader's own per field, for what its texts stand for."""
        return [*self.bound.columns, *map(parsed_slot, range(len(self.bound.fields)))]

    def describe(self, streams: tuple[Stream, ...]) -> dict[str, Any]:
        """Settings that decide the rows, for the recipe."""
        draws, vocabulary = [stream.draws for stream in streams], asdict(self.vocabulary)
        facts = {"length": self.length, "fill": self.fill, "augment": self.augment}
        return {**facts, "draws": draws, "vocabulary": vocabulary}


def parsed_slot(field: int) -> str:
    return f"/parsed/{field}"  # no column's name begins with a slash
