"""Trying buckets: gather what a trial before has spilled, to learn what that costs and how the output grows."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from penstock.base.stores import open_store
from penstock.prepare.budget.costs import Point, growth_of
from penstock.prepare.passes import Task, nobody_watches
from penstock.prepare.passes.exchange.buckets import FromBuckets
from penstock.prepare.passes.folds.source import Attempt
from penstock.prepare.passes.folds.trying.cut_short import cut_short
from penstock.prepare.passes.folds.trying.measure import Measuring, Tried
from penstock.prepare.passes.folds.work import FoldWork
from penstock.prepare.rows.order import Bucket
from penstock.prepare.rows.spill import decoded_bytes
from penstock.prepare.stages.interfaces import Applies
from penstock.shards.columns import FileFacts


def try_buckets(work: FoldWork, how: Measuring, left: tuple[str, ...]) -> Tried:
    """Gather the spills, the small ones and the large one."""
    later = [number for number, stage in work.stages.items() if isinstance(stage, Applies)]
    work = replace(work, fits=(*work.fits, *later))  # what needs an artifact is passed over
    store = open_store(work.root)
    assert isinstance(work.source, FromBuckets)
    sources = [
        replace(work.source, spills=(FileFacts(spill, 0, ""),), buckets=1, catalogue=f"{spill}.places").ready(work.root)
        for spill in left
    ]
    points = how.points((decoded_bytes(store, spill) for spill in left), partial(_gather_some, work, how, sources))
    last = points[-1]
    facts = {
        "spilled_row_bytes": last.batch_bytes / max(last.rows, 1),
        "growth": growth_of(points),
        "parts_per_output_byte": last.parts / max(last.written, 1),
    }
    return Tried(points, facts=facts)


def _gather_some(
    work: FoldWork, how: Measuring, sources: list[FromBuckets], number: int, size: int, grown: Callable[[], int]
) -> Point:
    started = time.perf_counter()
    assert work.sink
    source, settings = sources[number], replace(how.settings, batch_bytes=size + 1)
    with cut_short(work, number, how.settings) as inside:
        attempt = Attempt(work, Task("", Bucket(0), ""), settings, nobody_watches, inside.chain, [])
        for rows in source.rows(attempt):
            inside.sink.write(inside.chain(rows))
    seconds = time.perf_counter() - started
    point = Point(size, grown(), attempt.read.taken, attempt.read.made, inside.bytes, seconds)
    return work.sink.weighed(point, open_store(work.root), number, inside.produced.shards)
