"""Points: short runs of a little of a job, and the line through them: what a batch of another size would take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

STEEP = 8.0  # bytes per batch byte, where data are too few to measure it: more than any built-in stage was seen to take
SECONDS = 2.0  # for one point: a stage so slow that this is not enough is measured on what it did


@dataclass(frozen=True)
class Point:
    """One run of a little of the job: its batch bytes, what the process had grown by, and what it did."""

    batch_bytes: int
    grown: int
    rows: int
    given: int
    written: int
    seconds: float
    parts: int = 0  # bytes written on the way to a format of one file per split
    rows_bytes: int = 0  # of `written`, what belongs to rows, and what to dictionaries; the rest belongs to records
    dictionary_bytes: int = 0
    is_of_giants: bool = False  # which are larger than any batch, and were measured by how they begin

    def of_giants(self, usual_rows: float, every_row: float) -> Point:
        """Count giants as so many rows of the usual size, but no more than there are: not every row costs as much."""
        rows = max(self.rows, round(min(usual_rows, every_row)))
        return replace(self, rows=rows, given=round(self.given / self.rows * rows), is_of_giants=True)


def slope(points: Sequence[Point]) -> float:
    """Bytes per batch byte, by the last two points that differ."""
    growing = _growing(points)
    if len(growing) == 1:
        return STEEP
    small, large = growing[-2:]
    return (large.grown - small.grown) / (large.batch_bytes - small.batch_bytes)


def line(points: Sequence[Point], size: int) -> float:
    """Bytes that a batch of `size` would add."""
    return points[-1].grown + slope(points) * (size - points[-1].batch_bytes)


def is_enough(points: Sequence[Point], size: int, room: int) -> bool:
    """Whether to leave out a batch of `size`: there is no time for it, or it would not fit into `room`."""
    if points and points[-1].is_of_giants:  # read once: it is the same batch whatever its size was to be
        return True
    return len(points) == 2 and (points[-1].seconds > SECONDS / 2 or line(points, size) > room)


def _growing(points: Sequence[Point]) -> list[Point]:
    """Points whose batch is clearly larger than the one before. With little data, every batch holds all of it."""
    kept = [points[0]]
    for point in points[1:]:
        if point.batch_bytes <= 2 * kept[-1].batch_bytes:
            kept.pop()
        kept.append(point)
    return kept
