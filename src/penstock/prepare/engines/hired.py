"""Hired: a worker process as the driver sees it, and our end of its connection. Next: worker.py, what it does."""

from __future__ import annotations

import socket
import sys
from multiprocessing.connection import Connection
from typing import Any

from penstock.base.memory import tree_memory
from penstock.base.processes.child import how_it_ended
from penstock.base.processes.nursery import Nursery
from penstock.base.user_code.carried import packed
from penstock.prepare.engines import events

_LAST_SECONDS = 5.0  # for a process to end that has closed its connection
WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # returns memory: peaks were 47 MB where mimalloc had 86
    "JE_ARROW_MALLOC_CONF": "background_thread:false",  # it is not used, and a process with a thread must not fork
    "PYTHONHASHSEED": "0",  # a function that goes through a set does so in one order, in all workers and runs
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    # Batches come and go in megabytes: keep their pages instead of asking the kernel for new ones each time.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
}


def nursery() -> Nursery:
    """What workers come from."""
    return Nursery("penstock.prepare.engines.worker", WORKER_ENVIRONMENT)


class Worker:
    """One worker process, and our end of its connection. It inherits the descriptors in `hold`."""

    def __init__(self, nursery: Nursery, hold: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.child = nursery.fork([theirs.fileno(), *hold])
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self._carried: set[str] = set()  # code that it has been sent
        self._send(sys.path)  # where the user's own modules are, once the worker has imported its own
        self.is_ready = False

    def send(self, *message: Any) -> None:
        self._send(message)

    def _send(self, message: Any) -> None:
        data, named = packed(message)
        try:
            if new := {target: each for target, each in named.items() if target not in self._carried}:
                self._carried.update(new)
                self.connection.send(("carry", new))
            self.connection.send_bytes(data)
        except (BrokenPipeError, ConnectionResetError):
            return  # it died; the engine sees that at the next wait

    def held_bytes(self) -> int:
        return tree_memory(self.child.pid).counted

    def stack(self) -> str:
        return self.child.stack() if self.is_ready else "it was still starting"

    def death(self) -> str:
        """How it ended, once it has closed its connection."""
        code = self.child.wait(_LAST_SECONDS)
        return "closing its connection" if code is None else how_it_ended(code)

    def kill(self) -> None:
        """End the worker and all processes that the user's code has started: they would hold the output's lock."""
        self.child.end()
        self.connection.close()


def event_of(number: int, message: tuple[Any, ...]) -> events.Event | None:
    """The event that a message of a worker tells of."""
    match message:
        case ("ready", held):
            return events.Ready(number, held)
        case ("progress", rows):
            return events.Moved(number, rows)
        case ("place", *facts):
            return events.Entered(number, *facts)
        case ("holds", held):
            return events.Holds(number, held)
        case ("stall", stack):
            return events.Stalled(number, stack)
        case ("alone", *_):
            return events.Alone(number)
        case ("done", row, held):
            return events.Finished(number, row, held)
        case ("failed", error, *_):
            return events.Failed(number, error)
    return None  # it has accepted the pass
