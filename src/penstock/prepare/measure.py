"""Measure: run a little of the job in a fresh worker, to learn what it costs on this machine, with these data.

Arrow's own sizes cover about half of what a process really grows by, and a user's function may do anything; so the
plan does not compute memory from types, it measures two batch sizes and draws the line through them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError, PlanError
from penstock.base.files import Folder
from penstock.base.memory import own_memory
from penstock.prepare.slices import Slice
from penstock.prepare.sources import UnreadablePart, read_segment
from penstock.prepare.stage import Fit
from penstock.prepare.task import Count, Recipe, Rejected, Shards, Tap, run_stages

_BATCHES = 3
_SECONDS = 2.0  # a stage so slow that this is not enough is measured on what it did


@dataclass(frozen=True)
class Measurement:
    """Bytes a worker holds before a task, what a task adds (fixed, and per byte of its batches), and its speed."""

    worker_bytes: int
    fixed_bytes: int
    bytes_per_batch_byte: float
    rows_per_second: float
    output_row_bytes: float  # written per row read: what filters drop is in it

    def task_bytes(self, batch_bytes: int) -> int:
        return int(self.fixed_bytes + self.bytes_per_batch_byte * batch_bytes)


def measure(recipe: Recipe, slices: tuple[Slice, ...], batch_bytes: int, row_bytes: float, room: int) -> Measurement:
    """Run up to three batches of each of three sizes, and watch this process grow.

    The largest is left out where there is no time for it, or where the smaller two say that it would not fit into
    `room`. `recipe.root` is a folder that will be thrown away.
    """
    reserved = own_memory().counted
    points: list[tuple[int, int]] = []  # batch bytes, and what the process had grown by
    seconds = 0.0
    with _watching() as peak:
        recipe = _bound(replace(recipe, on_bad_input="set_aside"), slices)
        for size in (batch_bytes // 64, batch_bytes // 8, batch_bytes):
            if len(points) == 2 and (seconds > _SECONDS / 2 or _line(points, size) > room):
                break
            started = time.perf_counter()
            rows, written = _run(recipe, slices, size, row_bytes)
            seconds = time.perf_counter() - started
            points.append((size, peak[0] - reserved))
    return Measurement(
        worker_bytes=reserved,
        fixed_bytes=max(0, int(_line(points, 0))),
        bytes_per_batch_byte=_slope(points),
        rows_per_second=max(rows, 1) / seconds,
        output_row_bytes=written / max(rows, 1),
    )


def _slope(points: list[tuple[int, int]]) -> float:
    (small, before), (large, after) = points[-2:]
    return (after - before) / (large - small)


def _line(points: list[tuple[int, int]], size: int) -> float:
    """What a batch of `size` would add, by the last two points."""
    return points[-1][1] + _slope(points) * (size - points[-1][0])


def _run(recipe: Recipe, slices: tuple[Slice, ...], batch_bytes: int, row_bytes: float) -> tuple[int, int]:
    """(rows read, bytes written): a task cut short, into a folder that is thrown away."""
    recipe = replace(recipe, reading=sized(recipe, batch_bytes, row_bytes).reading)
    account = [Count() for _ in range(len(recipe.stages) + 1)]
    taps = {number: Tap(fit) for number in recipe.fits if (fit := recipe.stages[number].fit())}
    deadline = time.perf_counter() + _SECONDS
    with ExitStack() as stack:
        folder = Folder(recipe.root)
        rejected = Rejected(folder, "rejected", stack, writes=False)
        shards = Shards(folder, recipe, 0, stack)
        for number, rows in enumerate(_batches(recipe, slices)):
            shards.write(run_stages(rows, recipe, account, taps, rejected))
            if number + 1 == _BATCHES or time.perf_counter() > deadline:
                break
        files = [file for facts in shards.commit().values() for file in facts.files]
    folder.release_scratch()
    return account[0].taken, sum(file.bytes for file in files)


def _batches(recipe: Recipe, slices: tuple[Slice, ...]) -> Iterator[Any]:
    for segment in (segment for piece in slices for segment in piece.segments):
        try:
            yield from read_segment(segment, recipe.reading, frozenset())
        except (UnreadablePart, InputError):
            continue  # the task that reads it reports it


def sized(recipe: Recipe, batch_bytes: int, row_bytes: float, hold_bytes: int = 0) -> Recipe:
    """The recipe, holding about `batch_bytes` of decoded rows at a time and `hold_bytes` of what it will write."""
    rows = max(1, int(batch_bytes / max(row_bytes, 1.0)))
    reading = replace(recipe.reading, rows_at_once=rows, bytes_at_once=max(batch_bytes, 1024))
    return replace(recipe, reading=reading, hold_bytes=hold_bytes)


def _bound(recipe: Recipe, slices: tuple[Slice, ...]) -> Recipe:
    """Stages that need an artifact get one from the first rows, so that they can be run at all.

    Where the first rows do not tell enough for that, the stage is passed over, as in the pass that measures it.
    """
    for number, stage in enumerate(recipe.stages):
        fit = stage.fit()
        if stage.uses_artifact and fit:
            bound = stage.bind(fit.finish(_first_state(recipe, slices, number, fit)))
            trial = replace(recipe, stages=(*recipe.stages[:number], bound, *recipe.stages[number + 1 :]))
            try:
                _first_state(trial, slices, number + 1, None)
                recipe = trial
            except PlanError:
                recipe = replace(recipe, fits=(*recipe.fits, number))
    return recipe


def _first_state(recipe: Recipe, slices: tuple[Slice, ...], count: int, fit: Fit | None) -> Any:
    """Take the first batch through the first `count` stages, and what they give into a reduction."""
    recipe = replace(recipe, stages=recipe.stages[:count], writes=False)
    account = [Count() for _ in range(count + 1)]
    tap = Tap(fit) if fit else None
    taps = {number: Tap(each) for number in recipe.fits if number < count and (each := recipe.stages[number].fit())}
    with ExitStack() as stack:
        rejected = Rejected(Folder(recipe.root), "rejected", stack, writes=False)
        for rows in _batches(recipe, slices):
            given = run_stages(rows, recipe, account, taps, rejected)
            if tap:
                tap.add(given)
            break
    return tap.finish() if tap else None


@contextmanager
def _watching() -> Iterator[list[int]]:
    """The highest memory of this process while the block runs, as the one entry of a list."""
    peak = [own_memory().counted]
    done = threading.Event()

    def watch() -> None:
        pause = 0.002
        while not done.wait(pause):
            peak[0] = max(peak[0], own_memory().counted)
            pause = min(pause * 1.01, 0.1)  # the first moments matter most; a slow stage is not slowed further

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak[0] = max(peak[0], own_memory().counted)


def decoded_row_bytes(sample: pa.RecordBatch) -> float:
    return sample.nbytes / sample.num_rows if sample.num_rows else 64.0
