"""Histogram: whole numbers, a batch at a time -> counts in buckets whose bounds do not depend on the batches.

Values below 16 have a bucket each. Above, every power of two is cut in eight: 16-17, 18-19, ..., 32-35, and so on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

_EXACT = 16
_PARTS = 8  # of a power of two
_LEVELS = 60  # powers of two above the exact values: int64 has no more
_MOST_BARS = 32
_POWERS = np.array([1 << bit for bit in range(63)], "i8")
Bucket = dict[str, int]  # least, most, count


@dataclass
class Histogram:
    """Counts of whole numbers from 0 on, with their exact sum and bounds."""

    counts: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(_EXACT + _PARTS * _LEVELS, "i8"))
    count: int = 0
    total: int = 0
    least: int | None = None
    greatest: int | None = None

    def add(self, values: np.ndarray[Any, Any]) -> None:
        if not len(values):
            return
        values = values.astype("i8")
        np.add.at(self.counts, _numbers(values), 1)
        least, greatest = int(values.min()), int(values.max())
        self.count += len(values)
        # Two halves: the sum of many large values does not fit into 64 bits.
        self.total += (int((values >> 32).sum()) << 32) + int((values & 0xFFFFFFFF).sum())
        self.least = least if self.least is None else min(self.least, least)
        self.greatest = greatest if self.greatest is None else max(self.greatest, greatest)

    def facts(self, smallest: int = 0) -> dict[str, Any]:
        mean = self.total / self.count if self.count else None
        bounds = {"count": self.count, "least": self.least, "greatest": self.greatest, "mean": mean}
        return {**bounds, "buckets": _joined(self.buckets(), smallest)}

    def buckets(self) -> list[Bucket]:
        """From the first that holds a value to the last; wider ones where there would be many."""
        used = np.flatnonzero(self.counts)
        if not len(used):
            return []
        fine = [
            {"least": _start(n), "most": _start(n + 1) - 1, "count": int(self.counts[n])}
            for n in range(int(used[0]), int(used[-1]) + 1)
        ]
        return next(found for parts in (8, 4, 2, 1) if len(found := coarser(fine, parts)) <= _MOST_BARS or parts == 1)


def _joined(buckets: list[Bucket], smallest: int) -> list[Bucket]:
    """The buckets, with those below `smallest` as one."""
    below = [each for each in buckets if each["most"] < smallest]
    if len(below) < 2:
        return buckets
    first = {"least": below[0]["least"], "most": below[-1]["most"], "count": sum(each["count"] for each in below)}
    return [first, *buckets[len(below) :]]


def coarser(buckets: Iterable[Bucket], parts: int = 1) -> list[Bucket]:
    """Buckets put together, `parts` in each power of two, without gaps between the first and the last.

    With one part these are 0, 1, 2-3, 4-7, and so on.
    """
    counts: dict[int, int] = {}
    for bucket in buckets:
        start = _part_start(bucket["least"], parts)
        counts[start] = counts.get(start, 0) + bucket["count"]
    used = [start for start, count in counts.items() if count]
    found, start = [], min(used, default=0)
    while used and start <= max(used):
        end = start + _part_width(start, parts)
        found.append({"least": start, "most": end - 1, "count": counts.get(start, 0)})
        start = end
    return found


def _part_width(value: int, parts: int) -> int:
    return max(1, (1 << value.bit_length() >> 1) // parts)


def _part_start(value: int, parts: int) -> int:
    return value - value % _part_width(value, parts)


def _numbers(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    bits = np.searchsorted(_POWERS, values, side="right") - 1
    shift = np.maximum(bits - 3, 0)
    return np.where(values < _EXACT, values, _EXACT + _PARTS * (bits - 4) + ((values >> shift) & 7))


def _start(number: int) -> int:
    """The least value of a bucket."""
    if number < _EXACT:
        return number
    level, part = divmod(number - _EXACT, _PARTS)
    return (_PARTS + part) << (level + 1)
