"""Local engine: worker processes on this machine, within the memory budget. Next: worker.py.

It starts processes and passes messages: what happens to them becomes events for attempts.py, which decides, and its
commands are carried out here.
"""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from penstock.base.child import Child, how_it_ended, python_path
from penstock.base.events import EventLog
from penstock.base.memory import Budget, tree_memory
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.attempts import Attempts, Policy
from penstock.prepare.engines.events import (
    Alone,
    Command,
    Complete,
    Died,
    Entered,
    Event,
    Failed,
    Finished,
    Give,
    GiveUp,
    Holds,
    Moved,
    Overfull,
    Raise,
    Ready,
    Say,
    Stalled,
    Start,
    Stop,
    Tick,
)
from penstock.prepare.engines.given_up import given_up
from penstock.prepare.passes import Task, Work
from penstock.prepare.rows.rows import GIVEN_UP, HUNG

if TYPE_CHECKING:
    from penstock.prepare.engines import Done

_TICK_SECONDS = 0.1
_SAMPLE_SECONDS = 0.25
_WORKER_ENVIRONMENT = {
    "ARROW_DEFAULT_MEMORY_POOL": "system",  # returns memory: peaks were 47 MB where mimalloc had 86
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "2",
    # Batches come and go in megabytes: keep their pages instead of asking the kernel for new ones each time.
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(32 << 20),
}


class Worker:
    """One worker process, and our end of its connection."""

    def __init__(self, hold: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            self.child = Child(
                ["-m", "penstock.prepare.engines.worker"],
                [theirs.fileno()],
                inherits=(theirs.fileno(), *hold),
                environment={**_WORKER_ENVIRONMENT, **python_path()},
                stdout=2,  # what a user's function prints must not mix with --json
            )
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self._send(sys.path)  # where the user's own modules are, once the worker has imported its own
        self.is_ready = False

    def send(self, *message: Any) -> None:
        self._send(message)

    def _send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return  # it died; the engine sees that at the next wait

    def held_bytes(self) -> int:
        return tree_memory(self.child.pid).counted

    def stack(self) -> str:
        return self.child.stack() if self.is_ready else "it was still starting"

    def kill(self) -> None:
        """End it, and with it whatever the user's code has started: that would hold the output's lock."""
        self.child.end()
        self.connection.close()


def event_of(number: int, message: tuple[Any, ...]) -> Event | None:
    """The event that a message of a worker tells of."""
    match message:
        case ("ready", held):
            return Ready(number, held)
        case ("progress", rows):
            return Moved(number, rows)
        case ("place", *facts):
            return Entered(number, *facts)
        case ("holds", held):
            return Holds(number, held)
        case ("stall", stack):
            return Stalled(number, stack)
        case ("alone", *_):
            return Alone(number)
        case ("done", row, held):
            return Finished(number, row, held)
        case ("failed", error, *_):
            return Failed(number, error)
    return None  # it has accepted the pass


class LocalEngine:
    def __init__(
        self,
        budget: Budget,
        log: EventLog,
        stall_notice: float,
        task_timeout: float,
        hold: tuple[int, ...] = (),
    ) -> None:
        self._budget, self._log, self._hold = budget, log, hold
        self._stall_notice, self._task_timeout = stall_notice, task_timeout
        self._workers: dict[int, Worker] = {}
        self._attempts = Attempts()
        self._rows_done = 0
        self._sampled = 0.0
        self._sample_pause = _SAMPLE_SECONDS

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self._work, self._settings, self._done = work, settings, done
        self._carry_out(self._attempts.begin(tasks, self._policy(work, settings)))
        for worker in self._workers.values():
            worker.send("work", work, settings, self._stall_notice)
        while not self._attempts.is_over:
            self._take(Tick())
            for number in self._heard():
                self._listen(number)
            self._look_at_silent_workers()
            self._sample_memory()

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()

    def _policy(self, work: Work, settings: Settings) -> Policy:
        return Policy(
            workers=settings.workers,
            batch_bytes=settings.batch_bytes,
            hold_bytes=settings.hold_bytes,
            allowed_bytes=self._budget.allowed,
            worker_limit=settings.worker_limit,
            limit_by=settings.limit_by,
            stall_notice=self._stall_notice,
            task_timeout=self._task_timeout,
            may_lose=tuple(title for title in GIVEN_UP if work.may_lose(title)),
        )

    # Events.

    def _take(self, event: Event) -> None:
        self._carry_out(self._attempts.take(event, time.monotonic()))

    def _heard(self) -> list[int]:
        numbers = {worker.connection: number for number, worker in self._workers.items()}
        return [numbers[each] for each in wait(list(numbers), timeout=_TICK_SECONDS)]  # type: ignore[index]

    def _listen(self, number: int) -> None:
        worker = self._workers[number]
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self._take(Died(number, f"its worker died of {how_it_ended(worker.child.process.wait())}"))
            return
        if event := event_of(number, message):
            worker.is_ready = True  # that is the first thing it says
            self._take(event)

    def _look_at_silent_workers(self) -> None:
        """A worker that is deep in C code cannot say what it holds."""
        for number in self._attempts.silent(time.monotonic()):
            self._take(Holds(number, self._workers[number].held_bytes()))

    def _sample_memory(self) -> None:
        """Read the tree's memory rarely enough that reading it costs at most a hundredth of the time."""
        now = time.monotonic()
        if now - self._sampled < self._sample_pause:
            return
        memory = tree_memory(os.getpid())
        self._sampled = time.monotonic()
        self._sample_pause = max(_SAMPLE_SECONDS, 100 * (self._sampled - now))
        rows, busy = self._rows_done + self._attempts.rows, self._attempts.busy
        self._log.say("sample", memory=memory.counted, file=memory.file, rows=rows, busy=len(busy))
        if memory.counted > self._budget.allowed and busy:
            largest = max(busy, key=lambda number: self._workers[number].held_bytes())
            self._take(Overfull(largest, f"the tree held {format_size(memory.counted)}, more than {self._budget}"))

    # Commands.

    def _carry_out(self, commands: Sequence[Command]) -> None:
        for command in commands:
            match command:
                case Start(number):
                    self._workers[number] = Worker(self._hold)
                    self._workers[number].send("work", self._work, self._settings, self._stall_notice)
                case Give():
                    self._workers[command.worker].send("task", command)
                case Stop(number):
                    self._workers.pop(number).kill()
                case Say(name, facts, None):
                    self._log.say(name, **facts)
                case Say(name, facts, int(number)):
                    self._log.say(name, **facts, stack=self._workers[number].stack())
                case Complete(task, row, is_first):
                    self._rows_done += row.rows_read
                    self._done(task, row)
                    if is_first:
                        self._sampled = 0.0  # its memory is still there: sample it, or a short run would never be seen
                case Raise(error):
                    raise error
                case GiveUp():
                    stack = self._workers[command.worker].stack() if command.why == HUNG else ""
                    raise given_up(command, self._settings, self._budget, stack)
