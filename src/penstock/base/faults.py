"""Faults: where tests make a file operation fail, and where they make the process die.

`operation` and `crash_point` cost a comparison when nothing is armed. The tests find all crash points by reading the
source for these calls, so a new one is walked from the day it is written.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

CRASH_VARIABLE = "PENSTOCK_CRASH"  # "point:token file"; the process that removes the token dies at the point
CRASH_EXIT_CODE = 99


@dataclass
class Sweep:
    """Counts operations, and which crash points were passed; makes operation number `fail_at` fail with `error`, or
    write only half when `short`."""

    fail_at: int = -1
    error: int = 0
    short: bool = False
    operations: list[tuple[str, str]] = field(default_factory=list)
    points: set[str] = field(default_factory=set)


_sweep: Sweep | None = None


@contextmanager
def sweeping(sweep: Sweep) -> Iterator[Sweep]:
    """Watch, and perhaps fail, the file operations of this process until the block ends."""
    global _sweep
    _sweep = sweep
    try:
        yield sweep
    finally:
        _sweep = None


def operation(kind: str, path: str, size: int = 0) -> int:
    """Announce an operation of `size` bytes. Returns how many of them it may try."""
    if _sweep is None:
        return size
    number = len(_sweep.operations)
    _sweep.operations.append((kind, path))
    if number != _sweep.fail_at:
        return size
    if _sweep.short:
        return max(1, size // 2)
    raise OSError(_sweep.error, os.strerror(_sweep.error))


def crash_point(name: str) -> None:
    """Die here, once, without any clean-up, when the environment asks for it."""
    if _sweep is not None:
        _sweep.points.add(name)
    armed = os.environ.get(CRASH_VARIABLE)
    if armed is None:
        return
    point, _, token = armed.partition(":")
    if point != name:
        return
    try:
        os.unlink(token)
    except FileNotFoundError:  # another process of this run died here already
        return
    os._exit(CRASH_EXIT_CODE)
