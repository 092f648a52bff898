"""Costs: what passes were measured to hold and take, by the word that they are measured as. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from penstock.prepare.budget.growth import Growth
from penstock.prepare.budget.points import STEEP, Point, line, slope

SLICES = "slices"  # the word of passes that read the input; what was not measured costs as much


@dataclass(frozen=True)
class Measurement:
    """Bytes a worker holds before a task, what a task adds (fixed, and per byte of its batches), and its speed."""

    worker_bytes: int
    fixed_bytes: int
    bytes_per_batch_byte: float
    rows_per_second: float
    output_row_bytes: float  # written per row read: what filters drop is in it
    given_per_row: float = 1.0  # rows that reach the sink, per row read

    def task_bytes(self, batch_bytes: int) -> int:
        return int(self.fixed_bytes + self.bytes_per_batch_byte * batch_bytes)


def measurement_of(points: Sequence[Point], reserved: int) -> Measurement:
    """The line through the points, and the speed and output of the last. `reserved` is held before any of them."""
    last = points[-1]
    return Measurement(
        worker_bytes=reserved,
        fixed_bytes=max(0, int(line(points, 0))),
        bytes_per_batch_byte=slope(points),
        rows_per_second=max(last.rows, 1) / last.seconds,
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

    def of(self, word: str) -> Measurement:
        return self.costs.get(word) or self.slices

    @property
    def slices(self) -> Measurement:
        return self.costs[SLICES]

    def output_bytes(self, rows: int, buckets: int) -> int:
        """Bytes that an exchange of all the rows read will write."""
        return int(self.growth.bytes_of(rows * self.slices.given_per_row, buckets)) if self.growth else 0


def assume(row_bytes: float, stage_bytes: int) -> Measured:
    """For a job so small that starting a process to measure it would take longer than doing it."""
    cost = Measurement(
        worker_bytes=0,
        fixed_bytes=(32 << 20) + stage_bytes,
        bytes_per_batch_byte=STEEP,
        rows_per_second=1e6,
        output_row_bytes=row_bytes,
    )
    growth = Growth(rows=1, records=1, step=2.0, exponents=(1.0, 1.0), row_bytes=row_bytes, record_bytes=0.0)
    return Measured({SLICES: cost}, row_bytes, growth, parts_per_output_byte=2.0, assumed=True)
