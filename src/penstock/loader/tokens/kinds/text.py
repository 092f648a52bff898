"""Text: text or binary -> its first bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import MISSING, VALUE, Block, Kind, is_text
from penstock.shards.schema import Type

_USUAL_WIDTH = 32


@dataclass(frozen=True)
class Bytes(Kind):
    """Markers: value, missing. The first byte behind a value is the number of those that follow."""

    name = "bytes"
    usage = "{'bytes': most} from 1 to 255"
    takes = "text or binary"
    markers = 2

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        if option is None:
            return cls(width=_USUAL_WIDTH)
        return cls(width=option) if isinstance(option, int) and 0 < option < 256 else None

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 2 + min(self.width, 8)

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_text(column)

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        if value is None:
            return Block(MISSING, noted=counts.NULLS)
        cut = value[: self.width]
        return Block(VALUE, bytes([len(cut)]) + cut, None if cut == value else counts.CUT)

    def size(self, marker: int, payload: bytes) -> int:
        if marker == MISSING:
            return 0
        if payload and payload[0] > self.width:
            raise ValueError(f"at most {self.width}")
        return 1 + payload[0] if payload else 1

    def decode(self, marker: int, payload: bytes) -> bytes | None:
        return None if marker == MISSING else payload[1:]
