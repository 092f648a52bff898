"""First rows: how work that reads slices is tried."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.base.errors import PlanError
from penstock.prepare.budget.costs import SECONDS, Point
from penstock.prepare.passes.folds.chain import Tap
from penstock.prepare.passes.folds.from_slices import FromSlices
from penstock.prepare.passes.folds.trying.cut_short import cut_short
from penstock.prepare.passes.folds.trying.measure import Measuring, Tried
from penstock.prepare.passes.folds.work import FoldWork
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources.reading.large_rows import is_giant, shortened
from penstock.prepare.stages.interfaces import Applies

_BATCHES = 3
_BEGINNING_BYTES = 1 << 20  # of a giant's text, which are measured: a slow tokenizer takes a second or two for them


def try_first_rows(work: FoldWork, how: Measuring, left: tuple[str, ...]) -> Tried:  # noqa: ARG001
    assert work.sink
    sink = work.sink.for_trial()
    work = _bound(replace(work, sink=sink), how)
    sizes = (how.settings.batch_bytes >> shift for shift in (6, 3, 0))
    points = how.points(sizes, partial(_read_some, work, how))
    return Tried(points, sink.left(len(points)))


def _read_some(work: FoldWork, how: Measuring, number: int, size: int, grown: Callable[[], int]) -> Point:
    """Run a part of a task."""
    started = time.perf_counter()
    read, more_seconds = 0, 0.0
    whole_bytes, read_bytes = 1, 1  # of giant texts the beginnings are taken, and cost what a part of them would
    assert isinstance(work.source, FromSlices)
    source = work.source.sized(size, how.settings.row_bytes)
    with cut_short(work, number, replace(how.settings, batch_bytes=size)) as inside:
        for batches, whole in enumerate(source.first_rows(how.slices, how.settings.threads), start=1):
            begun = time.perf_counter()
            rows = _beginning(whole, work)
            read += len(rows) + sum(aside.count for aside in rows.set_aside)
            inside.sink.write(inside.read(rows))
            whole_bytes, read_bytes = whole_bytes + whole.batch.nbytes, read_bytes + rows.batch.nbytes
            times = whole.batch.nbytes / max(rows.batch.nbytes, 1)
            more_seconds += (times - 1) * (time.perf_counter() - begun)
            if batches == _BATCHES or time.perf_counter() > started + SECONDS:
                break
    counts = list(inside.chain.counts.values())
    given = counts[-1].step("", "").given if counts else read
    written = int(inside.bytes * whole_bytes / read_bytes)
    seconds = time.perf_counter() - started + more_seconds
    waits = work.code or more_seconds  # nobody knows whether the user's code computes or waits
    point = Point(size, grown(), read, given, written, seconds, busy_seconds=seconds if waits else 0.0)
    if read_bytes == whole_bytes:
        return point
    row_bytes = how.settings.row_bytes
    every = sum(piece.rows if piece.rows >= 0 else piece.bytes / row_bytes for piece in how.slices)
    return point.of_giants(whole_bytes / row_bytes, every)


def _beginning(rows: Rows, work: FoldWork) -> Rows:
    """Cut giant texts to their beginning, unless a user's function is given the rows."""
    if work.code or not is_giant(rows.batch):
        return rows
    return rows.with_batch(shortened(rows.batch, _BEGINNING_BYTES))


def _bound(work: FoldWork, how: Measuring) -> FoldWork:
    """Stages that need an artifact get one from the first rows, so that they can be run at all.

    Where the first rows do not tell enough for that, the stage is passed over, as in the pass that measures it.
    """
    for number, stage in work.stages.items():
        if isinstance(stage, Applies) and number not in work.fits:
            first, tap = _through(work, how, number), Tap(stage)
            if first is not None:
                tap.add(first)
            try:
                artifact = stage.fit().finish(tap.finish())
                bound = replace(work, stages={**work.stages, number: stage.bind(artifact)})
                _through(bound, how, number + 1)
                work = bound
            except PlanError:
                work = replace(work, fits=(*work.fits, number))
    return work


def _through(work: FoldWork, how: Measuring, last: int) -> Rows | None:
    """The first batch, behind the stages before `last`."""
    source = work.source
    assert isinstance(source, FromSlices)
    stages = {number: stage for number, stage in work.stages.items() if number < last}
    work = replace(work, stages=stages, fits=tuple(number for number in work.fits if number < last), sink=None)
    with cut_short(work, 0, how.settings) as inside:
        first = next(source.first_rows(how.slices, threads=1), None)
        return inside.read(_beginning(first, work)) if first is not None else None
