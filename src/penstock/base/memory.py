"""Memory: the Budget a job was given, and what its process tree really holds: Pss_Anon + Shmem."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from penstock.base import machine
from penstock.base.sizes import format_size, parse_size


@dataclass(frozen=True)
class Budget:
    """`allowed` bytes for the whole process tree, and who set them. `of_job`: if several machines do a job, the bytes
    allowed on the machine that planned it; limits of single rows follow from them."""

    allowed: int
    source: str
    of_job: int = 0

    @property
    def for_rows(self) -> int:
        """Bytes from which limits of single rows follow: the same on all machines of a job."""
        return self.of_job or self.allowed

    def __str__(self) -> str:
        return f"{format_size(self.allowed)} ({self.source})"


def make_budget(memory: str | int) -> Budget:
    """The smaller of the user's limit and the machine's limit. A percentage is a share of the machine's limit."""
    limit = machine.memory_limit()
    asked = parse_size(memory, whole=limit.amount)
    if asked <= limit.amount:
        return Budget(asked, f"memory: {memory}")
    return Budget(limit.amount, f"{limit.source}, less than memory: {memory}")


@dataclass(frozen=True)
class TreeMemory:
    """Bytes of a process tree: anonymous pages, each counted once however many processes share it, and shared memory.

    `file` is page cache mapped by it, which the kernel can drop at any time: no budget counts it.
    """

    anon: int = 0
    shmem: int = 0
    file: int = 0

    @property
    def counted(self) -> int:
        return self.anon + self.shmem

    def __add__(self, other: TreeMemory) -> TreeMemory:
        return TreeMemory(self.anon + other.anon, self.shmem + other.shmem, self.file + other.file)


def own_memory() -> TreeMemory:
    """This process alone."""
    return process_memory(os.getpid())


def private_memory() -> int:
    """Bytes of this process that no other one shares: what there would be less without it."""
    return _rollup(os.getpid())["Private_Dirty"] if _HAS_ROLLUPS else resident_memory(os.getpid()).counted


def peak_resident() -> int:
    """The most bytes that this process has held so far, mapped files included."""
    with suppress(OSError), open("/proc/self/status") as file:  # getrusage would begin with what the parent held
        return next((int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:")), 0)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # bytes on macOS


@dataclass
class Peak:
    """The highest memory of this process so far, and what watching it has cost."""

    counted: int
    cpu_seconds: float = 0.0


@contextmanager
def peak_watched(most_of_a_core: float = 0.2) -> Iterator[Peak]:
    """The highest memory of this process while the block runs. What is gone before the next look is not seen:
    `most_of_a_core` is how much of one the watching may take."""
    peak = Peak(own_memory().counted)
    done = threading.Event()

    def watch() -> None:
        pause = 0.002
        while not done.wait(pause):
            began = time.thread_time()
            peak.counted = max(peak.counted, own_memory().counted)
            took = time.thread_time() - began
            peak.cpu_seconds += took
            # The first moments matter most; a slow stage is not slowed further. A read takes 20 ms where a process has
            # a gigabyte of small pieces.
            pause = max(min(pause * 1.01, 0.1), took / most_of_a_core - took)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        done.set()
        thread.join()
        peak.counted = max(peak.counted, own_memory().counted)


def give_back_heap() -> None:
    """Return the free pages of the C library's heap to the kernel."""
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def tree_memory(pid: int) -> TreeMemory:
    """`pid` and everything below it. One read of smaps_rollup per process: about a millisecond at 2 GB."""
    return sum((process_memory(each) for each in process_tree(pid)), TreeMemory())


def process_tree(pid: int) -> list[int]:
    """`pid` first, then its descendants. Processes that end meanwhile are left out."""
    children = _children if sys.platform == "linux" else _children_from_ps()
    found = [pid]
    for parent in found:
        found.extend(children(parent))
    return found


def _children_from_ps() -> Callable[[int], list[int]]:
    """Children of each process, from one listing of `ps`. For systems other than Linux."""
    import subprocess

    listing = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=False).stdout
    below: dict[int, list[int]] = {}
    for line in listing.splitlines():
        child, parent = map(int, line.split())
        below.setdefault(parent, []).append(child)
    return lambda pid: below.get(pid, [])


def _children(pid: int) -> Iterable[int]:
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return
    for thread in threads:
        try:
            with open(f"/proc/{pid}/task/{thread}/children") as file:
                yield from map(int, file.read().split())
        except OSError:  # the thread ended between the listing and the reading
            continue


_HAS_ROLLUPS = os.path.exists("/proc/self/smaps_rollup")  # Linux since 4.14; not every sandbox that looks like it


def process_memory(pid: int) -> TreeMemory:
    if not _HAS_ROLLUPS:
        return resident_memory(pid)
    try:
        amounts = _rollup(pid)
    except (FileNotFoundError, ProcessLookupError):  # it ended: it holds nothing
        return TreeMemory()
    return TreeMemory(*(amounts.get(name, 0) for name in ("Pss_Anon", "Pss_Shmem", "Pss_File")))


def _rollup(pid: int) -> dict[str, int]:
    """Bytes by the kernel's own names."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        next(file, "")  # addresses
        return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in file)}


def resident_memory(pid: int) -> TreeMemory:
    """Private or resident pages, for kernels that do not report shared pages. It overestimates."""
    try:
        with open(f"/proc/{pid}/statm") as file:
            resident, shared = map(int, file.read().split()[1:3])
        return TreeMemory(anon=(resident - shared) * os.sysconf("SC_PAGE_SIZE"))
    except OSError:
        return _memory_from_ps(pid) if sys.platform != "linux" else TreeMemory()


def _memory_from_ps(pid: int) -> TreeMemory:
    import subprocess

    answer = subprocess.run(["ps", "-o", "rss=", "-p", str(pid)], capture_output=True, text=True, check=False)
    words = answer.stdout.split()
    return TreeMemory(anon=int(words[0]) * 1024) if words else TreeMemory()
