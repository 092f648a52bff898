"""Prefetch: make batches ahead of the consumer, on threads, and hand them over in order. Used by loader.py.

A thread takes the number of the next batch, makes it, and lays it down under that number; so order never depends on
how many threads there are or how fast they are. No more than `depth` batches are ahead of the consumer. When so many
are ready, the threads rest until half of them are taken: a thread that wakes for every batch taken would contend with
the consumer for the interpreter's lock at every step, instead of while the accelerator computes.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

from penstock.base.errors import ConfigError

T = TypeVar("T")
_PATIENCE = 10  # seconds for what is being made when a loader is closed
_STRETCH_SECONDS, _STRETCH_BATCHES = 0.25, 8
_WAITS = 0.01  # of the time: below that, nothing is to be gained
_HELPED, _PART_OF_A_THREAD = 1.04, 0.3  # times as fast as before; of many threads one more is worth less than that
_RESTS = 20  # stretches until a number that did not help is tried again
_BLOCKED = 0.4  # of the threads' time: above that they wait, and more of them than cores help
log = logging.getLogger("penstock")


class Tuner:
    """Number of threads that make batches: `threads` is the number wanted now.

    It looks at a stretch of batches at a time. Where the consumer waited, it tries one thread more, and keeps it if the
    next stretch was faster. `most_blocked` is the limit for threads that wait rather than compute.
    """

    def __init__(
        self, threads: int, most: int, most_blocked: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.threads = threads
        self._most, self._most_blocked, self._clock = most, max(most, most_blocked), clock
        self._since = clock()
        self._batches, self._waited = 0, 0.0
        self._busy = self._blocked = 0.0
        self._before: float | None = None  # batches per second without the thread that is on trial
        self._rest = 0

    def observe(self, waited: float, busy_seconds: float, blocked_seconds: float) -> None:
        """Note that a batch was taken after `waited` seconds, with the threads' total and waiting time so far."""
        self._batches += 1
        self._waited += waited
        elapsed = self._clock() - self._since
        if self._batches < _STRETCH_BATCHES or elapsed < _STRETCH_SECONDS:
            return
        busy, blocked = busy_seconds - self._busy, blocked_seconds - self._blocked
        self._decide(self._batches / elapsed, self._waited / elapsed, blocked / busy if busy else 0.0)
        self._busy, self._blocked = busy_seconds, blocked_seconds
        self._since, self._batches, self._waited = self._clock(), 0, 0.0

    def _decide(self, speed: float, wait_share: float, blocked_share: float) -> None:
        most = self._most_blocked if blocked_share > _BLOCKED else self._most
        if self._before is not None:
            helped = min(_HELPED, 1 + _PART_OF_A_THREAD / self.threads)
            if speed < helped * self._before and self.threads > 1:
                self.threads -= 1
                self._rest = _RESTS
            self._before = None
        if self._rest:
            self._rest -= 1
        elif wait_share > _WAITS and self.threads < most:
            self._before = speed
            self.threads += 1


class Prefetch(Generic[T]):
    """Batches `first` and on, up to `end`. `take` gives the next; an error comes out where its batch would have.

    `blocked` says how many seconds the threads have waited so far, for the disk or in a function of the user's.
    """

    def __init__(
        self,
        make: Callable[[int], T],
        first: int,
        end: int | None,
        depth: int,
        tuner: Tuner,
        blocked: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._make, self._end, self.depth = make, end, depth
        self._ticket = self._wanted = first
        self._done: dict[int, T | BaseException] = {}
        self._lock = threading.Lock()
        self._arrived, self._wanted_more = threading.Condition(self._lock), threading.Condition(self._lock)
        self._is_filling, self._closed = True, False
        self._tuner = tuner
        self._blocked, self._busy_seconds = blocked, 0.0
        self._threads: list[threading.Thread] = []
        with self._lock:
            self._start_threads()

    @property
    def threads(self) -> int:
        return self._tuner.threads

    @property
    def ready(self) -> int:
        return len(self._done)

    def take(self) -> T:
        """The next batch, waited for if it is not ready."""
        started = time.perf_counter()
        with self._lock:
            while self._wanted not in self._done:
                if self._closed:
                    raise ConfigError(
                        "this loader was closed while another thread waited for a batch",
                        next_step="close it in the thread that takes the batches, after the last one",
                    )
                self._arrived.wait()
            result = self._done.pop(self._wanted)
            self._wanted += 1
            self._tuner.observe(time.perf_counter() - started, self._busy_seconds, self._blocked())
            self._start_threads()
            self._fill_up()
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        """End the threads; a batch that is being made is finished first, unless that takes too long."""
        with self._lock:
            self._closed = True
            self._arrived.notify_all()
            self._wanted_more.notify_all()
        end = time.monotonic() + _PATIENCE
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        left = sum(thread.is_alive() for thread in self._threads)
        if left:
            log.warning(
                "%d batches are still being made %d s after close(), in map()? They are left alone", left, _PATIENCE
            )
        self._done.clear()

    def is_own_thread(self) -> bool:
        return threading.current_thread() in self._threads

    def _start_threads(self) -> None:
        while len(self._threads) < self._tuner.threads:
            thread = threading.Thread(
                target=self._run, args=(len(self._threads),), name=f"penstock-{len(self._threads)}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def _run(self, number: int) -> None:
        while (ticket := self._next_ticket(number)) is not None:
            started = time.perf_counter()
            try:
                result: T | BaseException = self._make(ticket)
            except BaseException as error:  # it is the consumer's: take() raises it
                result = error
            with self._lock:
                self._busy_seconds += time.perf_counter() - started
                self._done[ticket] = result
                if ticket == self._wanted:
                    self._arrived.notify_all()
            del result

    def _next_ticket(self, number: int) -> int | None:
        """The batch to make next, when there is room for one more and this thread is wanted; None at the end."""
        with self._lock:
            while not self._closed:
                if self._end is not None and self._ticket >= self._end:
                    return None
                if number < self._tuner.threads and self._is_filling:
                    self._ticket += 1
                    self._is_filling = self._ticket < self._wanted + self.depth
                    return self._ticket - 1
                self._wanted_more.wait()
            return None

    def _fill_up(self) -> None:
        """Wake the threads when half of what may be ahead is taken, or when one more of them is wanted."""
        if self._is_filling or self._ticket - self._wanted <= self.depth // 2:
            self._is_filling = self._ticket < self._wanted + self.depth
            self._wanted_more.notify_all()
