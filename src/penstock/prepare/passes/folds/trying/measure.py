"""Measure: run a little of the job in a fresh worker, to learn what it costs on this machine, with these data.

Arrow's own sizes cover about half of what a process really grows by, and a user's function may do anything; so the
plan does not compute memory from types, it measures batches of several sizes and draws the line through them.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from penstock.base.memory import own_memory, peak_watched, private_memory
from penstock.prepare.budget.costs import Measured, Measurement, Point, is_enough, measurement_of
from penstock.prepare.budget.means import Settings, give_back_memory
from penstock.prepare.passes import Trial
from penstock.prepare.sources.slices import Slice

_QUICK_SECONDS = 0.5


@dataclass(frozen=True)
class Measuring:
    """Input of a trial: the first slices, in batches of up to `settings.batch_bytes`, while there is `room`."""

    slices: tuple[Slice, ...]
    settings: Settings
    room: int
    reserved: int  # what the process held before

    def points(self, sizes: Iterable[int], run: Callable[[int, int, Callable[[], int]], Point]) -> list[Point]:
        """A point per size of batch, until that is enough. `run(number, size, grown)` does it. The least and the
        largest are timed again: memory that grows, and code that runs for the first time, are no part of a long task.
        """
        points: list[Point] = []
        sizes = list(sizes)
        with peak_watched() as peak:

            def timed(number: int, size: int, grown: Callable[[], int]) -> Point:
                before = time.process_time() - peak.cpu_seconds
                point = run(number, size, grown)
                took = time.process_time() - peak.cpu_seconds - before
                return point if point.busy_seconds else replace(point, busy_seconds=took)

            for number, size in enumerate(sizes):
                if is_enough(points, size, self.room):
                    break
                points.append(timed(number, size, lambda: peak.counted - self.reserved))
            for number in (0, -1) if len(points) > 1 else ():
                if points[number].busy_seconds < _QUICK_SECONDS:
                    again = timed(number % len(points), sizes[number % len(points)], lambda: 0)
                    quicker = min(points[number].busy_seconds, again.busy_seconds)
                    points[number] = replace(points[number], busy_seconds=quicker)
        return points


class Tried(NamedTuple):
    """Points of a trial, names of the files that it left for the next, and other facts for Measured."""

    points: list[Point]
    left: tuple[str, ...] = ()
    facts: Mapping[str, Any] = {}


def measure(trials: Sequence[Trial], slices: tuple[Slice, ...], settings: Settings, room: int) -> Measured:
    """Try up to three batches of each of three sizes of what reads slices; then gather what that spilled.

    The largest is left out where there is no time for it, or where the smaller two say that it would not fit into
    `room`. The root of each work is a folder that will be thrown away.
    """
    how = Measuring(slices, settings, room, own_memory().counted)
    worker_bytes = private_memory()
    costs: dict[str, Measurement] = {}
    facts: dict[str, Any] = {}
    left: tuple[str, ...] = ()
    for word, work, tries in trials:
        give_back_memory()
        points, left, more = tries(work, how, left)
        costs[word], facts = measurement_of(points, worker_bytes), {**facts, **more}
    give_back_memory()  # the process goes on without what was measured
    return Measured(costs, **facts)


def measure_inside(trials: Sequence[Trial], slices: tuple[Slice, ...], settings: Settings, room: int) -> Measured:
    """Measure in the driver, which does the tasks itself: there is no worker that holds anything before them."""
    measured = measure(trials, slices, settings, room)
    return replace(measured, costs={word: replace(cost, worker_bytes=0) for word, cost in measured.costs.items()})
