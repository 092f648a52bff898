"""Maker: the number of a batch -> the batch: order (which records), fill (kernels, into a reused buffer), map."""

from __future__ import annotations

import resource
import time

from penstock.loader.asked.room import batches_that_fit
from penstock.loader.batches import Batch, Inputs, SegmentOrigin, empty_batch
from penstock.loader.feeding.buffers import Buffers
from penstock.loader.feeding.processes import Processes
from penstock.loader.feeding.stats import Timing, Totals
from penstock.loader.order.origins import origins_of
from penstock.loader.parts import Parts
from penstock.loader.tables import Made

Filled = tuple[Batch, Made]


class Maker:
    """Makes batches. It does not know the Loader, so that a forgotten loader can be collected."""

    def __init__(self, parts: Parts, totals: Totals, processes: Processes | None = None) -> None:
        self._parts, self._functions, self._totals, self._processes = parts, parts.functions, totals, processes
        sizes = {phase.batch_size // parts.world for phase in parts.phases.each}
        self._buffers = {rows: Buffers(parts.kind.layout, rows, keep=parts.ahead + 2) for rows in sizes}

    def start(self) -> Maker:
        """Start the processes of map(), if it has any; the maker that uses them."""
        if not self._functions.processes:
            return self
        processes = Processes(self._functions, self._functions.processes, self._functions.timeout)
        return Maker(self._parts, self._totals, processes)

    @property
    def replaced(self) -> int:
        return self._processes.replaced if self._processes else 0

    def close(self) -> None:
        if self._processes:
            self._processes.close()

    def make(self, k: int) -> Filled:
        parts, started = self._parts, time.perf_counter()
        draws = parts.draw(k)
        rows = len(draws.keys)
        drawn, cpu, faults = time.perf_counter(), time.thread_time(), _major_faults()
        batch = self._buffers[rows].take()
        made = parts.kind.fill(draws, batch)
        filled, read = time.perf_counter(), made.read_seconds
        if _major_faults() > faults:
            read = max(read, filled - drawn - (time.thread_time() - cpu))
        mapping = computing = 0.0
        if self._functions.each:  # without any, what a busy machine takes here would be called map
            before_map = time.thread_time()
            batch = (self._processes or self._functions.apply)(k, batch)
            computing, mapping = time.thread_time() - before_map, time.perf_counter() - filled
        timing = Timing(drawn - started, read, filled - drawn - read, mapping, computing, made.alone_seconds)
        self._totals.add_made(made, timing)
        return batch, made

    def origins(self, k: int, inputs: Inputs | None) -> list[SegmentOrigin]:
        """Origins of the rows of a batch. It is drawn and filled again, and functions of map() are left out."""
        parts = self._parts
        draws = parts.draw(k)
        batch = empty_batch(parts.kind.layout, len(draws.keys))
        parts.kind.fill(draws, batch)
        held = parts.kind.holds(draws)
        return list(origins_of(held, batch, parts.kind.tables.shards, parts.kind.streams, parts.paths, inputs))

    def batches_ahead(self, step: int) -> int:
        """Batches that may be ahead: functions may make larger ones than those that memory was shared out for."""
        parts = self._parts
        if not self._functions.each or parts.room is None:
            return parts.ahead
        batch, _ = self.make(step)
        size = max(1, sum(array.nbytes for array in batch.values() if hasattr(array, "nbytes")))
        return min(
            parts.ahead, batches_that_fit(size, max(each.batch_bytes for each in self._buffers.values()), parts.room)
        )


def _major_faults() -> int:
    """Major page faults of this thread."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt if hasattr(resource, "RUSAGE_THREAD") else 0
