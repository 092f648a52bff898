"""Local engine: worker processes on this machine, within the memory budget.

A worker that dies has its task tried again with half the batch, the last time when no other runs; one that shows no
row for `stall_notice` seconds is named with its slice and Python stack, and after `task_timeout` killed and tried once
more. Should the tree grow past the budget in spite of the plan, the largest worker is stopped and its task tried with
half the batch. A task that asks to be alone is done again when no other runs.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any

from penstock.base.errors import TaskError
from penstock.base.events import EventLog
from penstock.base.memory import Budget, tree_memory
from penstock.base.sizes import format_size
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.means import Settings
from penstock.prepare.passes import Task, Work
from penstock.prepare.rows import DIED, HUNG, TOO_LARGE

if TYPE_CHECKING:
    from penstock.prepare.engines import Done

ATTEMPTS = 3  # of a task whose worker dies: whole, half and quarter batches
TASKS_PER_WORKER = 200  # then it is replaced, so that no leak outlives so many tasks
_TICK_SECONDS = 0.1
START_SECONDS = 120.0  # for a busy machine to import a worker's libraries
_STACK_SECONDS = 3.0  # for a busy machine to run the signal handler
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


def _python_path() -> str:
    """Where a worker finds penstock itself, and what the user had set."""
    ours = os.path.dirname(os.path.dirname(sys.modules["penstock"].__file__ or ""))
    return os.pathsep.join(filter(None, [ours, os.environ.get("PYTHONPATH")]))


class Worker:
    """One worker process and what is known of it."""

    def __init__(self, hold: tuple[int, ...] = ()) -> None:
        ours, theirs = socket.socketpair()
        reading, self._lifeline = os.pipe()
        self._stacks = tempfile.TemporaryFile()  # noqa: SIM115
        numbers = (theirs.fileno(), reading, self._stacks.fileno())
        self.process = subprocess.Popen(
            # -P: a queue.py in the working directory must not stand in for Python's own.
            [sys.executable, "-P", "-m", "penstock.prepare.engines.worker", *map(str, numbers)],
            env={**os.environ, **_WORKER_ENVIRONMENT, "PYTHONPATH": _python_path()},
            stdin=subprocess.DEVNULL,
            stdout=2,  # what a user's function prints must not mix with --json
            pass_fds=(*numbers, *hold),
            start_new_session=True,
        )
        theirs.close()
        os.close(reading)
        self.connection: Connection[Any, Any] = Connection(ours.detach())
        self._send(sys.path)  # where the user's own modules are, once the worker has imported its own
        self.attempt: Attempt | None = None
        self.tasks = 0
        self.ready_bytes = 0

    def send(self, *message: Any) -> None:
        self._send(message)

    def _send(self, message: Any) -> None:
        try:
            self.connection.send(message)
        except (BrokenPipeError, ConnectionResetError):
            return  # it died; the engine sees that at the next wait

    def stack(self) -> str:
        """The Python stack of all its threads, from a signal handler that works even in the middle of C code."""
        if not self.ready_bytes:  # the handler is not there yet, and the signal would kill it
            return "it was still starting"
        before = self._stacks.seek(0, 2)
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_SECONDS
        while self._stacks.seek(0, 2) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)  # the rest of the threads
        self._stacks.seek(before)
        return self._stacks.read().decode(errors="replace").strip()

    def kill(self) -> None:
        """End it, and with it whatever the user's code has started: that would hold the output's lock."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.connection.close()
        self._stacks.close()
        os.close(self._lifeline)


def how_it_ended(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


@dataclass
class Attempt:
    """A task, how often it was tried, and how it is getting on."""

    task: Task
    number: int = 0  # how often its batch was halved
    failures: Counter[str] = field(default_factory=Counter)  # by file: no file pays for what another did
    stalls: Counter[str] = field(default_factory=Counter)  # likewise
    rows: int = 0
    moved: float = 0.0  # when it last showed a row
    noticed: bool = False
    reason: str = ""  # why the last attempt ended
    place: str = ""  # the file that a user's function has been given
    place_bytes: int = 0  # what the worker held when it was
    is_whole_file: bool = True  # else a part of one, which cannot be left out
    lost: tuple[tuple[str, str, str], ...] = ()  # files that were given up: path, title, reason
    asked_to_be_alone: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether no other task may run beside it: it asked for that, or this is its last try."""
        return self.asked_to_be_alone or self.number == ATTEMPTS - 1

    @property
    def can_be_left_out(self) -> bool:
        """Whether a user's function has been given a whole file, without which the task can be done."""
        return bool(self.place) and self.is_whole_file

    @property
    def is_left_out(self) -> bool:
        return any(path == self.place for path, _, _ in self.lost)


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
        self._workers: list[Worker] = []
        self._sampled = 0.0
        self._sample_pause = _SAMPLE_SECONDS
        self._rows_done = 0
        self._measured_bytes = 0  # of a worker before its first file
        self._limits_looked_at = 0.0

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self._work, self._settings, self._done = work, settings, done
        self._pending = deque(Attempt(task) for task in tasks)
        while len(self._workers) > max(1, settings.workers):  # a pass with larger batches has fewer
            self._workers.pop().kill()
        for worker in self._workers:
            worker.send("work", work, settings)
        while self._pending or self._busy():
            self._hand_out()
            for worker in self._heard():
                self._listen(worker)
            self._watch_function_memory()
            self._watch_progress()
            self._sample_memory()

    def close(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()

    def _busy(self) -> list[Worker]:
        return [worker for worker in self._workers if worker.attempt]

    def _hand_out(self) -> None:
        while self._pending and self._may_begin(self._pending[0]) and (worker := self._free_worker()):
            attempt = self._pending.popleft()
            attempt.rows, attempt.moved, attempt.noticed, attempt.place = 0, time.monotonic(), False, ""
            worker.attempt = attempt
            batch = max(1024, self._settings.batch_bytes >> attempt.number)
            hold = self._settings.hold_bytes if attempt.number == 0 else 0
            worker.send("task", attempt.task, batch, hold, attempt.lost, attempt.is_alone)

    def _may_begin(self, attempt: Attempt) -> bool:
        """Whether nobody has to be alone: not this one, and none that is at work."""
        busy = self._busy()
        if not attempt.is_alone:
            return not any(worker.attempt.is_alone for worker in busy if worker.attempt)
        if busy:
            return False
        while len(self._workers) > 1:  # what idle ones hold is not theirs any more
            self._workers.pop().kill()
        return True

    def _free_worker(self) -> Worker | None:
        idle = [worker for worker in self._workers if not worker.attempt]
        if idle:
            return idle[-1]
        return self._start() if len(self._workers) < self._settings.workers else None

    def _start(self) -> Worker:
        worker = Worker(self._hold)
        worker.send("work", self._work, self._settings)
        self._workers.append(worker)
        return worker

    def _heard(self) -> list[Worker]:
        by_connection = {worker.connection: worker for worker in self._workers}
        return [by_connection[each] for each in wait(list(by_connection), timeout=_TICK_SECONDS)]  # type: ignore[index]

    def _listen(self, worker: Worker) -> None:
        try:
            kind, *facts = worker.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self._bury(worker)
            return
        if kind == "ready":
            worker.ready_bytes = self._measured_bytes = facts[0]
            if worker.attempt:
                worker.attempt.moved = time.monotonic()  # a task's time starts when its worker has
        elif kind == "progress":
            self._moved(worker, facts[0])
        elif kind == "place" and worker.attempt:
            worker.attempt.place, worker.attempt.place_bytes, worker.attempt.is_whole_file = facts
            worker.attempt.moved, worker.attempt.noticed = time.monotonic(), False
        elif kind == "alone" and worker.attempt:
            if worker.attempt.is_alone:  # asking again would never end
                raise self._too_large_alone(worker.attempt)
            worker.attempt.asked_to_be_alone = True
            self._log.say("alone", task=worker.attempt.task.name, slice=str(worker.attempt.task.input))
            self._pending.appendleft(worker.attempt)
            worker.attempt = None
        elif kind == "done":
            self._finished(worker, facts[0], facts[1])
        elif kind == "failed":
            raise facts[0]

    def _moved(self, worker: Worker, rows: int) -> None:
        if worker.attempt and rows != worker.attempt.rows:  # fewer: it began anew without an unreadable part
            worker.attempt.rows, worker.attempt.moved, worker.attempt.noticed = rows, time.monotonic(), False

    def _finished(self, worker: Worker, row: LedgerRow, held_bytes: int) -> None:
        assert worker.attempt
        attempt, worker.attempt = worker.attempt, None
        self._rows_done += row.rows_read
        worker.tasks += 1
        self._done(attempt.task, row)
        if worker.tasks == 1:
            self._sampled = 0.0  # its memory is still there: sample it, or a short run would never be seen
        grown = held_bytes > 0.75 * self._budget.allowed / max(1, self._settings.workers)
        if worker.tasks >= TASKS_PER_WORKER or (grown and worker.tasks >= 8):
            self._workers.remove(worker)
            worker.kill()

    def _bury(self, worker: Worker) -> None:
        """A worker is gone: its task is tried again with half the batch, then reported."""
        self._drop(worker, f"its worker died of {how_it_ended(worker.process.wait())}")

    def _drop(self, worker: Worker, reason: str, failures: int = 1) -> None:
        self._workers.remove(worker)
        worker.kill()
        attempt = worker.attempt
        if attempt is None:
            return
        attempt.reason = reason
        attempt.failures[attempt.place] += failures
        attempt.number = attempt.failures[attempt.place]
        if attempt.number >= ATTEMPTS and not attempt.is_left_out and not self._gives_up_file(attempt, DIED, reason):
            raise self._given_up(attempt)
        if attempt.is_left_out:
            attempt.number = 0
        batch = self._settings.batch_bytes >> attempt.number
        self._log.say("retry", task=attempt.task.name, slice=str(attempt.task.input), reason=reason, batch_bytes=batch)
        self._pending.appendleft(attempt)

    def _gives_up_file(self, attempt: Attempt, title: str, reason: str) -> bool:
        """Set aside the file in which a user's function was stopped, if that is allowed."""
        if not attempt.can_be_left_out or not self._work.may_lose(title):
            return False
        attempt.lost = (*attempt.lost, (attempt.place, title, reason))
        self._log.say("lost_file", task=attempt.task.name, file=attempt.place, title=title, reason=reason)
        return True

    def _stop_large(self, worker: Worker, attempt: Attempt, held: int) -> None:
        """A user's function holds more than it may: once more with a fresh worker, then its file is set aside."""
        limit = self._settings.worker_limit
        if attempt.failures[attempt.place]:
            first = self._measured_bytes
            if attempt.place_bytes - first > (limit - first) / 2:
                raise self._leaks(attempt, held)
            self._gives_up_file(attempt, TOO_LARGE, f"more than {self._settings.limit_by}")
        self._drop(worker, f"{attempt.place} made its worker hold {format_size(held)}, more than {format_size(limit)}")

    def _leaks(self, attempt: Attempt, held: int) -> TaskError:
        return TaskError(
            f"the function keeps memory from one file to the next: its worker held "
            f"{format_size(attempt.place_bytes)} before {attempt.place} and {format_size(held)} in it; "
            f"{format_size(self._settings.worker_limit)} is what it may hold",
            where=str(attempt.task.input),
            next_step="let go of what earlier files left (caches, lists in the module), or raise `function_memory:`",
        )

    def _too_large_alone(self, attempt: Attempt) -> TaskError:
        return TaskError(
            f"a row needs more memory than {self._budget} leaves to a task when no other runs",
            where=f"{attempt.task.input}, after {attempt.rows:,} rows",
            next_step="a larger `memory:`",
        )

    def _given_up(self, attempt: Attempt) -> TaskError:
        return TaskError(
            f"a task failed {attempt.number} times, the last time because {attempt.reason}; "
            f"its batches were {format_size(self._settings.batch_bytes)}, a half and a quarter of that",
            where=f"{attempt.place or attempt.task.input}, after {attempt.rows:,} rows",
            next_step=(
                "call the function on that file to see why; on_bad_input: set_aside goes on without it. "
                if attempt.can_be_left_out
                else f"allow more than {self._budget} or look for rows that are very large; "
            )
            + "SIGKILL without a reason is mostly the kernel's out-of-memory killer (see `dmesg`)",
        )

    def _watch_function_memory(self) -> None:
        """Workers that are inside a user's function, ten times a second."""
        if not self._settings.worker_limit or time.monotonic() - self._limits_looked_at < _TICK_SECONDS:
            return
        for worker in self._busy():
            attempt = worker.attempt
            if attempt and attempt.place:
                held = tree_memory(worker.process.pid).counted
                if held > self._settings.worker_limit:
                    self._stop_large(worker, attempt, held)
        self._limits_looked_at = time.monotonic()

    def _watch_progress(self) -> None:
        for worker in self._busy():
            attempt = worker.attempt
            assert attempt
            still = time.monotonic() - attempt.moved
            if still >= (self._task_timeout if worker.ready_bytes else max(self._task_timeout, START_SECONDS)):
                self._stop_hung(worker, attempt, still)
            elif still >= self._stall_notice and worker.ready_bytes and not attempt.noticed:
                attempt.noticed = True
                self._log.say(
                    "stall",
                    task=attempt.task.name,
                    slice=str(attempt.task.input),
                    seconds=round(still, 1),
                    rows=attempt.rows,
                    stack=worker.stack(),
                )

    def _stop_hung(self, worker: Worker, attempt: Attempt, still: float) -> None:
        stack = worker.stack()
        attempt.stalls[attempt.place] += 1
        reason = f"it showed no row for {self._task_timeout:g} s (task_timeout), twice"
        if attempt.stalls[attempt.place] > 1 and not self._gives_up_file(attempt, HUNG, reason):
            error = TaskError(
                f"a task showed no row for {still:.3g} s (task_timeout), twice",
                where=f"{attempt.place or attempt.task.input}, after {attempt.rows:,} rows",
                next_step="see where it hangs in the stack below; if it only needs longer, raise `task_timeout`"
                + ("; on_bad_input: set_aside goes on without that file" if attempt.can_be_left_out else ""),
            )
            error.add_note(stack)
            raise error
        self._drop(worker, f"it showed no row for {still:.3g} s", failures=0)  # time, not memory: the batch stays

    def _sample_memory(self) -> None:
        """Read the tree's memory rarely enough that reading it costs at most a hundredth of the time."""
        now = time.monotonic()
        if now - self._sampled < self._sample_pause:
            return
        memory = tree_memory(os.getpid())
        self._sampled = time.monotonic()
        self._sample_pause = max(_SAMPLE_SECONDS, 100 * (self._sampled - now))
        busy = self._busy()
        rows = self._rows_done + sum(worker.attempt.rows for worker in busy if worker.attempt)
        self._log.say("sample", memory=memory.counted, file=memory.file, rows=rows, busy=len(busy))
        if memory.counted > self._budget.allowed and busy:
            largest = max(busy, key=lambda worker: tree_memory(worker.process.pid).counted)
            self._drop(largest, f"the tree held {format_size(memory.counted)}, more than {self._budget}")
