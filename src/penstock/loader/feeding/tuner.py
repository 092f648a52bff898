"""Tuner: how many threads make batches. A fixed number, or one more whenever the consumer waits and one more helps.

It starts at one and looks at a stretch of batches at a time. Where the consumer waited, it tries one thread more, and
keeps it if the next stretch was faster. The order of batches does not depend on it.
"""

import time
from collections.abc import Callable

_STRETCH_SECONDS, _STRETCH_BATCHES = 0.25, 8
_WAITS = 0.01  # of the time: below that, nothing is to be gained
_HELPED, _PART_OF_A_THREAD = 1.04, 0.3  # times as fast as before; of many threads one more is worth less than that
_PATIENCE = 20  # stretches until a number that did not help is tried again
_BLOCKED = 0.4  # of the threads' time: above that they wait, and more of them than cores help


class Tuner:
    """`threads` is the number wanted now. `most_blocked` is the limit for threads that wait rather than compute."""

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
        """A batch was taken after a wait; the others are the threads' time so far, and that spent waiting."""
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
                self._rest = _PATIENCE
            self._before = None
        if self._rest:
            self._rest -= 1
        elif wait_share > _WAITS and self.threads < most:
            self._before = speed
            self.threads += 1
