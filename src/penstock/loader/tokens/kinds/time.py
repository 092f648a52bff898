"""Time: timestamps of events -> whole seconds, absolute or since the event before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import Block, Kind
from penstock.shards.schema import Type

_ABSOLUTE, _SHORT, _LONG = range(3)


@dataclass(frozen=True)
class Time(Kind):
    """Markers: absolute, short delta, long delta."""

    name = "time"
    usage = "'time', without an option"
    takes = "timestamps of events (a list per record)"
    smallest = 0
    is_time = True
    absent = "no time"
    markers = 3

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 2

    def fits(self, column: Type, of_events: bool) -> bool:
        return column.name == "timestamp" and of_events

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        """Encode whole seconds with no event before."""
        return self.encode_after(value, None, 1)

    def encode_after(self, ticks: int, last_ticks: int | None, ticks_a_second: int) -> Block:
        """The difference is taken before it is rounded down; no difference is negative."""
        if last_ticks is not None and ticks < last_ticks:
            return Block(_SHORT, bytes(1), counts.GOING_BACK)
        difference = None if last_ticks is None else (ticks - last_ticks) // ticks_a_second
        if difference is None or difference >= 2**32:
            return Block(_ABSOLUTE, (ticks // ticks_a_second).to_bytes(8, "big", signed=True))
        return Block(_SHORT, bytes([difference])) if difference < 256 else Block(_LONG, difference.to_bytes(4, "big"))

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return (8, 1, 4)[marker]

    def decode(self, marker: int, payload: bytes) -> tuple[int, bool]:
        """(seconds, whether they are absolute)."""
        return int.from_bytes(payload, "big", signed=marker == _ABSOLUTE), marker == _ABSOLUTE

    @classmethod
    def show(cls, value: Any) -> str:
        return str(value)
