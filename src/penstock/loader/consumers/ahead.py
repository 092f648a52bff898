"""Ahead: place batches on a device before they are needed, and count those taken. Next: to_torch.py, to_jax.py."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_whole
from penstock.loader.batches import Batch, BatchSource, Loop

T = TypeVar("T")
_MOST = 1024  # batches


class Ahead(Generic[T]):
    """A loader's batches, placed. `place` sends one on its way and returns the function that hands it out.

    Its state counts what the consumer got, not what is ahead. After an error, whatever raised it, the consumer is
    given the batch that it did not get.
    """

    def __init__(self, loader: BatchSource, place: Callable[[Batch], Callable[[], T]], ahead: int) -> None:
        if not is_whole(ahead, 0, _MOST):
            raise ConfigError(
                f"ahead={ahead!r} batches ahead is not possible",
                where="to_torch or to_jax",
                next_step=f"give a whole number from 0 to {_MOST:,}: ahead=2",
            )
        self._loader = loader
        self._place = place
        self._ahead = ahead
        self._waiting: deque[tuple[Callable[[], T], int]] = deque()  # each with the number of the batch after it
        self._depth = 0  # how many may wait by now
        self._step: int | None = None  # the consumer's; None while nothing is ahead: then it is the loader's
        self._lock = threading.RLock()  # held to take and to restore; a signal handler may restore in between
        self._process = os.getpid()

    def __iter__(self) -> Loop[T]:
        return Loop(self, self._loader.loop_end(self.step))

    @property
    def step(self) -> int:
        """Batches that the consumer got."""
        return self._loader.step if self._step is None else self._step

    def __next__(self) -> T:
        with self._lock:
            step = self._step = self.step
            try:
                self._fill()
                hand_out, after = self._waiting.popleft()
                placed = hand_out()
                self._depth = min(self._ahead, self._depth + 1)
                self._step = after if self._waiting else None
                return placed
            except BaseException:  # Ctrl-C too; and the end, where the loader is put back to where it is
                if os.getpid() == self._process:  # in a fork the loader refuses, and has threads that are not there
                    self.restore({**self._loader.state(), "step": step})
                raise

    def __len__(self) -> int:
        return len(self._loader)

    def state(self) -> dict[str, Any]:
        state, step = self._loader.state(), self._step
        return state if step is None else {**state, "step": step}

    def restore(self, state: Mapping[str, Any], phases: Sequence[Mapping[str, Any]] | None = None) -> None:
        with self._lock:
            self._loader.restore(state, phases)  # it may refuse: then all stays as it was
            self._waiting.clear()
            self._depth, self._step = 0, None

    def _fill(self) -> None:
        """Start batches ahead. The first batch is given at once; from the second on, one more per step is started."""
        while len(self._waiting) <= self._depth:
            try:
                batch = next(self._loader)
            except StopIteration:
                if self._waiting:
                    return
                raise
            self._waiting.append((self._place(batch), self._loader.step))
            del batch  # its buffer goes back to the loader as soon as nothing that was placed needs it
