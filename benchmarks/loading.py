"""Loading: an iterator of batches -> how fast it gives them, and the CPU time and memory of its whole process tree."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.base.memory import tree_memory


@dataclass(frozen=True)
class Measured:
    batches: int
    tokens: int
    wall_seconds: float
    cpu_seconds: float
    first_batch_seconds: float
    peak_bytes: int  # of the process tree while it was measured, sampled every second

    def facts(self) -> dict[str, Any]:
        return {
            "tokens_per_second": round(self.tokens / self.wall_seconds),
            "tokens_per_cpu_second": round(self.tokens / self.cpu_seconds),
            **{name: round(value, 2) for name, value in asdict(self).items()},
        }


def measure(
    batches: Iterator[Any],
    useful_tokens: Callable[[Any], int],
    seconds: float,
    limit: int | None = None,
    warm_up: float = 1,
    check_first: Callable[[Any], None] | None = None,
) -> Measured:
    """Take batches for as long, but not before the loader has settled: what it then has ready it also leaves behind."""
    started = time.perf_counter()
    first = next(batches)
    first_batch_seconds = time.perf_counter() - started
    if check_first:
        check_first(first)
    started = time.perf_counter()
    while time.perf_counter() - started < warm_up:
        next(batches)
    taken = tokens = 0
    peak, cpu, started = tree_memory(os.getpid()).counted, tree_cpu_seconds(os.getpid()), time.perf_counter()
    sampled = started
    while (now := time.perf_counter()) - started < seconds and taken != limit:
        tokens += useful_tokens(next(batches))
        taken += 1
        if now - sampled > 1:
            peak, sampled = max(peak, tree_memory(os.getpid()).counted), now
    wall = time.perf_counter() - started
    return Measured(taken, tokens, wall, tree_cpu_seconds(os.getpid()) - cpu, first_batch_seconds, peak)


def tree_cpu_seconds(root: int) -> float:
    """User and system time of a process and of all below it, those that have ended included; 10 ms fine."""
    parents, ticks = {}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:  # it ended meanwhile
                continue
            parents[int(entry)] = int(fields[1])
            ticks[int(entry)] = sum(map(int, fields[11:15]))  # user, system, and both of the children waited for
    tree = {root}
    while grown := {child for child, parent in parents.items() if parent in tree} - tree:
        tree |= grown
    return sum(ticks[process] for process in tree) / os.sysconf("SC_CLK_TCK")
