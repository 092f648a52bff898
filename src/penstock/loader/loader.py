"""Loader: iterate batches of a dataset, ask for any one of them, save and restore the place. `penstock.load` makes it.

batch(k) = order (which records) -> fill (kernels, into a reused buffer) -> map (the user's functions). Iterating makes
the same batches ahead of time, on threads. Next: to_torch.py, to_jax.py, to_maxtext.py, to_grain.py.
"""

from __future__ import annotations

import logging
import operator
import os
import resource
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import ConfigError, PlanError
from penstock.base.sizes import format_size
from penstock.loader.engine import compiled
from penstock.loader.feeding.buffers import Buffers
from penstock.loader.feeding.prefetch import Prefetch
from penstock.loader.feeding.processes import Processes
from penstock.loader.feeding.sendable import check_count, check_sendable, name_of, place_of
from penstock.loader.feeding.served import other_types, wrong_result
from penstock.loader.feeding.tuner import Tuner
from penstock.loader.kind import Array, Kind
from penstock.loader.order.order import Draws, Order, Remainder
from penstock.loader.order.recipe import MOST_STEPS, Recipe
from penstock.loader.stats import Stats, Timing, Totals
from penstock.loader.tables import Made
from penstock.loader.tokens.vocabulary import Vocabulary

Batch = dict[str, Array]
Function = Callable[[Batch], Batch]
_THREADS_THAT_WAIT = 16  # at most: threads that wait need no core each
log = logging.getLogger("penstock")


@dataclass(frozen=True)
class Parts:
    """What a loader is made of, decided in load.py."""

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
    cores: int
    ahead: int
    batch_bytes: int
    room: int | None = None  # bytes for batches, where memory= was given
    log_every: float | None = None
    flops: tuple[float, float] | None = None  # a token, and the accelerator's peak


class Loader:
    """Batches as dicts of numpy arrays. A batch's arrays may be kept; their memory is used again when they are gone."""

    def __init__(self, parts: Parts, functions: tuple[Function, ...] = (), processes: int = 0, timeout: float = 4.0):
        self._parts = parts
        self.functions = functions
        self._process_count, self._timeout = processes, timeout
        self.step = 0
        self._totals = Totals(parts.kind.unit, parts.cores)
        self._maker = _Maker(parts, functions, self._totals)
        self._prefetch: Prefetch[tuple[Batch, Made]] | None = None
        self._closing: weakref.finalize[..., Any] | None = None
        self._closed = False
        self._logged = time.monotonic()
        self._steps = _steps(parts)
        self._turn = threading.Lock()  # of whoever asks for the next batch
        self._process = os.getpid()

    # Batches.

    def batch(self, k: int) -> Batch:
        """This rank's rows of global batch k, whatever was asked for before."""
        try:
            k = operator.index(k)
        except TypeError:
            raise TypeError(f"a batch is asked for by its number, not by {type(k).__name__}") from None
        if not 0 <= k < (MOST_STEPS if self._steps is None else self._steps):
            end = f" of {self._steps:,}" if self._steps is not None else ""
            raise IndexError(f"there is no batch {k:,}{end}")
        return self._maker.make(k)[0]

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        self._refuse_process()
        with self._turn:
            if self._closed:
                raise ConfigError("this loader is closed", next_step="make a new one with penstock.load")
            if self._steps is not None and self.step >= self._steps:
                self._stop()
                raise StopIteration
            started, is_start = time.perf_counter(), self._prefetch is None
            batch, made, ready = self._take()
            self.step += 1
            threads = self._prefetch.threads if self._prefetch else 0
            self._totals.add_taken(made, time.perf_counter() - started, ready, threads, is_start and threads > 0)
            self._log()
            return batch

    def _refuse_process(self) -> None:
        """After a fork its threads are gone, and every copy of it would give every batch."""
        if os.getpid() != self._process:
            raise ConfigError(
                f"this loader was made in process {self._process}, and is asked for batches in {os.getpid()}",
                where="a worker process of a DataLoader, or a fork",
                next_step="ask for them where it was made (num_workers=0: it has threads of its own), or make one in "
                "each process, with its rank= and world=",
            )

    def __len__(self) -> int:
        if self._steps is None:
            raise TypeError("a loader without epochs= has no end, and so no len()")
        return self._steps

    def _take(self) -> tuple[Batch, Made, int]:
        """The next batch, what it came to, and how many lay ready."""
        if self._parts.workers == 0 and not self._process_count:
            return *self._maker.make(self.step), 0
        if self._prefetch is None:
            self._prefetch = self._start()
        ready = self._prefetch.ready
        try:
            batch, made = self._prefetch.take()
        except BaseException:
            self._stop()  # whoever goes on is given this very batch again, as state() says
            raise
        return batch, made, ready

    def _start(self) -> Prefetch[tuple[Batch, Made]]:
        parts = self._parts
        maker = self._maker.with_processes(self._process_count, self._timeout)
        count = parts.workers or 1
        most = parts.workers or max(parts.cores, self._process_count)
        tuner = Tuner(max(count, self._process_count), most, parts.workers or _THREADS_THAT_WAIT)
        timing = self._totals.timing
        ahead = self._ahead_of_functions()
        prefetch = Prefetch(maker.make, self.step, self._steps, ahead, tuner, lambda: timing.waiting)
        self._maker = maker
        # A loader that is dropped without close() ends its threads and processes too: they do not refer to it.
        self._closing = weakref.finalize(self, _end, prefetch, maker)
        return prefetch

    def _ahead_of_functions(self) -> int:
        """How many batches may be ahead: functions may make larger ones than those that memory was shared out for."""
        parts = self._parts
        if not self.functions or parts.room is None:
            return parts.ahead
        batch, _ = self._maker.make(self.step)
        size = max(1, sum(array.nbytes for array in batch.values() if hasattr(array, "nbytes")))
        fits = parts.room // (size + parts.batch_bytes) - 2
        if fits < 1:
            raise PlanError(
                f"batches that map() makes do not fit: {format_size(size)} each, and memory= leaves "
                f"{format_size(parts.room)} for all of them",
                where="loader.map",
                next_step="more memory=, a smaller batch_size, or smaller dtypes in what the function returns",
            )
        return min(parts.ahead, fits)

    # Where it stands.

    def state(self) -> dict[str, Any]:
        """A small dict: the next batch, and what it is a batch of. Restores on any rank, world and workers."""
        return self._parts.recipe.state(self.step)

    def restore(self, state: Mapping[str, Any]) -> None:
        self._refuse_process()
        step = self._parts.recipe.step_of(state)
        if self._steps is not None and step > self._steps:
            raise ConfigError(
                f"this state is at batch {step:,}, and {self._parts.order.epochs_have} {self._steps:,}",
                where="loader.restore(state)",
                next_step="load with as many epochs as before, or more",
            )
        with self._turn:
            self._stop()
            self.step = step

    def stats(self) -> Stats:
        replaced = self._totals.replaced + self._maker.replaced
        return self._totals.snapshot(self._parts.ahead, self._process_count, replaced, self._parts.flops)

    def _log(self) -> None:
        every = self._parts.log_every
        if every is not None and time.monotonic() - self._logged >= every:
            self._logged = time.monotonic()
            log.info("%s", self.stats().line())

    # What else can be made of it.

    def map(self, function: Function, processes: int = 0, timeout: float = 4.0) -> Loader:
        """A loader whose batches went through `function`: in its threads, or in `processes` of their own.

        A process that ends, or is silent for `timeout` seconds, is replaced and its batch made again.
        """
        if not callable(function):
            raise ConfigError(
                f"map() takes a function, not {type(function).__name__}",
                where="loader.map",
                next_step="give a function of a batch that returns one",
            )
        check_count(processes, timeout)
        if processes or self._process_count:
            check_sendable(_Chain((*self.functions, function)))
        names = [*self._parts.recipe.settings.get("map", []), name_of(function)]
        settings = {**self._parts.recipe.settings, "map": names}
        parts = replace(self._parts, recipe=replace(self._parts.recipe, settings=settings))
        if self._process_count:  # one process runs them all
            processes, timeout = max(processes, self._process_count), max(timeout, self._timeout)
        made = Loader(parts, (*self.functions, function), processes, timeout)
        made.step = self.step
        return made

    def to_torch(self, *arguments: Any, **options: Any) -> Any:
        from penstock.loader.consumers.to_torch import to_torch

        return to_torch(self, *arguments, **options)

    def to_jax(self, *arguments: Any, **options: Any) -> Any:
        from penstock.loader.consumers.to_jax import to_jax

        return to_jax(self, *arguments, **options)

    def to_maxtext(self) -> Any:
        from penstock.loader.consumers.to_maxtext import to_maxtext

        return to_maxtext(self)

    def dataset(self) -> Any:
        """A grain.MapDataset over batch(k)."""
        from penstock.loader.consumers.to_grain import to_grain

        return to_grain(self)

    @property
    def arguments(self) -> dict[str, Any]:
        """What load() was given: penstock.load(**loader.arguments), mapped by `functions`, makes an equal loader."""
        return dict(self._parts.arguments)

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Of the tokens that events become, for penstock.decode; None where the data brings tokens or numbers."""
        return self._parts.kind.vocabulary

    # The end.

    def _stop(self) -> None:
        if self._closing:
            self._closing()
            self._totals.replaced += self._maker.replaced
            self._closing = self._prefetch = None
            self._maker = _Maker(self._parts, self.functions, self._totals)

    def close(self) -> None:
        self._stop()
        self._closed = True

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()


def _steps(parts: Parts) -> int | None:
    """Batches in all, the same on every rank."""
    rows, size = parts.order.rows, parts.batch_size
    if rows is None:
        return None
    return rows // size if parts.remainder == "drop" else -(-rows // size)


def _end(prefetch: Prefetch[Any], maker: _Maker) -> None:
    if prefetch.is_own_thread():  # the loader was collected there, and a thread cannot wait for itself
        threading.Thread(target=_end, args=(prefetch, maker), name="penstock-end").start()
        return
    maker.close()
    prefetch.close()


class _Maker:
    """Makes batches. It does not know the Loader, so that a forgotten loader can be collected."""

    def __init__(
        self, parts: Parts, functions: tuple[Function, ...], totals: Totals, processes: Processes | None = None
    ) -> None:
        self._parts, self._functions, self._totals, self._processes = parts, functions, totals, processes
        self._rows = parts.batch_size // parts.world
        self._buffers = Buffers(parts.kind.layout, self._rows, keep=parts.ahead + 2)

    def with_processes(self, count: int, timeout: float) -> _Maker:
        if not count:
            return self
        return _Maker(self._parts, self._functions, self._totals, Processes(_Chain(self._functions), count, timeout))

    @property
    def replaced(self) -> int:
        return self._processes.replaced if self._processes else 0

    def make(self, k: int) -> tuple[Batch, Made]:
        parts, timing = self._parts, Timing()
        started = time.perf_counter()
        draws = parts.draw(k * parts.batch_size + parts.rank * self._rows, self._rows)
        drawn, cpu, faults = time.perf_counter(), time.thread_time(), _major_faults()
        batch = self._buffers.take()
        made = parts.kind.fill(draws, batch)
        filled = time.perf_counter()
        if _major_faults() > faults:
            timing.read = max(0.0, filled - drawn - (time.thread_time() - cpu))
        timing.read = max(timing.read, made.read_seconds)
        before_map = time.thread_time()
        batch = self._apply(k, batch)
        timing.map_computing = time.thread_time() - before_map
        timing.order, timing.map = drawn - started, time.perf_counter() - filled
        timing.encode = filled - drawn - timing.read
        timing.alone = made.alone_seconds
        self._totals.add_made(made, timing)
        return batch, made

    def _apply(self, k: int, batch: Batch) -> Batch:
        if self._processes:
            return self._processes(k, batch)
        for function in self._functions:
            try:
                batch = function(batch)
            except Exception as error:
                error.add_note(f"in step {k} of map({name_of(function)})")
                raise
            if found := other_types(batch):
                raise wrong_result(found, name_of(function), place_of(function), k)
        return batch

    def close(self) -> None:
        if self._processes:
            self._processes.close()


@dataclass(frozen=True)
class _Chain:
    """Functions one after the other, as one that can be sent to a process."""

    functions: tuple[Function, ...]

    @property
    def func(self) -> Function:
        """Which one errors of the process name: the last, as of a functools.partial."""
        return self.functions[-1]

    def __call__(self, batch: Batch) -> Batch:
        for function in self.functions:
            batch = function(batch)
        return batch


def make_draw(order: Order) -> Callable[[int, int], Draws]:
    if not compiled():
        return order.draw
    from penstock.loader.compiled import order as kernel

    table = kernel.make_table(order)
    return lambda first, count: kernel.draw(table, first, count)


def _major_faults() -> int:
    """Pages this thread had to wait for."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_majflt if hasattr(resource, "RUSAGE_THREAD") else 0
