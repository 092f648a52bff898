"""Verdict: the rhythm of a consumer and its makers -> what limits, what to change, and the sentence. Used by stats.py.

`threads` makers give a batch every making / threads seconds, the consumer takes one every step. Where that is too slow
on average, more makers help, as far as there are cores for what they compute, and as far as they need not do it one
after the other. Where it is fast enough, and batches are waited for all the same, they are asked for in bursts, and
more batches ahead help.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

NOT_BOUND = 0.01  # of the consumer's time: below that, nobody would notice
_MARGIN = 1.05  # times what is needed: makers that are just fast enough are waited for now and then
_ALONE = 0.7  # of the time from batch to batch: above that, waiting for one another is what limits
_HELPS = 1.05  # times as fast: less is not worth a change, unless the waiting ends
_MOST_MAKERS = 64
_FEWEST = 8  # batches: fewer are the start, and say nothing of what comes


@dataclass(frozen=True)
class Fix:
    """A change, and what it does: the share of the time still waited, and how many times as fast it is.

    `change` has an option of load() (`workers`, `ahead`), or of map() (`processes`).
    """

    change: dict[str, Any]
    wait_share: float
    speedup: float


@dataclass(frozen=True)
class Rhythm:
    """Seconds per batch, on average."""

    step: float  # the consumer's own
    wait: float
    stages: dict[str, float]  # of one maker
    computing: float  # of that, on a core
    map_computing: float
    alone: float  # of one maker, while no other can do the same: files that one thread reads at a time
    consumer_computing: float  # of the step
    threads: int  # that make batches; 0: the consumer's own does
    processes: int  # of map(); 0: it runs in the threads
    cores: int
    ahead: int
    burst: float  # batches, at most, that were asked for before they could have been made

    @property
    def interval(self) -> float:
        return self.step + self.wait

    @property
    def wait_share(self) -> float:
        return self.wait / self.interval if self.interval else 0.0

    @property
    def making(self) -> float:
        return sum(self.stages.values())

    @property
    def stage(self) -> str:
        return max(self.stages, key=self.stages.__getitem__)

    @property
    def load(self) -> float:
        """The share of their time that the makers are at work."""
        return min(1.0, self.making / (max(1, self.threads) * self.interval)) if self.interval else 0.0

    @property
    def free_cores(self) -> float:
        return max(0.5, self.cores - (self.consumer_computing / self.interval if self.interval else 0.0))


Answer = tuple[str | None, Fix | None, str]


def judge(rhythm: Rhythm, batches: int) -> Answer:
    """The limiting stage, what to change, and the sentence, after so many batches."""
    if batches < _FEWEST:
        return None, None, f"too early to tell: {_counted(batches, 'batch')} so far, and it takes {_FEWEST}"
    is_slower = rhythm.making > rhythm.threads * rhythm.step
    if rhythm.wait_share < NOT_BOUND and rhythm.threads and is_slower and batches < rhythm.ahead:
        return None, None, f"too early to tell: no waiting so far, and up to {rhythm.ahead} batches were made ahead"
    if rhythm.wait_share < NOT_BOUND:
        return None, None, f"not input-bound: waits {rhythm.wait_share:.1%} of the time, makers busy {rhythm.load:.0%}"
    if rhythm.threads and rhythm.making <= rhythm.threads * rhythm.step:
        return rhythm.stage, *_ahead(rhythm)
    if rhythm.stage == "map" and rhythm.processes:
        # A thread that waits for a process to be free makes nothing.
        own = {**rhythm.stages, "map": rhythm.stages["map"] * min(1.0, rhythm.processes / rhythm.threads)}
        free = replace(rhythm, stages=own, computing=rhythm.computing + own["map"])
        return rhythm.stage, *_more(rhythm, _makers(free, "processes"), rhythm.processes, "process")
    if rhythm.stage == "map" and rhythm.map_computing > rhythm.step:
        # It holds the interpreter's lock for longer than a step: threads would wait for each other.
        free = replace(rhythm, stages={**rhythm.stages, "map": rhythm.map_computing})
        return rhythm.stage, *_more(rhythm, _makers(free, "processes"), 0, "process")
    return rhythm.stage, *_more(rhythm, _makers(rhythm, "workers"), rhythm.threads, "worker")


def _ahead(rhythm: Rhythm) -> tuple[Fix, str]:
    """More batches ahead: for a consumer that takes several at once, or for single batches that take long."""
    ahead = math.ceil(_MARGIN * rhythm.burst) + 1
    ahead = ahead if ahead > rhythm.ahead else 2 * rhythm.ahead
    fix = Fix({"ahead": ahead}, 0.0, rhythm.interval / rhythm.step)
    return fix, f"{_head(rhythm)}, fast enough on average; more batches ahead remove it (ahead={ahead})"


def _makers(rhythm: Rhythm, option: str) -> Fix:
    """As many makers as the consumer needs, within the number of cores and of those that can run in parallel."""
    needed = _MARGIN * rhythm.making / max(rhythm.step, 1e-6)
    fed = rhythm.making * rhythm.free_cores / max(rhythm.computing, 1e-6)
    together = math.ceil(rhythm.making / rhythm.alone) if rhythm.alone else _MOST_MAKERS
    count = min(math.ceil(needed), max(1, round(fed)), together, _MOST_MAKERS)
    interval = max(rhythm.step, rhythm.making / count, rhythm.computing / rhythm.free_cores, rhythm.alone, 1e-9)
    return Fix({option: count}, max(0.0, 1 - rhythm.step / interval), rhythm.interval / interval)


def _more(rhythm: Rhythm, fix: Fix, now: int, noun: str) -> tuple[Fix | None, str]:
    """Say what the fix comes to beside the `now` workers or processes there are; none, if it comes to nothing."""
    ((option, count),) = fix.change.items()
    is_no_use = count <= now or (fix.speedup < _HELPS and fix.wait_share >= NOT_BOUND)
    if is_no_use and rhythm.alone > _ALONE * rhythm.interval:
        return None, f"{_head(rhythm)}; one thread at a time reads these files: prepare them as columns (penstock run)"
    if is_no_use:
        used = f"all {rhythm.cores} cores are used: give it more, or have each row do with less work"
        return None, f"{_head(rhythm)}; {used}"
    more, s = f"{count - now} more" if now else _counted(count, noun), "s" if count - now == 1 else ""
    does = f"remove{s} it" if fix.wait_share < NOT_BOUND else f"make{s} it {fix.speedup:.1f} times as fast"
    return fix, f"{_head(rhythm)}; {more} {does} ({option}={count})"


def _head(rhythm: Rhythm) -> str:
    bound = f"input-bound {rhythm.wait_share:.0%}: {rhythm.stage}"
    if not rhythm.threads:
        return f"{bound}, in the consumer's own thread"
    if rhythm.stage == "map" and rhythm.processes:
        return f"{bound}, {_counted(rhythm.processes, 'process')} at {rhythm.load:.0%}"
    return f"{bound}, {_counted(rhythm.threads, 'thread')} at {rhythm.load:.0%}"


def _counted(count: int, noun: str) -> str:
    plural = f"{noun}es" if noun.endswith(("s", "ch")) else f"{noun}s"
    return f"{count} {noun if count == 1 else plural}"
