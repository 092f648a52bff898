"""Means: what a job may use, and the Settings and Projection of a pass. They do not change the output."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa

from penstock.base.machine import free_disk
from penstock.base.memory import Budget, give_back_heap, own_memory
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measured, Measurement
from penstock.prepare.budget.room import NOBODY_COUNTS, Room

MARGIN = 1.25  # over what a task was measured to add: allocators keep more as it goes on
HOLD_MARGIN = 1.1  # over the bytes that are kept: they come in pieces
SLACK_BYTES = 4 << 20  # and a little per worker, which matters when batches are small


class ScratchDisk(NamedTuple):
    """Folder for scratch files that are not on the disk of the output, and its free bytes."""

    folder: str
    free_bytes: int

    @classmethod
    def of(cls, store: Store) -> ScratchDisk | None:
        folder = store.scratch_folder
        return None if folder.startswith(store.root) else cls(folder, free_disk(folder))


@dataclass(frozen=True)
class Means:
    """Memory, cores and disk that the job may use, and what a little of it was measured to cost."""

    budget: Budget
    cores: int
    free_disk: int
    driver_bytes: int
    measured: Measured
    scratch: ScratchDisk | None = None

    @classmethod
    def here(cls, budget: Budget, cores: int, output: str, growth: int, measured: Measured) -> Means:
        """The means of this process, whose run will grow by `growth` bytes and write to `output`."""
        store = open_store(output)
        # Bytes of an earlier run in this output are there already, or will be replaced.
        held = sum(max(store.size(name), 0) for name in store.list()) if store.exists("") else 0
        return cls(
            budget, cores, store.free_bytes() + held, own_memory().counted + growth, measured, ScratchDisk.of(store)
        )


@dataclass(frozen=True)
class Settings:
    """Number of workers of a pass, and how much a task holds. Engines halve batches where that is too much."""

    workers: int
    batch_bytes: int  # decoded rows that a task reads, or sorts, at a time
    hold_bytes: int  # of its output that a task keeps in memory; the rest takes the way over a scratch file
    row_bytes: float
    stored_row_bytes: float
    worker_limit: int = 0  # bytes that a worker may hold in a user's function before it is stopped; 0: no limit
    limit_by: str = ""  # what sets it
    threads: int = 1  # of a worker
    room: Room = NOBODY_COUNTS
    task_bytes: int = 0  # projected for a worker with its task; for those who place tasks on machines


@dataclass(frozen=True)
class Projection:
    memory_bytes: int
    spill_bytes: int  # on disk while the pass runs, and gone when the job is done
    output_bytes: int
    seconds: float
    rows: int
    scratch_bytes: int = 0  # of all tasks at one time


def memory_of(workers: int, batch_bytes: int, hold_bytes: int, cost: Measurement, means: Means) -> int:
    """Driver, then each worker: what it holds before a task and what a task adds."""
    task = cost.task_bytes(batch_bytes) * MARGIN + SLACK_BYTES + hold_bytes * HOLD_MARGIN
    if workers == 0:
        return int(means.driver_bytes + task)
    return int(means.driver_bytes + workers * (cost.worker_bytes + task))


def enough(needed: int) -> str:
    """A `memory:` setting that allows this many bytes, with a margin."""
    return f"memory: {math.ceil(needed * 1.1 / 10e6) * 10}MB"


def memory_with(workers: int, held: int, means: Means) -> int:
    """Memory of a pass whose tasks hold a fixed amount of `held` bytes."""
    return means.driver_bytes + (workers * (means.measured.slices.worker_bytes + held) or held)


def give_back_memory() -> None:
    pa.default_memory_pool().release_unused()
    give_back_heap()
