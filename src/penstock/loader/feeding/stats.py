"""Stats: what a loader did, where its time went, and why the accelerator waits, in a sentence. Read by people."""

import threading
import time
from dataclasses import dataclass, field

from penstock.base.shown import Shown
from penstock.loader.feeding.verdict import Fix, Rhythm, judge
from penstock.loader.tables import Made

STAGES = ("order", "read", "encode", "map")


@dataclass
class Timing:
    """Seconds of one batch in each stage. `read` is what a thread was blocked on the disk, and verifying.

    `map_computing` is what the thread was on a core in map, `alone` what no other thread could do at the same time.
    """

    order: float = 0.0
    read: float = 0.0
    encode: float = 0.0
    map: float = 0.0
    map_computing: float = 0.0
    alone: float = 0.0

    @property
    def total(self) -> float:
        return self.order + self.read + self.encode + self.map

    @property
    def computing(self) -> float:
        """Seconds on a core. Order and encode wait for nothing but a core or the interpreter's lock."""
        return self.order + self.encode + self.map_computing

    @property
    def waiting(self) -> float:
        """Seconds that it waited: for the disk, or inside a function of map."""
        return self.read + max(0.0, self.map - self.map_computing)


@dataclass(frozen=True)
class DatasetProgress:
    """How far a loader is in one of its datasets."""

    path: str
    rows: int  # drawn so far
    epochs: float  # passes over the dataset
    left_out: int = 0  # records that no row is made of: min_length=


@dataclass(frozen=True, repr=False)
class Stats(Shown):
    """Counts and times of a loader so far, and why the training waits for it. `loader.stats()` makes one.

    The first batch starts the clock: rows, tokens and seconds count from the second on. Values of the batches made
    include those that are ready and were not taken yet.

    Attributes:
        batches: Batches taken by this rank.
        rows: Their rows.
        tokens: Their useful tokens: neither padding nor masked. Without tokens, rows or events: see `unit`.
        unit: What `tokens` counts: "tokens", "rows" of arrays, or "events" with encode="raw".
        seconds: Time since the first batch was given.
        first_batch_seconds: Time that the first batch took.
        wait_seconds: Time that the consumer spent in `next()`.
        padding: Share of the places in rows that hold no token.
        tokens_per_second: Useful tokens per second.
        stages: Seconds in each stage of making batches, summed over all threads: order, read, encode, map.
        made: Batches made.
        threads: Threads that make batches now; 0 if each batch is made when it is asked for.
        busy: Share of the time that these threads work.
        ready: Batches that lay ready when one was asked for, on average.
        ahead: Batches that may lie ready at most.
        draws: Rows drawn from the order, for batches made.
        draws_unused: Draws that gave no row.
        coverage: Share of the draws that gave a row.
        tokens_truncated: Tokens cut from stored rows that are longer than `length`: overflow="truncate".
        counts: Events written, and values that their fields could not hold, by name.
        verified_bytes: Bytes compared with their checksums, in whole blocks.
        verify_seconds: Time that took.
        replaced_processes: Processes of `map()` that died or hung, and were replaced.
        mfu: Share of `peak_flops` that the model used. None unless load() was given both numbers.
        limiting: Stage that the training waits for. None if it does not wait.
        fix: Change that helps: `change`, an option with its value, and `wait_share` and `speedup`, its effect.
        verdict: One sentence that says whether the training waits, why, and what helps.
        datasets: Progress of each dataset: `path`, `rows` drawn, `epochs`, and records `left_out` by min_length=.
    """

    batches: int
    rows: int
    tokens: int
    unit: str
    seconds: float
    first_batch_seconds: float
    wait_seconds: float
    padding: float
    tokens_per_second: float
    stages: dict[str, float]
    made: int
    threads: int
    busy: float
    ready: float
    ahead: int
    draws: int
    draws_unused: int
    coverage: float
    tokens_truncated: int
    counts: dict[str, int]
    verified_bytes: int
    verify_seconds: float
    replaced_processes: int
    mfu: float | None
    limiting: str | None
    fix: Fix | None
    verdict: str
    datasets: tuple[DatasetProgress, ...] = ()

    def facts(self) -> dict[str, str]:
        return {
            "batches": f"{self.batches:,} in {self.seconds:.1f} s",
            "speed": f"{self.tokens_per_second:,.0f} {self.unit}/s",
            "padding": f"{self.padding:.1%}",
            "waits": f"{self.wait_share:.1%}",
            "ready": f"{self.ready:.1f} of {self.ahead} batches",
            "verdict": self.verdict,
        }

    @property
    def wait_share(self) -> float:
        """Share of the time that the consumer spent in `next()`."""
        return self.wait_seconds / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """One line for a log."""
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
    threads: int = 0  # when the last batch was given, as are the next two
    given: float = 0.0
    consumer_cpu: float = 0.0
    consumer_computing: float = 0.0
    replaced: int = 0  # processes of map(), by makers that ended
    short: float = 0.0  # batches asked for and not yet made, had the consumer never waited
    burst: float = 0.0  # the most of them
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add_made(self, made: Made, timing: Timing) -> None:
        with self.lock:
            self.batches_made += 1
            add(self.made, made)
            add(self.timing, timing)

    def add_taken(self, made: Made, waited: float, ready: int, threads: int, is_start: bool = False) -> None:
        """Count a batch that was taken. The first batch starts the clock, also after a restart."""
        now, cpu = time.perf_counter(), time.thread_time()
        with self.lock:
            if not self.taken:
                self.first_wait, self.started = waited, now
            else:
                if is_start:
                    self.started, waited = self.started + waited, 0.0
                self.waited += waited
                self.ready += ready
                self._add_step(now - waited - self.given, threads)
                self.consumer_computing += max(0.0, cpu - self.consumer_cpu)  # another thread may have come to ask
                add(self.taken_made, made)
            self.taken += 1
            self.threads, self.given, self.consumer_cpu = threads, now, cpu

    def _add_step(self, step: float, threads: int) -> None:
        """Note how many batches had to be ready so that makers of this speed would not fall behind."""
        making = _ratio(self.timing.total, self.batches_made * max(1, threads))
        self.short = max(0.0, self.short - step / making) + 1 if making else 1.0
        self.burst = max(self.burst, self.short)

    def snapshot(self, ahead: int, processes: int, replaced: int, flops: tuple[float, float] | None) -> Stats:
        with self.lock:
            seconds = self.given - self.started
            after_first, per_second = self.taken - 1, _ratio(self.taken_made.tokens, seconds)
            stages = {stage: getattr(self.timing, stage) for stage in STAGES}
            per_batch = _ratio(self.timing.total, self.batches_made)
            limiting, fix, verdict = None, None, "no second batch was asked for yet"
            if after_first > 0:
                rhythm = self._rhythm(seconds / after_first, ahead, processes)
                limiting, fix, verdict = judge(rhythm, after_first)
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
                threads=self.threads,
                busy=min(1.0, _ratio(per_batch * after_first, seconds * max(1, self.threads))),
                ready=_ratio(self.ready, after_first),
                ahead=ahead,
                draws=self.made.draws,
                draws_unused=self.made.draws - self.made.draws_used,
                coverage=_ratio(self.made.draws_used, self.made.draws),
                tokens_truncated=self.made.tokens_truncated,
                counts=dict(self.made.counts),
                verified_bytes=self.made.verified_bytes,
                verify_seconds=self.made.verify_seconds,
                replaced_processes=replaced,
                mfu=_ratio(self.taken_made.room, seconds) * flops[0] / flops[1] if flops and seconds else None,
                limiting=limiting,
                fix=fix,
                verdict=verdict,
            )

    def _rhythm(self, interval: float, ahead: int, processes: int) -> Rhythm:
        wait = self.waited / (self.taken - 1)
        return Rhythm(
            step=max(0.0, interval - wait),
            wait=wait,
            stages={stage: _ratio(getattr(self.timing, stage), self.batches_made) for stage in STAGES},
            computing=_ratio(self.timing.computing, self.batches_made),
            map_computing=_ratio(self.timing.map_computing, self.batches_made),
            alone=_ratio(self.timing.alone, self.batches_made),
            consumer_computing=self.consumer_computing / (self.taken - 1),
            threads=self.threads,
            processes=processes,
            cores=self.cores,
            ahead=ahead,
            burst=self.burst,
        )


def add(total: Made | Timing, part: Made | Timing) -> None:
    """Add the sums of a part to a total."""
    sums = vars(total)
    for name, value in vars(part).items():
        if isinstance(value, dict):
            sums[name] |= {each: sums[name].get(each, 0) + count for each, count in value.items()}
        else:
            sums[name] += value


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
