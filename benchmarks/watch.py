"""Watch: run a command and measure it as a user feels it: wall, CPU and peak memory of the whole tree."""

from __future__ import annotations

import os
import resource
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.memory import tree_memory


@dataclass(frozen=True)
class Cost:
    wall_seconds: float
    cpu_seconds: float
    peak_bytes: int

    def row(self, name: str) -> str:
        return f"| {name} | {self.wall_seconds:.1f} | {self.cpu_seconds:.1f} | {self.peak_bytes / 1e6:.0f} |"


def watch(command: list[str], environment: dict[str, str] | None = None) -> Cost:
    """Imports, start-up and fsync included. Memory is Pss_Anon + Shmem over the tree, sampled every 50 ms."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    process = subprocess.Popen(command, env={**os.environ, **(environment or {})}, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, tree_memory(process.pid).counted)
        time.sleep(0.05)
    wall = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, cpu, peak)


def timed(command: list[str], environment: dict[str, str] | None = None) -> Cost:
    """Like `watch`, but memory is not looked at: to look stops a large process for some 50 ms."""
    return timed_together([command], environment)


Start = Callable[[list[str], dict[str, str]], "subprocess.Popen[bytes]"]


def start_here(command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)


def timed_together(
    commands: list[list[str]], environment: dict[str, str] | None = None, start: Start = start_here
) -> Cost:
    """Like `timed`, of commands that run at the same time, until the last has ended."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    running = [start(command, {**os.environ, **(environment or {})}) for command in commands]
    codes = [process.wait() for process in running]
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    for code, command in zip(codes, commands, strict=True):
        if code:
            raise SystemExit(f"exit {code}: {' '.join(command)}")
    return Cost(wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 0)


def settle() -> None:
    """Let written pages reach the disk, so that one run does not pay for the run before it."""
    os.sync()
    time.sleep(1)


def machine() -> str:
    with open("/proc/cpuinfo") as file:
        model = next((line.split(":")[1].strip() for line in file if line.startswith("model name")), "unknown")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {model}, {memory:.0f} GiB"
