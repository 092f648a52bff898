"""Bins: numbers -> a token for the range that each is in."""

from __future__ import annotations

import bisect
import itertools
import math
import struct
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.kinds.kind import Block, Kind, is_plain_number
from penstock.shards.schema import Type

_LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Bins(Kind):
    """`values` are the edges. Bin i holds edge i <= value < edge i + 1, and the last one its upper edge too.

    Markers: one per bin, then missing. A value beyond the edges is in the first or the last bin.
    """

    name = "bins"
    usage = "{'bins': [edges]}, ascending, or 'bins' if a stage of the job has fitted them"
    takes = "integers and floats"

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        return cls(values=tuple(map(float, option))) if _are_edges(option) else None

    @property
    def markers(self) -> int:
        return len(self.values)

    def typical(self, address_bytes: int) -> int:  # noqa: ARG002
        return 1

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_plain_number(column)

    def ordered(self) -> list[tuple[int | bytes, int]]:
        """The bits of each edge."""
        return [(struct.unpack("<q", struct.pack("<d", edge))[0], place) for place, edge in enumerate(self.values)]

    def encode(self, value: Any, version: int | None = None) -> Block:  # noqa: ARG002
        count = len(self.values) - 1
        if value is None:
            return Block(count, noted=counts.NULLS)
        number = float(value)
        if math.isnan(number):
            return Block(count, noted=counts.NOT_A_NUMBER)
        place = bisect.bisect_right(self.values, number, 0, count) - 1  # of the last lower edge that is not above it
        if place < 0:
            return Block(0, noted=counts.TOO_SMALL)
        return Block(place, noted=counts.TOO_LARGE if number > float(self.values[-1]) else None)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return 0

    def decode(self, marker: int, payload: bytes) -> tuple[float, float] | None:  # noqa: ARG002
        """The edges of the bin."""
        if marker == len(self.values) - 1:
            return None
        return float(self.values[marker]), float(self.values[marker + 1])

    @classmethod
    def show(cls, value: Any) -> str:
        low, high = value
        return f"{low:,g} to {high:,g}"


def _are_edges(option: Any) -> bool:
    """Whether these are at least two finite numbers, each above the one before. The last may equal the one before: a
    bin of a single value."""
    if not isinstance(option, Sequence) or isinstance(option, str) or len(option) < 2:
        return False
    if not all(isinstance(each, Real) and not isinstance(each, bool) for each in option):
        return False
    if not all(-_LARGEST <= each <= _LARGEST for each in option):
        return False
    edges = [float(each) for each in option]
    return all(low < high for low, high in itertools.pairwise(edges[:-1])) and edges[-2] <= edges[-1]
