"""Loader: how fast batches come, what they cost, and whether a consumer waits. One question a function.

    python -m benchmarks.loader --folder /scratch/loader --peers-python .venv-peers/bin/python
    python -m benchmarks.loader --folder /scratch/loader --only cold sweep

Data is made in the folder if it is not there: 20M events of 200,000 keys (benchmarks/make_events.py) prepared by
`penstock run pings`, and 200,000 rows of 1,025 tokens. Other loaders of rows (baselines/peer_rows.py) run with
--peers-python, where their requirements are installed. benchmarks/older_loaders.py has those of events.
Every ratio is of figures from the same run. CPU seconds are those of the whole process tree.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

import penstock
from benchmarks.figures import call
from benchmarks.loading import Measured, measure
from penstock.base.machine import cpu_count
from penstock.base.memory import own_memory
from penstock.loader.feeding.readahead import read_randomly
from penstock.loader.loader import Loader

BATCH, LENGTH, ROWS = 128, 1024, 200_000
EVENTS = 20_000_000
DOCUMENT_ROWS = 20_000


class Bench:
    def __init__(self, folder: Path, peers_python: str, seconds: float, events: int) -> None:
        self.folder, self.peers_python, self.seconds, self.events = folder, peers_python, seconds, events
        self.figures: dict[str, Any] = {}

    def say(self, name: str, **facts: Any) -> None:
        self.figures[name] = facts
        shown = ", ".join(f"{key} {_shown(value)}" for key, value in facts.items())
        print(f"{name}: {shown}", flush=True)

    # Data.

    def pings(self, form: str = "native") -> str:
        raw, made = self.folder / f"events-{self.events}", self.folder / f"pings-{self.events}-{form}"
        if not raw.exists():
            call(sys.executable, "-m", "benchmarks.make_events", "--events", str(self.events), "--output", str(raw))
        if not (made / "manifest.json").exists():
            extra = ["--format", "arrayrecord"] if form == "arrayrecord" else []
            penstock_run = [sys.executable, "-m", "penstock", "run", "pings", "--input", f"{raw}/*.parquet"]
            call(*penstock_run, "--output", str(made), "--memory", "2GB", *extra)
        return str(made)

    def token_rows(self) -> str:
        made = self.folder / f"rows-{ROWS}"
        if not (made / "manifest.json").exists():
            _write_token_rows(self.folder / "rows-raw")
            job = self.folder / "rows.yaml"
            job.write_text(f"input: {self.folder}/rows-raw/*.parquet\noutput: {made}\nmemory: 2GB\n")
            call(sys.executable, "-m", "penstock", "run", str(job))
        return str(made)

    def document_rows(self) -> str:
        """Rows as `token_rows` has them, with about eight documents in each."""
        made = self.folder / f"documents-{DOCUMENT_ROWS}"
        if not (made / "manifest.json").exists():
            _write_document_rows(self.folder / "documents-raw.parquet")
            job = self.folder / "documents.yaml"
            job.write_text(f"input: {self.folder}/documents-raw.parquet\noutput: {made}\nmemory: 2GB\n")
            call(sys.executable, "-m", "penstock", "run", str(job))
        return str(made)

    def load(self, path: str, **options: Any) -> Loader:
        given: dict[str, Any] = {"batch_size": BATCH, "seed": 0, "length": LENGTH, **options}
        return penstock.load(path, **given)

    # Questions.

    def speed(self) -> None:
        """Useful tokens a second and a CPU second, through the public iterator, page cache warm."""
        for fill in ("packed", "one_key"):
            for workers in (1, 2):
                measured = self._measured(self.pings(), fill=fill, workers=workers)
                self.say(f"{fill}, {workers} threads", **_facts(measured))

    def rows(self) -> None:
        """Packed rows of text tokens, against peers that give the same rows."""
        ours = self._measured(self.token_rows(), workers=1)
        self.say("token rows, 1 thread", **_facts(ours))
        self.say("token rows, 2 threads", **_facts(self._measured(self.token_rows(), workers=2)))
        peers = [self.peers_python, "-m", "benchmarks.baselines.peer_rows", "--rows", str(ROWS), "--peer", "all"]
        for line in call(*peers, "--folder", str(self.folder / "peers"), "--seconds", "5").splitlines():
            peer = json.loads(line)
            best = peer.get("best_by_cpu") or peer.get("best", {})
            rate = best.get("tokens_per_cpu_second")
            times = ours.tokens / ours.cpu_seconds / rate if rate else None
            self.say(f"peer {peer.get('peer')}", tokens_per_cpu_second=rate, times=times, error=peer.get("error"))

    def documents(self) -> None:
        """documents="varlen" against plain rows: CPU time per batch, in turn, and the median ratio."""
        loaders = [self.load(self.document_rows(), workers=0, documents=each) for each in (None, "varlen")]
        for loader in loaders:
            _cpu_seconds(loader, DOCUMENT_ROWS // BATCH)  # pages and checksums
        plain, varlen = zip(*(tuple(_cpu_seconds(each, 100) for each in loaders) for _ in range(15)), strict=True)
        self.say(
            "varlen against plain rows, 1 thread",
            plain_ns_per_token=1e9 * statistics.median(plain) / (BATCH * LENGTH),
            varlen_ns_per_token=1e9 * statistics.median(varlen) / (BATCH * LENGTH),
            ratio=statistics.median(b / a for a, b in zip(plain, varlen, strict=True)),
        )

    def cold(self) -> None:
        """Data larger than memory: pages of the dataset are dropped before every batch."""
        for threads in (1, 8):
            for verified in (True, False):
                self._cold(threads, verified)

    def _cold(self, threads: int, verified: bool) -> None:
        from concurrent.futures import ThreadPoolExecutor

        loader = self.load(self.pings(), workers=0, cache="disk")
        columns = loader._parts.kind.tables.columns
        if verified:
            for column in columns:
                column.check(0, len(column))
        loader.batch(0)
        drop = _dropper(columns)
        tokens, seconds, batches = 0, 0.0, 0
        read: float = _bytes_read()
        with ThreadPoolExecutor(threads) as pool:
            for first in range(1, 1 + 12 * threads, threads):
                drop()
                started = time.perf_counter()
                for batch in pool.map(loader.batch, range(first, first + threads)):
                    tokens += useful_tokens(batch)
                seconds += time.perf_counter() - started
                batches += threads
        read = (_bytes_read() - read) / batches
        needed = self._needed_bytes(threads)
        self.say(
            f"cold, {threads} threads, blocks {'verified before' if verified else 'verified as touched'}",
            tokens_per_second=tokens / seconds,
            megabytes_read_a_batch=read / 1e6,
            times_what_is_needed=read / needed,
        )

    def _needed_bytes(self, threads: int) -> float:
        """Bytes a batch that are read when every page is waited for: nothing is forecast, nothing read around."""
        loader = self.load(self.pings(), workers=0, cache="disk")
        tables = loader._parts.kind.tables
        for column in tables.columns:
            column.check(0, len(column))
        tables.larger_than_memory = False
        read_randomly(tables.columns)
        drop = _dropper(tables.columns)
        loader.batch(0)
        drop()
        read = _bytes_read()
        for first in range(1, 1 + 2 * threads, threads):
            drop()
            for k in range(first, first + threads):
                loader.batch(k)
        return (_bytes_read() - read) / (2 * threads)

    def busy_consumer(self) -> None:
        """A consumer that computes in pure Python for 20 ms a step, and so holds the interpreter's lock."""
        with self.load(self.pings()) as loader:
            waits = _waits(loader, 300, lambda: _compute(0.02))
            self.say("consumer busy in Python, 20 ms a step", p50_ms=_at(waits, 50), p95_ms=_at(waits, 95))

    def smooth(self) -> None:
        """First batch, and no stall: next() at twice the demand of what the loader can give, memory flat."""
        started = time.perf_counter()
        with self.load(self.pings(), memory="1GB") as loader:
            next(loader)
            self.say("first batch", seconds=time.perf_counter() - started)
            fastest = self._measured(self.pings(), workers=2)
            step = 2 * fastest.wall_seconds / fastest.batches
            before = own_memory().counted
            waits = _waits(loader, 3000, lambda: time.sleep(step))
            after = own_memory().counted
            self.say(
                "half of the loader's speed asked for",
                step_ms=1000 * step,
                p50_ms=_at(waits, 50),
                p99_ms=_at(waits, 99),
                largest_ms=1000 * max(waits),
                memory_mb=after / 1e6,
                grown_mb=(after - before) / 1e6,
            )

    def integrity(self) -> None:
        """What verifying every block once costs, of one epoch and of twenty of warm data."""
        for epochs in (1, 20):
            with self.load(self.pings(), workers=1, epochs=epochs) as loader:
                started = time.process_time()
                for _ in loader:
                    pass
                cpu, stats = time.process_time() - started, loader.stats()
                self.say(
                    f"verifying at first touch, {epochs} epochs",
                    share=stats.verify_seconds / cpu,
                    seconds=stats.verify_seconds,
                    gigabytes=stats.verified_bytes / 1e9,
                    batches=stats.batches,
                    coverage=stats.coverage,
                )

    def sweep(self) -> None:
        """workers="auto" against every fixed number, for a fast, a slow and a bursty consumer."""
        consumers: dict[str, Callable[[int], None]] = {
            "fast": lambda _: None,
            "slow": lambda _: time.sleep(0.01),
            "bursty": lambda step: time.sleep(0.1) if step % 20 == 0 else None,
        }
        for name, consume in consumers.items():
            speeds = {str(n): self._consumed(consume, n) for n in range(1, cpu_count().amount + 1)}
            auto = self._consumed(consume, "auto")
            best = max(speeds.values())
            self.say(f"sweep, {name} consumer", **speeds, auto=auto, auto_of_best=auto / best)

    def _consumed(self, consume: Callable[[int], None], workers: int | str) -> float:
        """Batches a second, after the loader has settled."""
        with self.load(self.pings(), workers=workers) as loader:
            settled, step, taken = time.perf_counter() + 3, 0, 0
            started = end = float("inf")
            while time.perf_counter() < end:
                next(loader)
                consume(step)
                step += 1
                if time.perf_counter() > settled and started == float("inf"):
                    started, end = time.perf_counter(), time.perf_counter() + self.seconds
                taken += started != float("inf")
            return (taken - 1) / (time.perf_counter() - started)

    def _measured(self, path: str, **options: Any) -> Measured:
        with self.load(path, **options) as loader:
            return measure(loader, useful_tokens, self.seconds)


def useful_tokens(batch: dict[str, Any]) -> int:
    return int(np.count_nonzero(batch["targets_segmentation"]))


def _cpu_seconds(loader: Loader, batches: int) -> float:
    """CPU seconds of a batch."""
    started = time.thread_time()
    for k in range(batches):
        loader.batch(k)
    return (time.thread_time() - started) / batches


def _facts(measured: Measured) -> dict[str, Any]:
    return {
        "tokens_per_second": _rate(measured),
        "tokens_per_cpu_second": measured.tokens / measured.cpu_seconds,
        "masked_or_padding": 1 - measured.tokens / (measured.batches * BATCH * LENGTH),
    }


def _rate(measured: Measured) -> float:
    return measured.tokens / measured.wall_seconds


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _write_token_rows(folder: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from benchmarks.baselines.peer_rows import ROW_TOKENS, token_row

    folder.mkdir(parents=True, exist_ok=True)
    schema = pa.schema([("tokens", pa.list_(pa.uint16(), ROW_TOKENS))])
    with pq.ParquetWriter(folder / "rows.parquet", schema, compression="none", use_dictionary=False) as writer:
        for first in range(0, ROWS, 20_000):
            flat = np.concatenate([token_row(number) for number in range(first, first + 20_000)])
            rows = pa.FixedSizeListArray.from_arrays(pa.array(flat), ROW_TOKENS)
            writer.write_table(pa.table({"tokens": rows}, schema=schema))


def _write_document_rows(file: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    rng = np.random.default_rng(0)
    tokens = pa.array(rng.integers(0, 50_000, DOCUMENT_ROWS * (LENGTH + 1)).astype("u2"))
    starts = [np.flatnonzero(rng.random(LENGTH) < 8 / LENGTH) for _ in range(DOCUMENT_ROWS)]
    rows = pa.FixedSizeListArray.from_arrays(tokens, LENGTH + 1)
    pq.write_table(pa.table({"tokens": rows, "documents": pa.array(starts, pa.list_(pa.int32()))}), file)


def _dropper(columns: Any) -> Callable[[], None]:
    """What takes the pages of these columns out of this process and out of the page cache."""
    import mmap

    maps = list({id(column.mapped): column.mapped for column in columns}.values())
    roots = {column.file for column in columns}
    files = [os.open(path, os.O_RDONLY) for path in _paths(roots)]

    def drop() -> None:
        for mapped in maps:
            mapped.madvise(mmap.MADV_DONTNEED)
        for file in files:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)

    return drop


def _paths(names: set[str]) -> Iterator[str]:
    """Files of a mapping are known by their names in the dataset; where they lie is in this process's maps."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if any(path.endswith(name) for name in names):
            yield path


def _bytes_read() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["read_bytes"])


def _waits(loader: Loader, steps: int, consume: Callable[[], None]) -> list[float]:
    for _ in range(20):
        next(loader)
        consume()
    waits = []
    for _ in range(steps):
        started = time.perf_counter()
        next(loader)
        waits.append(time.perf_counter() - started)
        consume()
    return waits


def _compute(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(100))


def _at(values: list[float], percent: int) -> float:
    """A percentile, in milliseconds."""
    return 1000 * statistics.quantiles(values, n=100)[percent - 1]


QUESTIONS = ("speed", "integrity", "smooth", "busy_consumer", "sweep", "cold", "rows", "documents")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--peers-python", default=sys.executable, help="where the peers are installed")
    parser.add_argument("--seconds", type=float, default=6)
    parser.add_argument("--events", type=int, default=EVENTS)
    parser.add_argument("--only", nargs="+", choices=QUESTIONS, default=QUESTIONS)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(asked.folder, asked.peers_python, asked.seconds, asked.events)
    for question in asked.only:
        getattr(bench, question)()
    if asked.json:
        asked.json.write_text(json.dumps(bench.figures, indent=1))


if __name__ == "__main__":
    main()
