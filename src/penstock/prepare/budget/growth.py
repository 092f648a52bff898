"""Growth: how the output of an exchange grows with its rows, from a few measured points. Pure."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from penstock.prepare.budget.points import Point


@dataclass(frozen=True)
class Growth:
    """Output of an exchange as its rows grow: so much per row, so much per record, and dictionaries.

    Records grow more slowly than rows, the more slowly the more rows there are: `exponents` are those of the last
    two steps, in each of which rows grew by `step`. Every bucket has dictionaries of its own, and they too grow
    more slowly than its rows.
    """

    rows: int
    records: int
    step: float
    exponents: tuple[float, float]
    row_bytes: float
    record_bytes: float
    dictionary_bytes: float = 0.0  # of so many rows as were measured
    dictionary_exponent: float = 1.0

    def bytes_of(self, rows: float, buckets: int) -> float:
        dictionary = self.dictionary_bytes * (rows / buckets / max(self.rows, 1)) ** self.dictionary_exponent
        return float(rows * self.row_bytes + self.records_of(rows) * self.record_bytes + buckets * dictionary)

    def records_of(self, rows: float) -> float:
        before, exponent = self.exponents
        fading = min(1.0, exponent / before) if before > 0 else 1.0
        records, reached = float(self.records), float(self.rows)
        while reached < rows:
            growth = min(self.step, rows / reached)
            exponent *= fading
            records, reached = records * growth**exponent, reached * growth
        return min(records, rows) if rows >= self.rows else self.records * rows / max(self.rows, 1)


def growth_of(points: Sequence[Point]) -> Growth:
    points = [points[0], *points] if len(points) == 1 else points  # of giants there is one
    small, large = points[-2], points[-1]
    exponents = [_exponent(*pair, "given") for pair in itertools.pairwise(points)]
    if large.rows_bytes:
        records = large.written - large.rows_bytes - large.dictionary_bytes
        row_bytes, record_bytes = large.rows_bytes / max(large.rows, 1), records / max(large.given, 1)
    else:  # a format whose records are sealed
        row_bytes, record_bytes = _two_shares(small, large)
    return Growth(
        rows=large.rows,
        records=large.given,
        step=max(2.0, large.rows / max(small.rows, 1)),
        exponents=(exponents[0], exponents[-1]),
        row_bytes=row_bytes,
        record_bytes=record_bytes,
        dictionary_bytes=large.dictionary_bytes,
        dictionary_exponent=_exponent(small, large, "dictionary_bytes"),
    )


def _two_shares(small: Point, large: Point) -> tuple[float, float]:
    """(bytes per row, bytes per record) that explain what both points have written."""
    determinant = small.rows * large.given - large.rows * small.given
    if determinant:
        rows_part = (small.written * large.given - large.written * small.given) / determinant
        records_part = (small.rows * large.written - large.rows * small.written) / determinant
        if rows_part >= 0 and records_part >= 0:
            return rows_part, records_part
    return large.written / max(large.rows, 1), 0.0


def _exponent(small: Point, large: Point, what: str) -> float:
    """With which `what` grows as rows grow from one point to the next."""
    before, after = getattr(small, what), getattr(large, what)
    if small.rows >= large.rows or not before or not after:
        return 1.0
    return min(1.0, max(0.0, math.log(after / before) / math.log(large.rows / small.rows)))
