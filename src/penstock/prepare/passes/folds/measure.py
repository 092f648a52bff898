"""Measure: run a little of the job in a fresh worker, to learn what it costs on this machine, with these data.

Arrow's own sizes cover about half of what a process really grows by, and a user's function may do anything; so the
plan does not compute memory from types, it measures batches of several sizes and draws the line through them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import PlanError
from penstock.base.memory import own_memory, peak_watched
from penstock.base.stores import open_store
from penstock.base.stores.scratch import release_scratch
from penstock.prepare.budget.costs import STEEP, Measured, Measurement
from penstock.prepare.budget.growth import Point, dissected, growth_of
from penstock.prepare.budget.heap import give_back_memory
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Trial
from penstock.prepare.passes.exchange.buckets import FromBuckets
from penstock.prepare.passes.folds.ahead import ahead
from penstock.prepare.passes.folds.chain import Chain, Count, Tap
from penstock.prepare.passes.folds.fold import FoldWork
from penstock.prepare.passes.folds.joining import joined
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.passes.folds.shards import ShardsInto
from penstock.prepare.passes.folds.sink import Produced
from penstock.prepare.passes.folds.slices import FromSlices
from penstock.prepare.rows.container import Stored
from penstock.prepare.rows.rows import Rows
from penstock.prepare.rows.spill import read_chunks
from penstock.prepare.sources import readable
from penstock.prepare.sources.slices import Slice
from penstock.prepare.stages.interfaces import Applies, Fit
from penstock.prepare.survey.shortening import is_giant, shortened
from penstock.shards.foreign.arrayrecord import FORMAT
from penstock.shards.foreign.arrayrecord_file import merge_parts

BATCH_BYTES = 4 << 20
_BATCHES = 3
_BEGINNING_BYTES = 1 << 20  # of a giant's text, which are measured: a slow tokenizer takes a second or two for them
_SECONDS = 2.0  # a stage so slow that this is not enough is measured on what it did


@dataclass(frozen=True)
class Measuring:
    """Input of a trial: the first slices, in batches of up to `settings.batch_bytes`, while there is `room`."""

    slices: tuple[Slice, ...]
    settings: Settings
    room: int
    reserved: int  # what the process held before


def measure(trials: Sequence[Trial], slices: tuple[Slice, ...], settings: Settings, room: int) -> Measured:
    """Run up to three batches of each of three sizes of what reads slices; then gather what that spilled.

    The largest is left out where there is no time for it, or where the smaller two say that it would not fit into
    `room`. The root of each work is a folder that will be thrown away.
    """
    how = Measuring(slices, settings, room, own_memory().counted)
    costs: dict[str, Measurement] = {}
    grown: dict[str, Any] = {}
    spills: tuple[str, ...] = ()
    for word, work in trials:
        give_back_memory()
        if isinstance(work.source, FromSlices):
            work = _bound(work.for_trial(), how)
            points = _measure_slices(work, how)
            spills = work.sink.left(len(points)) if work.sink else ()
        else:
            points = _measure_buckets(work, spills, how)
            grown = _growth(points)
        costs[word] = _measurement(points, how.reserved)
    return Measured(costs, **grown)


def _measure_slices(work: FoldWork, how: Measuring) -> list[Point]:
    points: list[Point] = []
    with peak_watched() as peak:
        for number, size in enumerate(how.settings.batch_bytes >> shift for shift in (6, 3, 0)):
            if _is_enough(points, size, how.room):
                break
            points.append(_read_some(work, how, size, number, lambda: peak[0] - how.reserved))
    return points


def _sized(work: FoldWork, size: int, how: Measuring) -> FoldWork:
    assert isinstance(work.source, FromSlices)
    return replace(work, source=work.source.sized(size, how.settings.row_bytes))


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
    """Points whose batch is clearly larger than the one before. With little data, every batch holds all of it."""
    kept = points[:1]
    for point in points[1:]:
        if point.batch_bytes <= 2 * kept[-1].batch_bytes:
            kept.pop()
        kept.append(point)
    return kept


def _slope(points: list[Point]) -> float:
    growing = _growing(points)
    if len(growing) == 1:
        return STEEP
    small, large = growing[-2:]
    return (large.grown - small.grown) / (large.batch_bytes - small.batch_bytes)


def _line(points: list[Point], size: int) -> float:
    """Bytes that a batch of `size` would add, by the last two points."""
    return points[-1].grown + _slope(points) * (size - points[-1].batch_bytes)


def _read_some(work: FoldWork, how: Measuring, size: int, number: int, grown: Callable[[], int]) -> Point:
    """A task cut short, into a folder that is thrown away."""
    started = time.perf_counter()
    work, settings = _sized(work, size, how), replace(how.settings, batch_bytes=size)
    read, more_seconds = 0, 0.0
    whole_bytes, read_bytes = 1, 1  # of giant texts the beginnings are taken, and cost what a part of them would
    with _cut_short(work, number, settings) as (chain, take, produced):
        for batches, whole in enumerate(_batches(work, how), start=1):
            begun = time.perf_counter()
            rows = _beginning(whole, work)
            read += len(rows) + sum(aside.count for aside in rows.set_aside)
            take(chain(chain.count(rows, len(rows), Count())))
            whole_bytes, read_bytes = whole_bytes + whole.batch.nbytes, read_bytes + rows.batch.nbytes
            times = whole.batch.nbytes / max(rows.batch.nbytes, 1)
            more_seconds += (times - 1) * (time.perf_counter() - begun)
            if batches == _BATCHES or time.perf_counter() > started + _SECONDS:
                break
    given = list(chain.counts.values())[-1].step("", "").given if chain.counts else read
    written = int(_bytes_of(produced) * whole_bytes / read_bytes)
    seconds = time.perf_counter() - started + more_seconds
    point = Point(size, grown(), read, given, written, seconds)
    return point if read_bytes == whole_bytes else _of_giants(point, whole_bytes, how)


def _of_giants(point: Point, whole_bytes: int, how: Measuring) -> Point:
    """Count giants as so many rows of the usual size, but no more than there are: not every row costs as much."""
    row_bytes = how.settings.row_bytes
    every = sum(piece.rows if piece.rows >= 0 else piece.bytes / row_bytes for piece in how.slices)
    rows = max(point.rows, round(min(whole_bytes / row_bytes, every)))
    return replace(point, rows=rows, given=round(point.given / point.rows * rows), is_of_giants=True)


def _beginning(rows: Rows, work: FoldWork) -> Rows:
    """Cut giant texts to their beginning, unless a user's function is given the rows."""
    if work.code or not is_giant(rows.batch):
        return rows
    return rows.with_batch(shortened(rows.batch, _BEGINNING_BYTES))


@contextmanager
def _cut_short(work: FoldWork, number: int, settings: Settings) -> Iterator[Any]:
    """(chain, what takes its rows, what was produced): a task's inside, without its ledger."""
    store = open_store(work.root)
    produced: list[Produced] = []
    with ExitStack() as stack:
        rejected = Rejected(store, "rejected", stack, writes=False)
        sink = work.open_sink(store, number, stack, settings)
        yield Chain(work.open_stages(store, number, settings), work.taps(), rejected), sink.write, produced
        produced.append(sink.finish())
    release_scratch(store.scratch_folder)


def _bytes_of(produced: list[Produced]) -> int:
    """Bytes of the files, each counted once: the splits of a part share one."""
    files = {file for facts in produced[0].shards.values() for file in facts.files}
    files |= {produced[0].spill} if produced[0].spill else set()
    return sum(file.bytes for file in files)


def _measure_buckets(work: FoldWork, spills: tuple[str, ...], how: Measuring) -> list[Point]:
    """Gather what the measurements before have spilled, the small ones and the large one."""
    later = [number for number, stage in work.stages.items() if isinstance(stage, Applies)]
    work = replace(work, fits=(*work.fits, *later))  # what needs an artifact is passed over
    points: list[Point] = []
    with peak_watched() as peak:
        for number, name in enumerate(spills):
            size = _decoded_bytes(work.root, name)
            if _is_enough(points, size, how.room):
                break
            points.append(_gather_some(work, number, name, size, how, lambda: peak[0] - how.reserved))
    return points


def _growth(points: list[Point]) -> dict[str, Any]:
    last = points[-1]
    return {
        "spilled_row_bytes": last.batch_bytes / max(last.rows, 1),
        "growth": growth_of(points),
        "parts_per_output_byte": last.parts / max(last.written, 1),
    }


def _gather_some(work: FoldWork, number: int, spill: str, size: int, how: Measuring, grown: Callable[[], int]) -> Point:
    started = time.perf_counter()
    assert isinstance(work.source, FromBuckets)
    source, store, first = replace(work.source, spills=(spill,)), open_store(work.root), Count()
    with _cut_short(work, number, how.settings) as (chain, take, produced):
        for rows in source.reduced(store, 0, size + 1, chain, first, _nobody_watches):
            take(chain(rows))
    seconds = time.perf_counter() - started
    point = Point(size, grown(), first.taken, first.made, _bytes_of(produced), seconds)
    shards = produced[0].shards
    if isinstance(work.sink, ShardsInto) and work.sink.container == FORMAT:
        merged = [merge_parts(store, f"{split}{number}", (part,)) for split, part in shards.items()]
        return replace(point, written=sum(shard.files[0].bytes for shard in merged), parts=point.written)
    return dissected(point, store, shards)


def _nobody_watches(rows: int, place: str = "", whole: bool = True) -> None: ...


def _decoded_bytes(root: str, spill: str) -> int:
    return read_chunks(Stored(open_store(root), spill), 0).decoded_bytes


def _batches(work: FoldWork, how: Measuring) -> Iterator[Rows]:
    assert isinstance(work.source, FromSlices)
    reading = work.source.reading
    segments = (segment for piece in how.slices for segment in piece.segments)
    found = joined((rows for segment in segments for rows in readable(segment, reading)), reading)
    for rows in ahead(found) if how.settings.threads > 1 else found:
        assert isinstance(rows, Rows)
        yield rows


def _bound(work: FoldWork, how: Measuring) -> FoldWork:
    """Stages that need an artifact get one from the first rows, so that they can be run at all.

    Where the first rows do not tell enough for that, the stage is passed over, as in the pass that measures it.
    """
    for number, stage in work.stages.items():
        if isinstance(stage, Applies) and number not in work.fits:
            fit = stage.fit()
            bound = stage.bind(fit.finish(_first_state(work, how, number, fit)))
            trial = replace(work, stages={**work.stages, number: bound})
            try:
                _first_state(trial, how, number + 1, None)
                work = trial
            except PlanError:
                work = replace(work, fits=(*work.fits, number))
    return work


def _first_state(work: FoldWork, how: Measuring, last: int, fit: Fit | None) -> Any:
    """Take the first batch through the stages before `last`, and what they give into a reduction."""
    stages = {number: stage for number, stage in work.stages.items() if number < last}
    work = replace(work, stages=stages, fits=tuple(number for number in work.fits if number < last))
    tap = Tap(fit) if fit else None
    with ExitStack() as stack:
        rejected = Rejected(open_store(work.root), "rejected", stack, writes=False)
        chain = Chain(work.open_stages(open_store(work.root), 0, how.settings), work.taps(), rejected)
        for rows in _batches(work, how):
            rows = _beginning(rows, work)
            given = chain(chain.count(rows, len(rows), Count()))
            if tap:
                tap.add(given)
            break
    return tap.finish() if tap else None
