"""Trial: a worker that tries a little of the job before there is a plan: what a function yields, what rows cost.

Started when it is first needed. One that dies is followed by another, which takes less or leaves a file out: by the
rules of attempts.py.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.child import how_it_ended
from penstock.base.errors import PlanError, TaskError
from penstock.base.sizes import format_size
from penstock.prepare import passes
from penstock.prepare.budget.costs import Measured
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.attempts import (
    ATTEMPTS,
    START_SECONDS,
    Attempts,
    Complete,
    Died,
    Entered,
    Event,
    Give,
    GiveUp,
    Policy,
    Raise,
    Stop,
    Tick,
)
from penstock.prepare.engines.local import Worker, event_of
from penstock.prepare.rows.rows import GIVEN_UP
from penstock.prepare.sources import File, SourceOptions
from penstock.prepare.sources.slices import Segment, Slice
from penstock.prepare.survey.scouting import Scouted

_TICK_SECONDS = 0.05
_HOLDING = "holding"
_LEAST_BYTES = 64 << 20  # that it may take even where memory is too small: the plan then says so, with numbers
_LAST_SECONDS = 5.0  # for a process to end that has closed its connection
_SCOUTING = Policy(workers=1, batch_bytes=0, may_lose=GIVEN_UP, failures_of_lost=1, most_tries=ATTEMPTS)
_MEASURING = Policy(workers=1, batch_bytes=0, shift=3)


@dataclass(frozen=True)
class Question:
    """`name` tells the worker what to do, `input` tells people. `facts` makes the rest of the message for one try."""

    name: str
    input: str
    where: str | None
    facts: Callable[[Give], tuple[Any, ...]]


class _GivenUp(Exception):
    """Every worker that was asked has died. Its message says how the last one did."""


class Trial:
    """`limit` is what it may hold. With `passes_over_hangs`, a file in which a function hangs is left to its task."""

    def __init__(self, timeout: float, limit: int, passes_over_hangs: bool) -> None:
        self._timeout, self._limit, self._passes_over_hangs = timeout, limit, passes_over_hangs
        self._worker: Worker | None = None
        self._place = ""  # the file that a user's function was given last
        self._place_bytes = 0  # that the worker held then
        self._held = 0  # that it was last seen to hold
        self._ready_bytes = 0  # that it held when it had started
        self._tried: set[str] = set()  # files that it has come to the end of

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def may_hold(self, limit: int) -> None:
        """From now on: the driver has grown with what it knows of the input."""
        self._limit = limit

    def scout(
        self, files: Sequence[File], options: SourceOptions, floats: str | None, missing: dict[str, Any]
    ) -> Scouted:
        """Call a user's function, to see what it yields. A file that ends its process is passed over here."""
        left = tuple(files)

        def facts(give: Give) -> tuple[Any, ...]:
            nonlocal left
            lost = {path for path, _, _ in give.lost}
            left = tuple(file for file in left if file.path not in lost) or left
            return left, options, floats, missing

        try:
            answer: Scouted = self._ask(Question("scout", options.function, None, facts), _SCOUTING)
        except _GivenUp as death:
            raise self._given_up(options.function, str(death)) from None
        self._tried.update(answer.tried)
        return answer

    def _given_up(self, function: str, death: str) -> TaskError:
        """The memory is named where it was the reason, or may have been: the kernel says SIGKILL, and no reason."""
        held, before = format_size(self._held), format_size(self._place_bytes)
        what = f"{function} ended its process {ATTEMPTS} times, the last time by {death}"
        next_step = "call it yourself on that file to see why, or allow more `memory:`"
        if not death.startswith(_HOLDING):
            what += f"; it held {held} then, and {before} before this file"
        if self._place_bytes - self._ready_bytes > max((self._held - self._ready_bytes) / 2, _LEAST_BYTES / 2):
            what = f"{function} keeps memory from one file to the next: its process held {before} before this file and "
            what += f"{held} in it, and ended {ATTEMPTS} times, the last time by {death}"
            next_step = "let go of what earlier files left (caches, lists in the module), or allow more `memory:`"
        return TaskError(what, where=self._place, next_step=next_step)

    def measure(
        self, trials: Sequence[passes.Trial], slices: tuple[Slice, ...], settings: Settings, room: int
    ) -> Measured:
        """Measure the first slices. Files that a user's function has not come through yet are left to their tasks."""
        slices = tuple(replace(piece, segments=self._known(piece)) for piece in slices if self._known(piece))
        where = str(slices[0]) if slices else None

        def facts(give: Give) -> tuple[Any, ...]:
            return trials, slices, replace(settings, batch_bytes=give.batch_bytes), room

        question = Question("measure", "the first rows of the input, which are measured,", where, facts)
        try:
            answer: Measured = self._ask(question, replace(_MEASURING, batch_bytes=settings.batch_bytes))
            return answer
        except _GivenUp as ended:
            death = str(ended)
        if death.startswith(_HOLDING):
            raise PlanError(
                f"even the smallest part of the job needs more memory: the worker that measured the first rows of the "
                f"input was stopped {ATTEMPTS} times, the last time {death}",
                where=where,
                next_step="a larger `memory:`; twice as much is a start",
            )
        raise TaskError(
            f"the worker that measured the first rows of the input died {ATTEMPTS} times, the last time by {death}",
            where=where,
            next_step="allow more memory, or run with `workers: 0` to see what happens inside one process",
        )

    def _known(self, piece: Slice) -> tuple[Segment, ...]:
        return tuple(segment for segment in piece.segments if not self._tried or segment.path in self._tried)

    def _ask(self, question: Question, policy: Policy) -> Any:
        """Answer of a worker; _GivenUp, with how the last one died, if too many died of the question."""
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
                        self._end()
                    case Complete(_, answer):
                        return answer
                    case Raise(error):
                        raise error
                    case GiveUp():
                        raise _GivenUp(command.attempt.reason)
            event = self._next(attempts.busy[0], question, message) if attempts.busy else Tick()

    def _next(self, number: int, question: Question, message: tuple[Any, ...]) -> Event:
        """Send the message, if there is one, and wait for something to happen to the worker."""
        try:
            worker = self._started()
            if message:
                worker.send(*message)
            if death := self._wait(worker, question):
                self._end()
                return Died(number, death)
            event = event_of(number, worker.connection.recv())
        except (OSError, EOFError):
            return Died(number, self._death())
        except BaseException:
            self._end()  # or it would go on writing into a folder that is being removed
            raise
        assert event
        if isinstance(event, Entered):
            self._place = event.file
            self._held = self._place_bytes = worker.held_bytes() or self._held
        return event

    def _wait(self, worker: Worker, question: Question) -> str:
        """Until there is something to hear, or a reason to end it: it is watched, as it would be in a run."""
        deadline = time.monotonic() + self._timeout
        while not worker.connection.poll(_TICK_SECONDS):
            held, limit = worker.held_bytes(), max(self._limit, self._ready_bytes + _LEAST_BYTES)
            self._held = held or self._held  # nothing of one that has just died
            if held > limit:
                return f"{_HOLDING} {format_size(held)}, more than the {format_size(limit)} that it may"
            if time.monotonic() > deadline:
                if question.where is None and self._passes_over_hangs:
                    return f"being killed after {self._timeout:g} s (task_timeout)"
                raise self._too_slow(worker, question.input, question.where or self._place)
        return ""

    def _started(self) -> Worker:
        if self._worker is None:
            self._worker = Worker()
            if not self._worker.connection.poll(max(self._timeout, START_SECONDS)):
                raise TaskError(
                    f"a worker had not started after {max(self._timeout, START_SECONDS):g} s",
                    next_step="run the same command when the machine is less busy, or raise `task_timeout`",
                )
            self._ready_bytes = self._worker.connection.recv()[1]
            self._worker.is_ready = True
        return self._worker

    def _too_slow(self, worker: Worker, what: str, where: str) -> TaskError:
        error = TaskError(
            f"{what} took longer than {self._timeout:g} s (task_timeout)",
            where=where,
            next_step="see where it hangs in the stack below; if it only needs longer, raise `task_timeout`",
        )
        error.add_note(worker.stack())
        return error

    def _death(self) -> str:
        """Words for how the worker ended, once nothing more can be heard of it."""
        if self._worker is None:
            return "being stopped"
        with suppress(subprocess.TimeoutExpired):
            self._worker.child.process.wait(timeout=_LAST_SECONDS)
        code = self._worker.child.process.returncode
        self._end()
        return "closing its connection" if code is None else how_it_ended(code)

    def _end(self) -> None:
        if self._worker:
            self._worker.kill()
            self._worker = None
