"""Processes: the functions that map() was given, and the processes they run in. Used by maker.py. Next: served.py.

Each is a fresh Python that imports the function's module and little else. Batches travel over a socket pair: no shared
memory and no semaphore, so nothing can stay in /dev/shm. A process that dies (its socket ends) or hangs (no answer
within `timeout`) is replaced, and the new one is given the same batch.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError, TaskError
from penstock.base.processes.child import Child
from penstock.loader.feeding import served
from penstock.loader.feeding.sendable import check_count, check_sendable, make_job, name_of, place_of

if TYPE_CHECKING:
    from penstock.loader.batches import Batch, Function

ATTEMPTS = 3  # of a batch whose process dies or hangs
_STACK_SECONDS = 0.25  # for a hung process to write down its stack and end itself, before it is killed
_SERVE = "import sys; sys.path[:] = {path!r}; from penstock.loader.feeding.served import serve; serve()"
_CLOSED = -1  # in the place of an idle process: there is none, and will be none

# The processes are the parallelism: one thread in each, unless the user has said otherwise. Starts quicker, too.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class Processes:
    """`count` processes that run `function`. Called by as many threads at once: each call waits for its own result."""

    def __init__(self, function: Function, count: int, timeout: float = 4.0) -> None:
        check_count(count, timeout, least=1)
        self._job = make_job(function, timeout)
        self._lock = threading.Lock()
        self._idle: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._processes: list[Process] = []
        self._closed = False
        self.replaced = 0
        try:
            for index in range(count):
                self._processes.append(Process(self._job))
                self._idle.put(index)
        except BaseException:
            for process in self._processes:
                process.end()
            raise

    def __call__(self, step: int, batch: Batch) -> Batch:
        message = served.encode((step, batch))
        ends: list[ProcessEnded] = []
        with self._borrowed() as index:
            while len(ends) < ATTEMPTS:
                process = self._running(index, step)
                try:
                    answer = process.run(message)
                except ProcessEnded as end:
                    ends.append(end)
                    continue
                if isinstance(answer, served.Failure):
                    raise answer.error()
                return answer
        raise _given_up(self._job, step, ends)

    def pids(self) -> list[int]:
        with self._lock:
            return [process.pid for process in self._processes if not process.ended]

    def close(self) -> None:
        """End the processes, and with them the calls that are under way."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for process in self._processes:
                process.hang_up()  # whoever waits for its answer gives it back now
        for _ in self._processes:
            self._processes[self._idle.get()].end()
        self._idle.put(_CLOSED)

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _borrowed(self) -> Iterator[int]:
        """The slot of an idle process. Only the borrower may use it, end it or start a new one in it."""
        index = self._idle.get()
        try:
            yield index
        finally:
            self._idle.put(index)

    def _running(self, index: int, step: int) -> Process:
        with self._lock:
            if self._closed:
                raise TaskError(
                    f"map({self._job.name}) was closed before step {step} was done",
                    next_step="close the loader when the last batch has been taken",
                )
            if self._processes[index].ended:
                self._processes[index] = Process(self._job)
                self.replaced += 1
            return self._processes[index]


class Process:
    """One process, and our end of its socket. It writes its stack when it hangs or crashes."""

    def __init__(self, job: served.Job) -> None:
        self._timeout = job.timeout
        self._ready = False
        self.ended = False
        self._socket, theirs = socket.socketpair()
        with theirs:
            try:
                self._child = Child(
                    ["-u", "-c", _SERVE.format(path=job.path)],  # -u: what the function prints is seen even if it dies
                    [theirs.fileno()],
                    inherits=(theirs.fileno(),),
                    environment={**_ENVIRONMENT, **os.environ},
                )
            except BaseException:
                self._socket.close()
                raise
        self.pid = self._child.pid
        self._socket.settimeout(served.START_SECONDS)
        with suppress(OSError):  # it is dead or stuck already: its first batch will tell
            served.send(self._socket, served.encode(job))

    def run(self, message: served.Message) -> Batch | served.Failure:
        """Result of the function, or what it raised. ProcessEnded: neither, and there has to be a new process."""
        try:
            if not self._ready:
                refusal = self._hear(served.START_SECONDS)
                if refusal is not None:
                    self.end()
                    return refusal  # type: ignore[no-any-return]
                self._ready = True
            self._socket.settimeout(self._timeout)
            served.send(self._socket, message)
            return self._hear(self._timeout)  # type: ignore[no-any-return]
        except TimeoutError:
            raise self._ended(hung=True) from None
        except (EOFError, OSError):
            raise self._ended(hung=False) from None
        except BaseException:  # Ctrl-C: its answer would be taken for the next batch's
            self.end()
            raise

    def hang_up(self) -> None:
        """Close the socket, so that the process and the waiting thread notice. Any thread may call this."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Kill it, with whatever the function has started, and keep nothing but what it wrote last."""
        self.ended = True
        self._code = self._child.end()
        self._socket.close()

    def _hear(self, seconds: float) -> Any:
        self._socket.settimeout(seconds + _STACK_SECONDS)
        return served.receive(self._socket)

    def _ended(self, hung: bool) -> ProcessEnded:
        self.end()
        hung = hung or self._child.last_words.startswith("Timeout (")
        if hung:
            how = (
                f"hung for {self._timeout:g} s" if self._ready else f"had not started after {served.START_SECONDS:g} s"
            )
        else:
            code = self._code
            death = f"signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"exit code {code}"
            how = f"died of {death}" if self._ready else f"died of {death} while it started"
        return ProcessEnded(how, hung, self._child.last_words)


class ProcessEnded(Exception):
    """A process has died, or hung and was killed. The batch it had is not done."""

    def __init__(self, how: str, hung: bool, last_words: str) -> None:
        super().__init__(how)
        self.how, self.hung, self.last_words = how, hung, last_words


def _given_up(job: served.Job, step: int, ends: list[ProcessEnded]) -> TaskError:
    if ends[-1].hung:
        next_step = f"if it only needs longer, raise timeout={job.timeout:g}; else run map in threads to see it hang"
    else:
        next_step = (
            "run map in threads to see it; signal 9 without a reason is mostly the kernel's out-of-memory killer "
            "(see `dmesg`): fewer processes or smaller batches need less"
        )
    hows = list(dict.fromkeys(end.how for end in ends))
    story = ", then ".join(hows) if len(hows) > 1 else f"{hows[0]} each time"
    error = TaskError(
        f"map({job.name}) did not finish step {step} in {len(ends)} attempts: its process {story}",
        where=job.place,
        next_step=next_step,
    )
    if ends[-1].last_words:
        error.add_note(f"the last one's stack:\n{ends[-1].last_words}")
    return error


@dataclass(frozen=True)
class Functions:
    """The user's functions one after the other, in the loader's threads or in `processes` of their own.

    It can itself be sent to a process.
    """

    each: tuple[Function, ...] = ()
    processes: int = 0
    timeout: float = 4.0

    @property
    def names(self) -> list[str]:
        return [name_of(function) for function in self.each]

    @property
    def func(self) -> Function:
        """The function that errors of a process name: the last, as of a functools.partial."""
        return self.each[-1]

    def __call__(self, batch: Batch) -> Batch:
        for function in self.each:
            batch = function(batch)
        return batch

    def then(self, function: Function, processes: int, timeout: float) -> Functions:
        """These and one more, checked. One process runs them all."""
        if not callable(function):
            raise ConfigError(
                f"map() takes a function, not {type(function).__name__}",
                where="loader.map",
                next_step="give a function that takes a batch and returns one",
            )
        check_count(processes, timeout)
        if self.processes:
            processes, timeout = max(processes, self.processes), max(timeout, self.timeout)
        made = Functions((*self.each, function), processes, timeout)
        if processes:
            check_sendable(made)
        return made

    def apply(self, k: int, batch: Batch) -> Batch:
        """Run them on batch k, in this thread."""
        for function in self.each:
            try:
                batch = function(batch)
            except Exception as error:
                error.add_note(f"in step {k} of map({name_of(function)})")
                raise
            if found := served.other_types(batch):
                raise served.wrong_result(found, name_of(function), place_of(function), k)
        return batch
