"""Costs: short trial runs of a job (points) -> memory and time of its passes, and growth of their output. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

STEEP = 8.0  # bytes per batch byte, where data are too few to measure it: more than any built-in stage was seen to take
RECORD_ROWS = 4  # what a record costs that rows are gathered into, in rows: LOG.md
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
    busy_seconds: float = 0.0  # of cores; of a user's function, which may wait for something, seconds that pass
    parts: int = 0  # bytes written on the way to a format of one file per split
    rows_bytes: int = 0  # of `written`, what belongs to rows, and what to dictionaries; the rest belongs to records
    dictionary_bytes: int = 0
    is_of_giants: bool = False  # which are larger than any batch, and were measured by how they begin

    @property
    def units(self) -> int:
        return self.rows + RECORD_ROWS * self.given

    def of_giants(self, usual_rows: float, every_row: float) -> Point:
        """Count giant rows as rows of the usual size, at most as many as there are: few rows cost that much."""
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


SLICES = "slices"  # the word of passes that read the input; what was not measured costs as much


def seconds_of(points: Sequence[Point]) -> float:
    """Seconds of a core per row, by what the largest point takes more than the least: to open a file and find it costs
    what most of a small batch costs, and is no part of a long task. A record made of rows counts as `RECORD_ROWS`."""
    least, most = points[0], points[-1]
    if most.rows > 2 * least.rows and most.busy_seconds > least.busy_seconds:
        return (most.busy_seconds - least.busy_seconds) / (most.units - least.units)
    return most.busy_seconds / max(most.units, 1)


@dataclass(frozen=True)
class Measurement:
    """Bytes a worker holds before a task, what a task adds (fixed, and per byte of its batches), and its speed."""

    worker_bytes: int
    fixed_bytes: int
    bytes_per_batch_byte: float
    row_seconds: float  # of a core; see `seconds`
    output_row_bytes: float  # written per row read: what filters drop is in it
    given_per_row: float = 1.0  # rows that reach the sink, per row read

    def seconds(self, rows: float, given: float | None = None) -> float:
        """Seconds of a core for so many rows, of which so many rows or records reach the sink."""
        given = rows * self.given_per_row if given is None else given
        return self.row_seconds * (rows + RECORD_ROWS * given)

    def task_bytes(self, batch_bytes: int) -> int:
        return int(self.fixed_bytes + self.bytes_per_batch_byte * batch_bytes)


def measurement_of(points: Sequence[Point], reserved: int) -> Measurement:
    """The line through the points, and the speed and output of the last. `reserved` is held before any of them."""
    last = points[-1]
    return Measurement(
        worker_bytes=reserved,
        fixed_bytes=max(0, int(line(points, 0))),
        bytes_per_batch_byte=slope(points),
        row_seconds=seconds_of(points),
        output_row_bytes=last.written / max(last.rows, 1),
        given_per_row=last.given / max(last.rows, 1),
    )


@dataclass(frozen=True)
class Measured:
    """The cost of each kind of pass, and how the output of an exchange grows."""

    costs: Mapping[str, Measurement]
    spilled_row_bytes: float = 0.0  # decoded, of a row in a bucket
    growth: Growth | None = None
    parts_per_output_byte: float = 0.0  # written on the way to a format of one file per split
    assumed: bool = False  # not measured at all: the job is small
    name: str = ""  # fingerprint of what was measured, and where
    remembered: bool = False  # measured by an earlier command

    def of(self, word: str) -> Measurement:
        return self.costs.get(word) or self.slices

    @property
    def slices(self) -> Measurement:
        return self.costs[SLICES]

    def records(self, rows: int) -> float:
        """Records that an exchange of all the rows read will make."""
        return self.growth.records_of(rows * self.slices.given_per_row) if self.growth else 0.0

    def output_bytes(self, rows: int, buckets: int) -> int:
        """Bytes that an exchange of all the rows read will write."""
        return int(self.growth.bytes_of(rows * self.slices.given_per_row, buckets)) if self.growth else 0


def assume(row_bytes: float, stage_bytes: int) -> Measured:
    """Assumed costs, for a job so small that measuring it in a process would take longer than the job."""
    cost = Measurement(
        worker_bytes=0,
        fixed_bytes=(32 << 20) + stage_bytes,
        bytes_per_batch_byte=STEEP,
        row_seconds=2e-7,
        output_row_bytes=row_bytes,
    )
    growth = Growth(rows=1, records=1, step=2.0, exponents=(1.0, 1.0), row_bytes=row_bytes, record_bytes=0.0)
    return Measured({SLICES: cost}, row_bytes, growth, parts_per_output_byte=2.0, assumed=True)


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
    """Exponent of the growth of `what` relative to rows, from one point to the next."""
    before, after = getattr(small, what), getattr(large, what)
    if small.rows >= large.rows or not before or not after:
        return 1.0
    return min(1.0, max(0.0, math.log(after / before) / math.log(large.rows / small.rows)))
