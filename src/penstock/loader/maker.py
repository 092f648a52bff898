"""Maker: the number of a batch -> the batch: order (which records), fill (kernels, into a reused buffer), map."""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base import machine
from penstock.loader.asked.room import batches_that_fit
from penstock.loader.batches import Batch
from penstock.loader.feeding.buffers import Buffers
from penstock.loader.feeding.metrics import LoaderMetrics
from penstock.loader.feeding.prefetch import Tuner
from penstock.loader.feeding.processes import Functions, Processes
from penstock.loader.feeding.stats import Timing, Totals
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws, Order, Remainder
from penstock.loader.order.recipe import MOST_STEPS, Recipe
from penstock.loader.tables import Made

_THREADS_THAT_WAIT = 16  # at most: threads that wait need no core each
Filled = tuple[Batch, Made]


@dataclass(frozen=True)
class Parts:
    """Everything that load.py decided about a loader."""

    opened_by: Callable[..., Any]  # load() itself, which makes an equal loader of `arguments`
    arguments: Mapping[str, Any]
    kind: Kind
    order: Order
    draw: Callable[[int, int], Draws]  # rows of the order, made once: its tables may be large
    recipe: Recipe
    batch_size: int
    rank: int
    world: int
    remainder: Remainder
    workers: int | None  # None: as many as help
    ahead: int
    room: int | None = None  # bytes for batches, where memory= was given
    log_every: float | None = None
    flops: tuple[float, float] | None = None  # a token, and the accelerator's peak
    metrics: tuple[Callable[[dict[str, float]], object] | None, float] = (None, 1.0)  # a function, and its interval

    def make_metrics(self) -> LoaderMetrics:
        return LoaderMetrics(*self.metrics)

    @property
    def steps(self) -> int | None:
        """Batches in all, the same on every rank."""
        rows, size = self.order.rows, self.batch_size
        if rows is None:
            return None
        return rows // size if self.remainder == "drop" else -(-rows // size)

    @property
    def end(self) -> int:
        """Number after the last batch."""
        return MOST_STEPS if self.steps is None else self.steps

    @property
    def cores(self) -> int:
        return machine.cpu_count().amount

    def make_tuner(self, processes: int) -> Tuner:
        most = self.workers or max(self.cores, processes)
        return Tuner(max(self.workers or 1, processes), most, self.workers or _THREADS_THAT_WAIT)


class Maker:
    """Makes batches. It does not know the Loader, so that a forgotten loader can be collected."""

    def __init__(self, parts: Parts, functions: Functions, totals: Totals, processes: Processes | None = None) -> None:
        self._parts, self._functions, self._totals, self._processes = parts, functions, totals, processes
        self._rows = parts.batch_size // parts.world
        self._buffers = Buffers(parts.kind.layout, self._rows, keep=parts.ahead + 2)

    def start(self) -> Maker:
        """Start the processes of map(), if it has any; the maker that uses them."""
        if not self._functions.processes:
            return self
        processes = Processes(self._functions, self._functions.processes, self._functions.timeout)
        return Maker(self._parts, self._functions, self._totals, processes)

    @property
    def replaced(self) -> int:
        return self._processes.replaced if self._processes else 0

    def close(self) -> None:
        if self._processes:
            self._processes.close()

    def make(self, k: int) -> Filled:
        parts, started = self._parts, time.perf_counter()
        draws = parts.draw(k * parts.batch_size + parts.rank * self._rows, self._rows)
        drawn, cpu, faults = time.perf_counter(), time.thread_time(), _major_faults()
        batch = self._buffers.take()
        made = parts.kind.fill(draws, batch)
        filled, read = time.perf_counter(), made.read_seconds
        if _major_faults() > faults:
            read = max(read, filled - drawn - (time.thread_time() - cpu))
        before_map = time.thread_time()
        batch = (self._processes or self._functions.apply)(k, batch)
        computing, mapping = time.thread_time() - before_map, time.perf_counter() - filled
        timing = Timing(drawn - started, read, filled - drawn - read, mapping, computing, made.alone_seconds)
        self._totals.add_made(made, timing)
        return batch, made

    def batches_ahead(self, step: int) -> int:
        """Batches that may be ahead: functions may make larger ones than those that memory was shared out for."""
        parts = self._parts
        if not self._functions.each or parts.room is None:
            return parts.ahead
        batch, _ = self.make(step)
        size = max(1, sum(array.nbytes for array in batch.values() if hasattr(array, "nbytes")))
        return min(parts.ahead, batches_that_fit(size, self._buffers.batch_bytes, parts.room))


def _major_faults() -> int:
    """Major page faults of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt if hasattr(resource, "RUSAGE_THREAD") else 0
