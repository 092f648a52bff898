"""Asking: a worker that answers one question after the other. One that dies is followed by another, by the rules of
attempts.py."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import TaskError
from penstock.base.processes.nursery import Nursery
from penstock.base.sizes import format_size
from penstock.prepare.engines.attempts import START_SECONDS, Attempts, Policy
from penstock.prepare.engines.events import Complete, Died, Entered, Event, Give, GiveUp, Raise, Stop, Tick
from penstock.prepare.engines.hired import Worker, event_of

HOLDING = "holding"
LEAST_BYTES = 64 << 20  # that it may take even where memory is too small: the plan then says so, with numbers
_TICK_SECONDS = 0.05


@dataclass(frozen=True)
class Question:
    """`name` tells the worker what to do, `input` tells people. `facts` makes the rest of the message for one try."""

    name: str
    input: str
    where: str | None
    facts: Callable[[Give], tuple[Any, ...]]


class GivenUp(Exception):
    """Every worker that was asked has died. The message says how the last one died."""


class Asking:
    """`limit` is what the worker may hold. With `passes_over_hangs`, a file in which a function hangs is left out."""

    def __init__(self, nursery: Nursery, timeout: float, limit: int, passes_over_hangs: bool) -> None:
        self.nursery, self._timeout, self.limit, self._passes_over_hangs = nursery, timeout, limit, passes_over_hangs
        self._worker: Worker | None = None
        self.place = ""  # the file that a user's function was given last
        self.place_bytes = 0  # that the worker held then
        self.held = 0  # that it was last seen to hold
        self.ready_bytes = 0  # that it held when it had started

    def ask(self, question: Question, policy: Policy) -> Any:
        """Answer of a worker; GivenUp, with how the last one died, if too many died of the question."""
        attempts = Attempts()
        attempts.begin([question], policy)
        event: Event = Tick()
        while True:
            message: tuple[Any, ...] = ()
            for command in attempts.take(event, time.monotonic()):
                match command:
                    case Give():
                        message = (question.name, *question.facts(command))
                    case Stop():
                        self.end()
                    case Complete(_, answer):
                        return answer
                    case Raise(error):
                        raise error
                    case GiveUp():
                        raise GivenUp(command.attempt.reason)
            event = self._next(attempts.busy[0], question, message) if attempts.busy else Tick()

    def _next(self, number: int, question: Question, message: tuple[Any, ...]) -> Event:
        """Send the message, if there is one, and wait for something to happen to the worker."""
        try:
            worker = self._started()
            if message:
                worker.send(*message)
            if death := self._wait(worker, question):
                self.end()
                return Died(number, death)
            event = event_of(number, worker.connection.recv())
        except (OSError, EOFError):
            return Died(number, self._death())
        except BaseException:
            self.end()  # or it would go on writing into a folder that is being removed
            raise
        assert event
        if isinstance(event, Entered):
            self.place = event.file
            self.held = self.place_bytes = worker.held_bytes() or self.held
        return event

    def _wait(self, worker: Worker, question: Question) -> str:
        """Wait for a message, or for a reason to end the worker. It is watched as in a run."""
        deadline = time.monotonic() + self._timeout
        while not worker.connection.poll(_TICK_SECONDS):
            held, room = worker.held_bytes(), self.limit - self.nursery.share_bytes()
            limit = max(room, self.ready_bytes + LEAST_BYTES)
            self.held = held or self.held  # nothing of one that has just died
            if held > limit:
                return f"{HOLDING} {format_size(held)}, more than the {format_size(limit)} that it may"
            if time.monotonic() > deadline:
                if question.where is None and self._passes_over_hangs:
                    return f"being killed after {self._timeout:g} s (task_timeout)"
                raise self._too_slow(worker, question.input, question.where or self.place)
        return ""

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = Worker(self.nursery)
            if not self._worker.connection.poll(max(self._timeout, START_SECONDS)):
                raise TaskError(
                    f"a worker had not started after {max(self._timeout, START_SECONDS):g} s",
                    next_step="run the same command when the machine is less busy, or raise `task_timeout`",
                )
            self.ready_bytes = self._worker.connection.recv()[1]
            self._worker.is_ready = True
        return self._worker

    def _too_slow(self, worker: Worker, what: str, where: str) -> TaskError:
        error = TaskError(
            f"{what} took longer than {self._timeout:g} s (task_timeout)",
            where=where,
            next_step="the stack below shows where it hangs; if it only needs more time, raise `task_timeout`",
        )
        error.add_note(worker.stack())
        return error

    def _death(self) -> str:
        """Description of how the worker ended."""
        if self._worker is None:
            return "being stopped"
        death = self._worker.death()
        self.end()
        return death

    def end(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker = None
