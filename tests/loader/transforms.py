"""Transforms: functions for map that do well, and functions that die, hang or raise. Found by name in a process."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from penstock.base.errors import InputError

Batch = dict[str, np.ndarray]


def echo(batch: Batch) -> Batch:
    return batch


def double(batch: Batch) -> Batch:
    return {name: array * 2 for name, array in batch.items()}


def double_in_place(batch: Batch) -> Batch:
    for array in batch.values():
        array *= 2
    return batch


def sign(batch: Batch) -> Batch:
    """The batch, and which process had it. Long enough for others to get a turn."""
    time.sleep(0.02)
    return {**batch, "pid": np.array([os.getpid()])}


def imported(batch: Batch) -> Batch:
    return {**batch, "modules": np.array(sorted(sys.modules))}


def hold_in_shared_memory(batch: Batch) -> Batch:
    return {**batch, "held": np.array(held_in_shared_memory())}


def held_in_shared_memory() -> list[str]:
    """What this process has open or mapped in /dev/shm, and the modules that could have put it there and let go."""
    files = {os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")}
    files |= {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    modules = {"_multiprocessing", "_posixshmem"} & set(sys.modules)
    return sorted({file for file in files if file.startswith("/dev/shm")} | modules)


def double_after_one_hold_up(folder: Path, batch: Batch) -> Batch:
    """The first to come leaves its pid in the folder and never goes on."""
    if not (folder / "held_up").exists():
        _leave_pid(folder / "held_up", os.getpid())
        time.sleep(3600)
    return double(batch)


def double_after_one_hold_up_in_c(folder: Path, batch: Batch) -> Batch:
    """The same, but with the GIL held for ever: no other thread of the process can run."""
    if not (folder / "held_up").exists():
        _leave_pid(folder / "held_up", os.getpid())
        hang_in_c(batch)
    return double(batch)


def double_after_one_hold_up_with_a_child(folder: Path, batch: Batch) -> Batch:
    if not (folder / "held_up").exists():
        child = subprocess.Popen(["sleep", "3600"])
        _leave_pid(folder / "held_up", child.pid)
        child.wait()
    return double(batch)


def _leave_pid(path: Path, pid: int) -> None:
    beside = path.with_suffix(".beside")
    beside.write_text(str(pid))
    beside.rename(path)


def exit_if_negative(batch: Batch) -> Batch:
    if batch["x"][0] < 0:
        os._exit(3)
    return double(batch)


def crash(batch: Batch) -> Batch:
    ctypes.string_at(0)
    return batch


def hang(batch: Batch) -> Batch:
    time.sleep(3600)
    return batch


def hang_in_c(batch: Batch) -> Batch:
    re.match(r"(a+)+$", "a" * 64 + "b")
    return batch


def raise_if_negative(batch: Batch) -> Batch:
    if batch["x"][0] < 0:
        raise ValueError("x is negative")
    return double(batch)


def raise_with_place(batch: Batch) -> NoReturn:
    raise InputError(f"{len(batch)} arrays are too many", where="the batch", next_step="send fewer")


class TwoArguments(Exception):
    """Pickles, but does not come back: an old trap of exceptions."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")


def raise_what_does_not_come_back(batch: Batch) -> NoReturn:
    raise TwoArguments(len(batch), "teapots")


def raise_what_does_not_pickle(batch: Batch) -> NoReturn:
    class Local(Exception):
        pass

    raise Local(f"{len(batch)} local teapots")


def return_this(result: Any, _: Batch) -> Any:
    return result
