"""Watch: a worker's reports during a task: rows read, memory held, and the stack if it hangs.

A thread looks at the last two. It is silent while C code holds the interpreter's lock; then the engine looks from
outside, where it can.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from contextlib import suppress
from typing import Any, Protocol

from penstock.base.memory import resident_memory, tree_memory

PROGRESS_SECONDS = 0.2
_PAUSE_SECONDS = 0.1


class Tells(Protocol):
    """Whom a worker reports to, in messages: the driver's end of a connection, for example."""

    def send(self, message: Any, /) -> None: ...


class Watch:
    """Around one task. `limit` is what the worker may hold inside a user's function; 0: no limit."""

    def __init__(self, connection: Tells, stall_notice: float, limit: int) -> None:
        self._connection, self._stall_notice, self._limit = connection, stall_notice, limit
        self._one_at_a_time = threading.Lock()
        self._rows, self._is_in_function = 0, False
        self._said = time.monotonic()  # how many rows there were
        self._show()
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._done.set()
        self._thread.join()

    def report(self, rows: int, place: str = "", whole: bool = True) -> None:
        """Report the rows read so far, or the file `place` (or part of it) that a user's function gets next."""
        if place:  # at once: should the function hang or take too much there, the driver knows where
            self._is_in_function = True
            self._show()
            self._tell("place", place, resident_memory(os.getpid()).counted, whole)
            return
        if rows != self._rows:
            self._rows = rows
            self._show()
        if time.monotonic() - self._said >= PROGRESS_SECONDS:
            self._said = time.monotonic()
            self._tell("progress", rows)

    def _show(self) -> None:
        """Note progress: the time without a row starts again at zero."""
        self._moved, self._is_noticed = time.monotonic(), False

    def _tell(self, *message: Any) -> None:
        with self._one_at_a_time:
            self._connection.send(message)

    def _look(self) -> None:
        with suppress(OSError):  # the driver is gone, and this process goes with it
            while not self._done.wait(_PAUSE_SECONDS):
                if self._is_in_function and self._limit:
                    self._tell("holds", tree_memory(os.getpid()).counted)
                if not self._is_noticed and time.monotonic() - self._moved >= self._stall_notice:
                    self._is_noticed = True
                    self._tell("stall", _stacks())


def _stacks() -> str:
    """Python stacks of all threads."""
    import tempfile  # here, because a worker starts quicker without it

    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        return file.read().decode(errors="replace")
