"""Functions for map that take their time: waiting, as for a disk, or computing, with the interpreter's lock held."""

from __future__ import annotations

import time

import numpy as np

Batch = dict[str, np.ndarray]
SLEEP, COMPUTE = 0.02, 0.02


def sleep(batch: Batch) -> Batch:
    time.sleep(SLEEP)
    return batch


def nap(batch: Batch) -> Batch:
    time.sleep(SLEEP / 2)
    return batch


def compute(batch: Batch) -> Batch:
    started = time.thread_time()
    while time.thread_time() - started < COMPUTE:
        pass
    return batch
