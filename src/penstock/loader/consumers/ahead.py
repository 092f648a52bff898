"""Ahead: a thread places batches on a device before they are asked for. Next: to_torch.py, to_jax.py."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_whole
from penstock.base.shown import Shown
from penstock.loader.batches import Batch, BatchSource, Loop

T = TypeVar("T")
HandOut = Callable[[], T]
_MOST = 1024  # batches
_RESTS = 0.6  # of a step
_SHORTEST_REST, _LONGEST_REST = 0.001, 0.1  # seconds; after a pause, a step is no measure for the next


class Ahead(Shown, Generic[T]):
    """A loader's batches, placed. `place` sends one on its way and returns the function that hands it out.

    Its state counts what the consumer got, not what is ahead. After an error the consumer gets the batch that it
    missed. With `ahead=0` there is no thread: a batch is placed when it is asked for.
    """

    def __init__(self, loader: BatchSource, place: Callable[[Batch], HandOut[T]], ahead: int) -> None:
        if not is_whole(ahead, 0, _MOST):
            raise ConfigError(
                f"ahead={ahead!r} batches ahead is not possible",
                where="to_torch or to_jax",
                next_step=f"give a whole number from 0 to {_MOST:,}: ahead=2",
            )
        self._loader = loader
        self._place = place
        self._ahead = ahead
        self._placer: Placer[T] | None = None
        self._closing: weakref.finalize[..., Any] | None = None
        self._step: int | None = None  # the consumer's; None while nothing is ahead: then it is the loader's
        self._lock = threading.RLock()  # held to take and to restore; a signal handler may restore in between
        self._process = os.getpid()

    def facts(self) -> dict[str, str]:
        return {"batches": f"{self.step:,} taken, {self._ahead} ahead", "of": repr(self._loader)}

    def __iter__(self) -> Loop[T]:
        return Loop(self, self.loop_end())

    def loop_end(self) -> int | None:
        """Number after the last batch of a `for` loop that begins now."""
        return self._loader.loop_end(self.step)

    @property
    def step(self) -> int:
        """Batches that the consumer got."""
        return self._loader.step if self._step is None else self._step

    def __next__(self) -> T:
        with self._lock:
            step = self._step = self.step
            try:
                placed, self._step = self._take()
                return placed
            except BaseException:  # Ctrl-C too; and the end, where the loader is put back to where it is
                if os.getpid() == self._process:  # in a fork the loader refuses, and has threads that are not there
                    self.restore(self._loader.state_at(step))
                raise

    def _take(self) -> tuple[T, int | None]:
        """The next batch, and the consumer's step after it."""
        if not self._ahead or os.getpid() != self._process:
            return self._place(next(self._loader))(), None
        while True:
            placer = self._placer = self._placer or self._start()
            taken = placer.take()
            if placer is not self._placer or taken is None:  # a signal handler has restored another place meanwhile
                continue
            if isinstance(taken, BaseException):
                raise taken
            hand_out, after = taken
            return hand_out(), after

    def _start(self) -> Placer[T]:
        placer = Placer(self._loader, self._place, self._ahead)
        self._closing = weakref.finalize(self, placer.stop)  # a consumer that is dropped ends its thread too
        return placer

    def __len__(self) -> int:
        return len(self._loader)

    def state(self) -> dict[str, Any]:
        return self._loader.state_at(self.step)

    def restore(self, state: Mapping[str, Any], phases: Sequence[Mapping[str, Any]] | None = None) -> None:
        with self._lock:
            step = self.step
            self._stop()
            try:
                self._loader.restore(state, phases)
                self._step = None
            except BaseException:  # refused: the consumer goes on where it was
                self._loader.restore(self._loader.state_at(step))
                self._step = None
                raise

    def _stop(self) -> None:
        if self._closing:
            self._closing()
        self._placer = self._closing = None


class Placer(Generic[T]):
    """A thread that takes batches from a loader and places them, `ahead` of them before they are taken.

    A thread that works beside the consumer contends with it for the interpreter's lock. So it rests until the consumer
    has started its step and waits for the device, unless the consumer would have to wait for a batch. Taking a batch
    wakes it only then: what the consumer does per step is all that a step can notice.
    """

    def __init__(self, loader: BatchSource, place: Callable[[Batch], HandOut[T]], ahead: int) -> None:
        self._loader, self._place, self._ahead = loader, place, ahead
        self._placed: SimpleQueue[tuple[HandOut[T], int] | BaseException | None] = SimpleQueue()
        self._stopping = False
        self._hurry = threading.Event()  # none is placed, or it is stopping: no time to rest
        self._taken_at, self._step_seconds = time.perf_counter(), 0.0
        self._thread = threading.Thread(target=self._run, name="penstock-ahead", daemon=True)
        self._thread.start()

    def take(self) -> tuple[HandOut[T], int] | BaseException | None:
        """A batch and the number of the one after it, or the error that came in its place. None: it was stopped."""
        taken = self._placed.get()
        now = time.perf_counter()
        self._taken_at, self._step_seconds = now, now - self._taken_at
        if self._placed.empty():
            self._hurry.set()
        return taken

    def stop(self) -> None:
        """End the thread; a batch that it waits for is waited for."""
        self._stopping = True
        self._hurry.set()
        self._placed.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                self._rest()
                if self._stopping:
                    return
                self._placed.put((self._place(next(self._loader)), self._loader.step))
        except BaseException as error:  # the consumer's: take() raises it
            self._placed.put(error)

    def _rest(self) -> None:
        while True:
            self._hurry.clear()
            seconds = 0 if self._stopping else self._seconds_of_rest()
            if seconds <= 0:
                return
            self._hurry.wait(seconds)

    def _seconds_of_rest(self) -> float:
        """Until the middle of the step that begins when a batch is taken and makes room for another."""
        placed, since = self._placed.qsize(), time.perf_counter() - self._taken_at
        if not placed:
            return 0
        if placed < self._ahead:
            return min(_RESTS * self._step_seconds, _LONGEST_REST) - since
        # The step of the next batch. Where that is late, look again ever more rarely.
        return min(max((1 + _RESTS) * self._step_seconds - since, _RESTS * since, _SHORTEST_REST), _LONGEST_REST)
