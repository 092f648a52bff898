"""Stats: what a loader did, where its time went, and why the accelerator waits, in a sentence. Read by people."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass, field
from typing import Any

from penstock.loader.tables import Made

STAGES = ("order", "read", "encode", "map")
_NOT_BOUND = 0.01  # of the consumer's time: below that, nobody would notice
_SATURATED = 0.85  # of the threads' time


@dataclass
class Timing:
    """Seconds of one batch in each stage. `read` is what a thread was blocked on the disk, and verifying."""

    order: float = 0.0
    read: float = 0.0
    encode: float = 0.0
    map: float = 0.0

    @property
    def total(self) -> float:
        return self.order + self.read + self.encode + self.map


@dataclass(frozen=True)
class Fix:
    """What to change, and what that does: the share of the time that would still be waited."""

    change: dict[str, Any]
    wait_share: float
    speedup: float


@dataclass(frozen=True)
class Stats:
    """A snapshot. Seconds are the consumer's since its first batch; `stages` are the makers', over their threads."""

    batches: int
    rows: int
    tokens: int  # useful ones: neither padding nor masked
    unit: str
    seconds: float
    first_batch_seconds: float
    wait_seconds: float
    padding: float
    tokens_per_second: float
    stages: dict[str, float]
    made: int
    threads: int
    busy: float  # share of the threads' time
    ready: float  # batches that lay ready when one was asked for, on average
    ahead: int  # at most
    draws: int
    draws_unused: int
    coverage: float  # draws used, of those that an epoch has
    counts: dict[str, int]
    verified_bytes: int
    verify_seconds: float
    replaced_processes: int
    mfu: float | None
    limiting: str | None
    fix: Fix | None
    verdict: str

    @property
    def wait_share(self) -> float:
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """For a log."""
        mfu = f", MFU {self.mfu:.1%}" if self.mfu is not None else ""
        return (
            f"{self.batches:,} batches, {self.tokens_per_second:,.0f} {self.unit}/s, padding {self.padding:.1%}, "
            f"waits {self.wait_share:.1%}, {self.ready:.1f} of {self.ahead} batches ready{mfu}; {self.verdict}"
        )


@dataclass
class Totals:
    """Sums, kept while the loader runs; `snapshot` makes Stats of them."""

    unit: str
    cores: int
    made: Made = field(default_factory=Made)
    timing: Timing = field(default_factory=Timing)
    batches_made: int = 0
    taken: int = 0
    waited: float = 0.0
    first_wait: float = 0.0
    ready: int = 0
    started: float = 0.0
    taken_made: Made = field(default_factory=Made)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_made(self, made: Made, timing: Timing) -> None:
        with self.lock:
            self.batches_made += 1
            _add(self.made, made)
            for stage in STAGES:
                setattr(self.timing, stage, getattr(self.timing, stage) + getattr(timing, stage))

    def add_taken(self, made: Made, waited: float, ready: int) -> None:
        """The first batch starts the clock: what came before is the start, and not the rhythm."""
        with self.lock:
            if not self.taken:
                self.first_wait, self.started = waited, time.perf_counter()
            else:
                self.waited += waited
                self.ready += ready
                _add(self.taken_made, made)
            self.taken += 1

    def snapshot(
        self, threads: int, ahead: int, mapping: str, replaced: int, flops: tuple[float, float] | None
    ) -> Stats:
        with self.lock:
            seconds = time.perf_counter() - self.started if self.taken else 0.0
            after_first, per_second = self.taken - 1, _ratio(self.taken_made.tokens, seconds)
            stages = {stage: getattr(self.timing, stage) for stage in STAGES}
            per_batch = _ratio(self.timing.total, self.batches_made)
            limits = _Limits(
                wait_share=_ratio(self.waited, seconds),
                step=_ratio(seconds - self.waited, after_first),
                per_batch=per_batch,
                stages={stage: _ratio(value, self.batches_made) for stage, value in stages.items()},
                threads=max(1, threads),
                cores=self.cores,
                ahead=ahead,
                mapping=mapping,
            )
            limiting, fix, verdict = limits.verdict() if after_first > 0 else (None, None, "no batch was asked for yet")
            return Stats(
                batches=self.taken,
                rows=self.taken_made.rows,
                tokens=self.taken_made.tokens,
                unit=self.unit,
                seconds=seconds,
                first_batch_seconds=self.first_wait,
                wait_seconds=self.waited,
                padding=1 - _ratio(self.made.filled, self.made.room) if self.made.room else 0.0,
                tokens_per_second=per_second,
                stages=stages,
                made=self.batches_made,
                threads=threads,
                busy=min(1.0, _ratio(per_batch * after_first, seconds * max(1, threads))),
                ready=_ratio(self.ready, after_first),
                ahead=ahead,
                draws=self.made.draws,
                draws_unused=self.made.draws - self.made.draws_used,
                coverage=_ratio(self.made.draws_used, self.made.draws),
                counts=dict(self.made.counts),
                verified_bytes=self.made.verified_bytes,
                verify_seconds=self.made.verify_seconds,
                replaced_processes=replaced,
                mfu=_ratio(self.taken_made.room, seconds) * flops[0] / flops[1] if flops and seconds else None,
                limiting=limiting,
                fix=fix,
                verdict=verdict,
            )


def _add(total: Made, made: Made) -> None:
    for name in ("rows", "tokens", "filled", "room", "draws", "draws_used", "verified_bytes", "verify_seconds"):
        setattr(total, name, getattr(total, name) + getattr(made, name))
    for name, count in made.counts.items():
        total.counts[name] = total.counts.get(name, 0) + count


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0


@dataclass(frozen=True)
class _Limits:
    """The numbers a verdict follows from: seconds a batch, of the consumer's own step and of each stage."""

    wait_share: float
    step: float
    per_batch: float
    stages: dict[str, float]
    threads: int
    cores: int
    ahead: int
    mapping: str  # where map() runs: "", "threads" or "processes"

    def verdict(self) -> tuple[str | None, Fix | None, str]:
        """Which stage limits, what to change, and the sentence."""
        stage = max(self.stages, key=self.stages.__getitem__)
        if self.wait_share < _NOT_BOUND:
            share = _ratio(self.per_batch, self.threads * (self.step or 1e-9))
            return None, None, f"not input-bound: waits {self.wait_share:.1%} of the time, makers busy {share:.0%}"
        load = min(1.0, _ratio(self.per_batch, self.threads * self._interval))
        head = f"input-bound {self.wait_share:.0%}: {stage}, {_threads(self.threads)} at {load:.0%}"
        if load < _SATURATED:
            return self._uneven(stage, head)
        return self._saturated(stage, head)

    @property
    def _interval(self) -> float:
        """Seconds from batch to batch, as it is."""
        return self.step / (1 - self.wait_share) if self.wait_share < 1 else self.per_batch / self.threads

    def _saturated(self, stage: str, head: str) -> tuple[str, Fix | None, str]:
        needed = max(self.threads + 1, math.ceil(1.05 * self.per_batch / self.step)) if self.step else self.threads + 1
        blocked = self.stages["read"] + (self.stages["map"] if self.mapping else 0.0)
        computing = _ratio(self.per_batch - blocked, self.per_batch)
        most = self.threads if not computing else max(self.threads, int(self.cores / computing))
        if stage == "map" and self.mapping == "threads":
            return self._map_in_threads(head, needed)
        if most <= self.threads:
            return (
                stage,
                None,
                (f"{head}; all {self.cores} cores are used: give it more cores, or have each row do with less work"),
            )
        reached = min(needed, most)
        fix = self._with_threads(reached)
        more = f"{reached - self.threads} more {'removes' if fix.wait_share < _NOT_BOUND else 'leaves'}"
        rest = "it" if fix.wait_share < _NOT_BOUND else f"{fix.wait_share:.0%}"
        return stage, fix, f"{head}; {more} {rest} (workers={reached})"

    def _map_in_threads(self, head: str, needed: int) -> tuple[str, Fix, str]:
        """A function that computes in Python holds the interpreter's lock; one that waits does not. Processes do."""
        fix = self._with_threads(needed)
        change = {"workers": needed, "processes": needed}
        text = f"{head}; {needed - self.threads} more removes it if the function waits (workers={needed}), "
        return (
            "map",
            Fix(change, fix.wait_share, fix.speedup),
            f"{text}processes do if it computes (processes={needed})",
        )

    def _with_threads(self, threads: int) -> Fix:
        interval = max(self.step, self.per_batch / threads)
        return Fix({"workers": threads}, 1 - self.step / interval, _ratio(self._interval, interval))

    def _uneven(self, stage: str, head: str) -> tuple[str, Fix, str]:
        """On average batches come fast enough: the consumer asks for several at once."""
        ahead = 2 * self.ahead
        fix = Fix({"ahead": ahead}, 0.0, _ratio(self._interval, self.step))
        return stage, fix, f"{head}, fast enough on average: more batches ahead remove it (ahead={ahead})"


def _threads(count: int) -> str:
    return f"{count} thread{'' if count == 1 else 's'}"
