"""Trying buckets: gather what a trial before has spilled, to learn what that costs and how the output grows."""

import time
from collections.abc import Callable
from dataclasses import replace

from penstock.base.stores import open_store
from penstock.prepare.budget.costs import Point, growth_of
from penstock.prepare.passes import nobody_watches
from penstock.prepare.passes.exchange.buckets import FromBuckets
from penstock.prepare.passes.folds.chain import Count
from penstock.prepare.passes.folds.trying.cut_short import cut_short
from penstock.prepare.passes.folds.trying.measure import Measuring, Tried
from penstock.prepare.passes.folds.work import FoldWork
from penstock.prepare.rows.spill import decoded_bytes
from penstock.prepare.stages.interfaces import Applies


def try_buckets(work: FoldWork, how: Measuring, left: tuple[str, ...]) -> Tried:
    """Gather the spills, the small ones and the large one."""
    later = [number for number, stage in work.stages.items() if isinstance(stage, Applies)]
    work = replace(work, fits=(*work.fits, *later))  # what needs an artifact is passed over
    store = open_store(work.root)

    def run(number: int, size: int, grown: Callable[[], int]) -> Point:
        return _gather_some(work, number, left[number], size, how, grown)

    points = how.points((decoded_bytes(store, spill) for spill in left), run)
    last = points[-1]
    facts = {
        "spilled_row_bytes": last.batch_bytes / max(last.rows, 1),
        "growth": growth_of(points),
        "parts_per_output_byte": last.parts / max(last.written, 1),
    }
    return Tried(points, facts=facts)


def _gather_some(work: FoldWork, number: int, spill: str, size: int, how: Measuring, grown: Callable[[], int]) -> Point:
    started = time.perf_counter()
    assert isinstance(work.source, FromBuckets)
    assert work.sink
    source, store, first = replace(work.source, spills=(spill,)), open_store(work.root), Count()
    with cut_short(work, number, how.settings) as inside:
        for rows in source.reduced(store, 0, size + 1, inside.chain, first, nobody_watches):
            inside.sink.write(inside.chain(rows))
    seconds = time.perf_counter() - started
    point = Point(size, grown(), first.taken, first.made, inside.bytes, seconds)
    return work.sink.weighed(point, store, number, inside.produced.shards)
