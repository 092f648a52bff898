"""Whole: whole numbers -> their bytes; booleans -> a token each."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import MISSING, VALUE, Block, Kind, is_whole
from penstock.shards.schema import NUMBERS, Type

_UNKNOWN = 2


@dataclass(frozen=True)
class Int(Kind):
    """Markers: value, missing. Without a width it is as wide as the column."""

    name = "int"
    usage = "{'int': bytes} with 1, 2, 4 or 8, or 'int'"
    takes = "integers"
    is_number = True
    markers = 2

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        return cls(width=option or 0) if option in (None, 1, 2, 4, 8) else None

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 1 + self.width

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_whole(column)

    def settled(self, column: Type) -> Kind:
        return replace(self, width=self.width or _column_width(column))

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        if value is None:
            return Block(MISSING, noted=counts.NULLS)
        most = 2 ** (8 * self.width - 1) - 1
        nearest = min(max(value, -most - 1), most)
        noted = None if nearest == value else counts.OUT_OF_RANGE
        return Block(VALUE, nearest.to_bytes(self.width, "big", signed=True), noted)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return self.width if marker == VALUE else 0

    def decode(self, marker: int, payload: bytes) -> int | None:
        return None if marker == MISSING else int.from_bytes(payload, "big", signed=True)


def _column_width(column: Type) -> int:
    """Bytes that hold every number of a column, as signed ones; of uint64 all but the largest half."""
    code = NUMBERS[column.name]
    size = int(code[1])
    return min(8, 2 * size) if code[0] == "u" and column.name != "bool" else size


@dataclass(frozen=True)
class Boolean(Kind):
    """Markers: false, true, missing."""

    name = "boolean"
    usage = "'boolean', without an option"
    takes = "booleans"
    markers = 3

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 1

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return column.name == "bool"

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        return Block(_UNKNOWN, noted=counts.NULLS) if value is None else Block(int(bool(value)))

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return 0

    def decode(self, marker: int, payload: bytes) -> bool | None:  # noqa: ARG002
        return None if marker == _UNKNOWN else bool(marker)
