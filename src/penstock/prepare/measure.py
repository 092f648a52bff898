"""Measure: run a little of the job in a fresh worker, to learn what it costs on this machine, with these data.

Arrow's own sizes cover about half of what a process really grows by, and a user's function may do anything; so the
plan does not compute memory from types, it measures batches of several sizes and draws the line through them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import PlanError
from penstock.base.files import Folder
from penstock.base.memory import give_back_heap, own_memory, peak_watched
from penstock.prepare.ahead import ahead
from penstock.prepare.exchange import Bucket
from penstock.prepare.exchange.spill import SpillFile, read_chunks
from penstock.prepare.fold import Count, Fold, Tap
from penstock.prepare.growth import Growth, Point, dissected, growth_of
from penstock.prepare.joining import joined
from penstock.prepare.rows import Rows
from penstock.prepare.sample_sinks import DirectInto, PartsInto
from penstock.prepare.shortening import is_giant, shortened
from penstock.prepare.sinks import Produced, Rejected, ShardsInto, SpillInto
from penstock.prepare.slices import Slice
from penstock.prepare.sources import readable
from penstock.prepare.stage import Fit
from penstock.prepare.task import FromBuckets, FromSlices, Recipe, reduced
from penstock.prepare.text_sinks import KeysInto
from penstock.shards.arrayrecord import FORMAT
from penstock.shards.arrayrecord_file import merge_parts

BATCH_BYTES = 4 << 20
_BATCHES = 3
_BEGINNING_BYTES = 1 << 20  # of a giant's text, which are measured: a slow tokenizer takes a second or two for them
_STEEP = 8.0  # bytes a batch byte, where data are too few to measure it: more than any built-in stage was seen to take
_SECONDS = 2.0  # a stage so slow that this is not enough is measured on what it did


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


@dataclass(frozen=True)
class Measured:
    """What passes over slices cost, and those over buckets, where there are any."""

    slices: Measurement
    hashing: Measurement | None = None  # of passes that only take keys, where there are any
    buckets: Measurement | None = None
    spilled_row_bytes: float = 0.0  # decoded, of a row in a bucket
    growth: Growth | None = None
    parts_per_output_byte: float = 0.0  # put down on the way to a format of one file a split
    assumed: bool = False  # not measured at all: the job is small

    def of(self, reads_buckets: bool) -> Measurement:
        if not reads_buckets:
            return self.slices
        assert self.buckets
        return self.buckets

    def output_bytes(self, rows: int, buckets: int) -> int:
        """What an exchange of all the rows read will write."""
        return int(self.growth.bytes_of(rows * self.slices.given_per_row, buckets)) if self.growth else 0


def assume(row_bytes: float, tokenizes: bool) -> Measured:
    """For a job so small that starting a process to measure it would take longer than doing it."""
    cost = Measurement(
        worker_bytes=0,
        fixed_bytes=(384 if tokenizes else 32) << 20,  # a tokenizer of 150,000 entries takes 250 MB
        bytes_per_batch_byte=_STEEP,
        rows_per_second=1e6,
        output_row_bytes=row_bytes,
    )
    growth = Growth(rows=1, records=1, step=2.0, exponents=(1.0, 1.0), row_bytes=row_bytes, record_bytes=0.0)
    return Measured(cost, cost, cost, row_bytes, growth, parts_per_output_byte=2.0, assumed=True)


def measure(
    recipes: tuple[Recipe, ...], slices: tuple[Slice, ...], batch_bytes: int, row_bytes: float, room: int
) -> Measured:
    """Run up to three batches of each of three sizes of what reads slices, then of what reads buckets.

    The largest is left out where there is no time for it, or where the smaller two say that it would not fit into
    `room`. `recipe.root` is a folder that will be thrown away.
    """
    reserved = own_memory().counted
    hashing = [recipe for recipe in recipes if isinstance(recipe.sink, KeysInto)]
    others = [recipe for recipe in recipes if not isinstance(recipe.sink, KeysInto)]
    points = _measure_slices(hashing[0], slices, batch_bytes, row_bytes, room, reserved) if hashing else None
    hashed = _measurement(points, reserved) if points else None
    if hashed:
        give_back_memory()
    recipe = _bound(_trial(others[0]), slices)
    read = _measure_slices(recipe, slices, batch_bytes, row_bytes, room, reserved)
    if not isinstance(recipe.sink, SpillInto):
        return Measured(_measurement(read, reserved), hashed)
    spills = [recipe.sink.name(number) for number in range(len(read))]
    measured = _measure_buckets(others[1], spills, _measurement(read, reserved), room, reserved)
    return replace(measured, hashing=hashed)


def _measure_slices(
    recipe: Recipe, slices: tuple[Slice, ...], batch_bytes: int, row_bytes: float, room: int, reserved: int
) -> list[Point]:
    points: list[Point] = []
    with peak_watched() as peak:
        for number, size in enumerate((batch_bytes // 64, batch_bytes // 8, batch_bytes)):
            if _is_enough(points, size, room):
                break
            ready = sized(recipe, size, row_bytes)
            points.append(_read_some(ready, slices, number, row_bytes, lambda: peak[0] - reserved))
    return points


def _trial(recipe: Recipe) -> Recipe:
    """The recipe with one bucket for all rows, going on where rows are bad."""
    assert isinstance(recipe.source, FromSlices)
    recipe = replace(recipe, source=replace(recipe.source, on_bad_input="set_aside"))
    if isinstance(recipe.sink, SpillInto):
        return replace(recipe, sink=replace(recipe.sink, buckets=1))
    if isinstance(recipe.sink, DirectInto):  # which wants all rows of a slice; parts cost the same
        return replace(recipe, sink=PartsInto(recipe.sink.schema, tuple(recipe.sink.layout), 1, ()))
    return recipe


def _is_enough(points: list[Point], size: int, room: int) -> bool:
    if points and points[-1].is_of_giants:  # read once: it is the same batch whatever its size was to be
        return True
    return len(points) == 2 and (points[-1].seconds > _SECONDS / 2 or _line(points, size) > room)


def _measurement(points: list[Point], reserved: int) -> Measurement:
    last = points[-1]
    return Measurement(
        worker_bytes=reserved,
        fixed_bytes=max(0, int(_line(points, 0))),
        bytes_per_batch_byte=_slope(points),
        rows_per_second=max(last.rows, 1) / last.seconds,
        output_row_bytes=last.written / max(last.rows, 1),
        given_per_row=last.given / max(last.rows, 1),
    )


def _growing(points: list[Point]) -> list[Point]:
    """Those that are clearly larger than the one before: with little data, all batches hold all of it."""
    kept = points[:1]
    for point in points[1:]:
        if point.batch_bytes <= 2 * kept[-1].batch_bytes:
            kept.pop()
        kept.append(point)
    return kept


def _slope(points: list[Point]) -> float:
    growing = _growing(points)
    if len(growing) == 1:
        return _STEEP
    small, large = growing[-2:]
    return (large.grown - small.grown) / (large.batch_bytes - small.batch_bytes)


def _line(points: list[Point], size: int) -> float:
    """What a batch of `size` would add, by the last two points."""
    return points[-1].grown + _slope(points) * (size - points[-1].batch_bytes)


def _read_some(
    recipe: Recipe, slices: tuple[Slice, ...], spill: int, row_bytes: float, grown: Callable[[], int]
) -> Point:
    """A task cut short, into a folder that is thrown away."""
    started = time.perf_counter()
    read, more_seconds = 0, 0.0
    whole_bytes, read_bytes = 1, 1  # of giant texts the beginnings are taken, and cost what a part of them would
    with _cut_short(recipe, spill) as (fold, take, produced):
        for number, whole in enumerate(_batches(recipe, slices)):
            begun = time.perf_counter()
            rows = _beginning(whole, recipe)
            read += len(rows) + sum(aside.count for aside in rows.set_aside)
            take(fold(fold.count(rows, len(rows), Count())))
            whole_bytes, read_bytes = whole_bytes + whole.batch.nbytes, read_bytes + rows.batch.nbytes
            times = whole.batch.nbytes / max(rows.batch.nbytes, 1)
            more_seconds += (times - 1) * (time.perf_counter() - begun)
            if number + 1 == _BATCHES or time.perf_counter() > started + _SECONDS:
                break
    given = list(fold.counts.values())[-1].step("", "").given if fold.counts else read
    written = int(_bytes_of(produced) * whole_bytes / read_bytes)
    seconds = time.perf_counter() - started + more_seconds
    point = Point(recipe.batch_bytes, grown(), read, given, written, seconds)
    return point if read_bytes == whole_bytes else _of_giants(point, whole_bytes, slices, row_bytes)


def _of_giants(point: Point, whole_bytes: int, slices: tuple[Slice, ...], row_bytes: float) -> Point:
    """Count giants as so many rows of the usual size, but as no more than there are: not every row will cost as much."""
    every = sum(piece.rows if piece.rows >= 0 else piece.bytes / row_bytes for piece in slices)
    rows = max(point.rows, round(min(whole_bytes / row_bytes, every)))
    return replace(point, rows=rows, given=round(point.given / point.rows * rows), is_of_giants=True)


def _beginning(rows: Rows, recipe: Recipe) -> Rows:
    """Cut giant texts to their beginning, unless a user's function is given the rows."""
    if recipe.code or not is_giant(rows.batch):
        return rows
    return rows.with_batch(shortened(rows.batch, _BEGINNING_BYTES))


@contextmanager
def _cut_short(recipe: Recipe, number: int) -> Iterator[Any]:
    """(fold, what takes its rows, what was produced): a task's inside, without its ledger."""
    folder = Folder(recipe.root)
    produced: list[Produced] = []
    with ExitStack() as stack:
        rejected = Rejected(folder, "rejected", stack, writes=False)
        sink = recipe.open_sink(folder, number, stack)
        yield Fold(recipe.open_stages(folder, number), recipe.taps(), rejected), sink.write, produced
        produced.append(sink.finish())
    folder.release_scratch()


def _bytes_of(produced: list[Produced]) -> int:
    """Of every file once: the splits of a part are in one."""
    files = {file for facts in produced[0].shards.values() for file in facts.files}
    files |= {produced[0].spill} if produced[0].spill else set()
    return sum(file.bytes for file in files)


def _measure_buckets(recipe: Recipe, spills: list[str], read: Measurement, room: int, reserved: int) -> Measured:
    """Gather what the measurements before have spilled, the small ones and the large one."""
    give_back_memory()
    later = [number for number, stage in recipe.stages.items() if stage.uses_artifact]
    recipe = replace(recipe, fits=(*recipe.fits, *later))  # what needs an artifact is passed over
    points: list[Point] = []
    with peak_watched() as peak:
        for number, name in enumerate(spills):
            size = _decoded_bytes(recipe.root, name)
            if _is_enough(points, size, room):
                break
            points.append(_gather_some(recipe, number, name, size, lambda: peak[0] - reserved))
    last = points[-1]
    return Measured(
        slices=read,
        buckets=_measurement(points, reserved),
        spilled_row_bytes=last.batch_bytes / max(last.rows, 1),
        growth=growth_of(points),
        parts_per_output_byte=last.parts / max(last.written, 1),
    )


def _gather_some(recipe: Recipe, number: int, spill: str, size: int, grown: Callable[[], int]) -> Point:
    started = time.perf_counter()
    assert isinstance(recipe.source, FromBuckets)
    recipe = replace(recipe, source=replace(recipe.source, spills=(spill,)))
    first = Count()
    with _cut_short(recipe, number) as (fold, take, produced):
        for rows in reduced(recipe, Bucket(0), size + 1, fold, first, _nobody_watches):
            take(fold(rows))
    seconds = time.perf_counter() - started
    point = Point(size, grown(), first.taken, first.made, _bytes_of(produced), seconds)
    folder, shards = Folder(recipe.root), produced[0].shards
    if isinstance(recipe.sink, ShardsInto) and recipe.sink.container == FORMAT:
        merged = [merge_parts(folder, f"{split}{number}", (part,)) for split, part in shards.items()]
        return replace(point, written=sum(shard.files[0].bytes for shard in merged), parts=point.written)
    return dissected(point, folder, shards)


def _nobody_watches(rows: int, place: str = "", whole: bool = True) -> None: ...


def _decoded_bytes(root: str, spill: str) -> int:
    folder = Folder(root)
    return read_chunks(SpillFile(folder.path(spill)), folder.size(spill), 0).decoded_bytes


def give_back_memory() -> None:
    """Free pages go back to the kernel, so that what comes next is not measured on what came before."""
    pa.default_memory_pool().release_unused()
    give_back_heap()


def _batches(recipe: Recipe, slices: tuple[Slice, ...]) -> Iterator[Rows]:
    assert isinstance(recipe.source, FromSlices)
    reading = recipe.source.reading
    segments = (segment for piece in slices for segment in piece.segments)
    found = joined((rows for segment in segments for rows in readable(segment, reading)), reading)
    for rows in ahead(found) if recipe.threads > 1 else found:
        assert isinstance(rows, Rows)
        yield rows


def sized(recipe: Recipe, batch_bytes: int, row_bytes: float, hold_bytes: int = 0) -> Recipe:
    """The recipe, holding about `batch_bytes` of decoded rows at a time and `hold_bytes` of what it will write."""
    recipe = replace(recipe, batch_bytes=batch_bytes, hold_bytes=hold_bytes)
    if not isinstance(recipe.source, FromSlices):
        return recipe
    rows = max(1, int(batch_bytes / max(row_bytes, 1.0)))
    reading = replace(recipe.source.reading, rows_at_once=rows, bytes_at_once=max(batch_bytes, 1024))
    return replace(recipe, source=replace(recipe.source, reading=reading))


def _bound(recipe: Recipe, slices: tuple[Slice, ...]) -> Recipe:
    """Stages that need an artifact get one from the first rows, so that they can be run at all.

    Where the first rows do not tell enough for that, the stage is passed over, as in the pass that measures it.
    """
    for number, stage in recipe.stages.items():
        fit = stage.fit()
        if stage.uses_artifact and fit and number not in recipe.fits:
            bound = stage.bind(fit.finish(_first_state(recipe, slices, number, fit)))
            trial = replace(recipe, stages={**recipe.stages, number: bound})
            try:
                _first_state(trial, slices, number + 1, None)
                recipe = trial
            except PlanError:
                recipe = replace(recipe, fits=(*recipe.fits, number))
    return recipe


def _first_state(recipe: Recipe, slices: tuple[Slice, ...], last: int, fit: Fit | None) -> Any:
    """Take the first batch through the stages before `last`, and what they give into a reduction."""
    stages = {number: stage for number, stage in recipe.stages.items() if number < last}
    recipe = replace(recipe, stages=stages, fits=tuple(number for number in recipe.fits if number < last))
    tap = Tap(fit) if fit else None
    with ExitStack() as stack:
        rejected = Rejected(Folder(recipe.root), "rejected", stack, writes=False)
        fold = Fold(recipe.open_stages(Folder(recipe.root), 0), recipe.taps(), rejected)
        for rows in _batches(recipe, slices):
            rows = _beginning(rows, recipe)
            given = fold(fold.count(rows, len(rows), Count()))
            if tap:
                tap.add(given)
            break
    return tap.finish() if tap else None


def decoded_row_bytes(sample: pa.RecordBatch) -> float:
    return sample.nbytes / sample.num_rows if sample.num_rows else 64.0
