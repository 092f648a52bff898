"""How many threads make batches: as many as help, and no more, whatever the consumer does. Time is made up here."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.loader.feeding.prefetch import Tuner

LONG = 60.0  # seconds: about two hundred stretches


class World:
    """Threads that each need `making` seconds for a batch, `blocked` of them waiting, and a consumer of `step`."""

    def __init__(self, making: float, step: float, cores: int, blocked: float = 0.0) -> None:
        self.now = 0.0
        self.making, self.step, self.blocked = making, step, blocked
        self.cores = cores
        self.tuner = Tuner(1, cores, 16, clock=lambda: self.now)
        self.busy = self.waited_for = 0.0

    def interval(self, threads: int) -> float:
        """Of batches that `threads` make: those that compute share the cores."""
        computing = self.making - self.blocked
        return max(self.making / threads, computing / self.cores)

    def run(self, seconds: float) -> list[int]:
        """The threads there were after every batch."""
        threads, end = [], self.now + seconds
        while self.now < end:
            made = self.interval(self.tuner.threads)
            waited = max(0.0, made - self.step)
            self.now += self.step + waited
            self.busy += self.making
            self.waited_for += self.blocked
            self.tuner.observe(waited, self.busy, self.waited_for)
            threads.append(self.tuner.threads)
        return threads


def usual(threads: list[int]) -> int:
    late = threads[len(threads) // 2 :]
    return max(set(late), key=late.count)


@pytest.mark.parametrize(
    ("making", "step", "cores", "best"),
    [
        (0.010, 0.020, 8, 1),  # one is fast enough
        (0.010, 0.009, 8, 2),
        (0.010, 0.003, 8, 4),
        (0.010, 0.000, 8, 8),  # hungry: all the cores
        (0.010, 0.000, 2, 2),
        (0.300, 0.100, 8, 3),  # batches that take longer than a look
    ],
)
def test_it_settles_at_the_number_that_feeds_the_consumer(making, step, cores, best):
    world = World(making, step, cores)
    threads = world.run(LONG * max(1.0, making / 0.02))
    assert threads[0] == 1
    assert usual(threads) == best
    assert max(threads) <= cores


def test_threads_that_wait_may_be_more_than_cores():
    world = World(making=0.1, step=0.011, cores=2, blocked=0.095)
    assert 9 <= usual(world.run(LONG)) <= 10


def test_a_thread_that_does_not_help_is_taken_back():
    """What limits is elsewhere: however many there are, batches come as fast."""
    world = World(making=0.01, step=0.0, cores=8)
    world.interval = lambda _: 0.01  # type: ignore[method-assign]
    threads = world.run(LONG)
    assert usual(threads) == 1
    assert max(threads) == 2
    assert threads.count(2) < 0.15 * len(threads)


def test_it_adapts_when_the_consumer_becomes_faster():
    world = World(making=0.01, step=0.02, cores=8)
    assert usual(world.run(LONG)) == 1
    world.step = 0.003
    assert usual(world.run(LONG)) == 4


def test_a_fixed_number_stays():
    fixed = Tuner(3, 3, 3, clock=ticking(0.1))
    for batch in range(200):
        fixed.observe(0.05, batch * 0.1, batch * 0.1)
    assert fixed.threads == 3


def ticking(tick: float) -> Callable[[], float]:
    ticks = iter(range(10**9))
    return lambda: tick * next(ticks)
