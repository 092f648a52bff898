"""Category: listed values -> a token each, and one for all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import Block, Kind, is_text, is_whole
from penstock.shards.schema import Type


@dataclass(frozen=True)
class Category(Kind):
    """Markers: one per value, then others."""

    name = "category"
    usage = "{'category': [values]}, all text or all whole numbers, none twice"
    takes = "text or integers, like its values"
    text_bytes = 4

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        return cls(values=tuple(option)) if _are_values(option) else None

    @property
    def markers(self) -> int:
        return len(self.values) + 1

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 1

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_text(column) if isinstance(self.values[0], str) else is_whole(column)

    def ordered(self) -> list[tuple[int | bytes, int]]:
        if isinstance(self.values[0], str):
            return sorted((str(value).encode(), place) for place, value in enumerate(self.values))
        return sorted((_as_i8(int(value)), place) for place, value in enumerate(self.values))

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        """Encode a category. Text is compared by its UTF-8 bytes."""
        known = [each.encode() if isinstance(each, str) else each for each in self.values]
        if value in known:
            return Block(known.index(value))
        return Block(len(known), noted=counts.NULLS if value is None else counts.OTHER_CATEGORY)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return 0

    def decode(self, marker: int, payload: bytes) -> Any:  # noqa: ARG002
        return self.values[marker] if marker < len(self.values) else None


def _are_values(option: Any) -> bool:
    if not isinstance(option, Sequence) or isinstance(option, str) or not option or len(set(option)) != len(option):
        return False
    return all(type(value) is str for value in option) or all(type(value) is int for value in option)


def _as_i8(value: int) -> int:
    """The number as a kernel reads it: the upper half of uint64 becomes negative."""
    return value - 2**64 if value >= 2**63 else value
