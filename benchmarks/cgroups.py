"""Cgroups that limit CPU time, of version 1 or 2: they stand for machines and cores that are slower than this one's.

Only root may make them. A `SlowMachine` is one cgroup for its cores together, with one inside it per process (tried
with version 1 only).
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

CGROUPS = Path("/sys/fs/cgroup")
PERIOD = 20_000  # microseconds: short, so that a task of some milliseconds is slowed down as well
LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Cgroup:
    """A cgroup with a quota of CPU time, in cores."""

    folder: Path
    quota: float

    def start(self, command: Sequence[str], **options: Any) -> subprocess.Popen[bytes]:
        """A process in it. `options` are those of `Popen`."""
        return subprocess.Popen(command, preexec_fn=lambda: self.take(os.getpid()), **options)

    def take(self, pid: int) -> None:
        (self.folder / "cgroup.procs").write_text(str(pid))

    @property
    def pids(self) -> list[int]:
        return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]

    @property
    def stat(self) -> dict[str, int]:
        lines = (self.folder / "cpu.stat").read_text().splitlines()
        return {name: int(value) for name, value in map(str.split, lines)}

    def used_up(self, before: dict[str, int], after: dict[str, int]) -> float:
        """Share of the periods in which it used up its quota, of those in which it did anything."""
        periods = after["nr_periods"] - before["nr_periods"]
        return (after["nr_throttled"] - before["nr_throttled"]) / max(periods, 1)


def make_cgroup(name: str, quota: float, inside: Cgroup | None = None) -> Cgroup:
    old = CGROUPS / "cpu"
    above = inside.folder if inside else old if old.is_dir() else CGROUPS
    folder = above / name
    folder.mkdir()
    if old.is_dir():
        (folder / "cpu.cfs_period_us").write_text(str(PERIOD))
        (folder / "cpu.cfs_quota_us").write_text(str(int(quota * PERIOD)))
    else:
        (above / "cgroup.subtree_control").write_text("+cpu")
        (folder / "cpu.max").write_text(f"{int(quota * PERIOD)} {PERIOD}")
    return Cgroup(folder, quota)


class SlowMachine:
    """A machine of `cores` cores that are `quota` of one here. A process has one of them at most, whatever threads it
    has; all together have them all. A new process shares the core of its parent, for at most `LOOK_SECONDS`."""

    def __init__(self, cores: int, quota: float) -> None:
        self._quota, self._numbers = quota, count()
        self._whole = make_cgroup(f"penstock-machine-{os.getpid()}", cores * quota)
        self._cores: dict[int, Cgroup] = {}  # by process
        self.started: list[int] = []
        self.cpu_seconds: dict[int, float] = {}  # by process, as last seen; those that have ended too
        self._over = threading.Event()
        self._looking = threading.Thread(target=self._look)

    def start(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
        core = self._core()
        process = core.start(command, env=environment, stdout=subprocess.DEVNULL)
        self._cores[process.pid] = core
        self.started.append(process.pid)
        return process

    def watch(self) -> None:
        self._looking.start()

    def close(self) -> None:
        """When all of its processes have ended, or will now."""
        self._over.set()
        self._looking.join()
        deadline = time.monotonic() + 10
        while self._cores and time.monotonic() < deadline:
            self._give_back(set())
            time.sleep(0.01)
        self._whole.folder.rmdir()

    def _core(self) -> Cgroup:
        return make_cgroup(str(next(self._numbers)), self._quota, self._whole)

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            alive = set[int]()
            for owner, core in list(self._cores.items()):
                for pid in core.pids:
                    alive.add(pid)
                    with suppress(FileNotFoundError, ProcessLookupError):  # it ends now
                        self.cpu_seconds[pid] = cpu_seconds(pid)
                        if pid != owner:
                            self._move(pid)
            self._give_back(alive)

    def _move(self, pid: int) -> None:
        core = self._core()
        self._cores[pid] = core
        core.take(pid)

    def _give_back(self, alive: set[int]) -> None:
        for pid in self._cores.keys() - alive:
            with suppress(OSError):  # it has started a process that was not seen
                self._cores[pid].folder.rmdir()
                del self._cores[pid]


@contextmanager
def slow_machine(cores: int, quota: float) -> Iterator[SlowMachine]:
    machine = SlowMachine(cores, quota)
    try:
        machine.watch()
        yield machine
    finally:
        machine.close()


def cpu_seconds(pid: int) -> float:
    """Of the process alone, without its children."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
