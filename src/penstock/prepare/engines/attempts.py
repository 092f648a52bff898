"""Attempts: what happens to workers -> what to do about their tasks. Pure. Used by local.py and trial.py.

`take` is told what happened, as an event, and answers with commands. It starts no process, reads no clock and writes no
file; an engine does that. The rules, for a task that runs:

| event | if | the task | commands |
|---|---|---|---|
| Died, Overfull | fewer than 3 failures at this file | waits, half the batch; the third time alone | Stop, Say retry |
| | 3, and the file may be lost | waits without the file, whole batch | Stop, Say lost_file, Say retry |
| | 3, and it may not | failed | Stop, GiveUp |
| Lost, with its machine | fewer than 3 times | waits, same batch | Stop, Say retry |
| | 3 times and more | as if it had died | |
| Queued | | its time has not begun | |
| Holds more than the worker's limit | first failure at this file | waits, half the batch | Stop, Say retry |
| | again, most of it was held before the file | failed: a leak | GiveUp |
| | again | waits without the file, whole batch | Say lost_file, Stop, Say retry |
| Stalled | not said yet | runs | Say stall, with the stack it came with |
| Tick, quiet for `stall_notice` and longer | ready, not said yet | runs | Say stall, with the stack seen from outside |
| Tick, quiet for `task_timeout` | first time at this file | waits, same batch | Stop, Say retry |
| | again, and the file may be lost | waits without the file, whole batch | Say lost_file, Stop, Say retry |
| | again, and it may not | failed | GiveUp |
| Alone | it ran beside others | waits, alone | Say alone |
| | it was alone already | failed | GiveUp |
| Finished | | done | Complete; Stop if the worker did many tasks, or some and has grown |
| Failed | | failed | Raise |

A task that has to wait again goes to the front. Waiting tasks are given to workers at a Tick. More tasks may come while
a pass runs (`add`, as far as there is `room`), and tasks may go (`drop`).
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol, Self

from penstock.base.events import WorkerState
from penstock.base.sizes import format_size
from penstock.prepare.engines import events
from penstock.prepare.engines.events import ATTEMPTS, Attempt
from penstock.prepare.rows.rows import DIED, GIVEN_UP, HUNG, TOO_LARGE

if TYPE_CHECKING:
    from penstock.prepare.budget.means import Settings
    from penstock.prepare.passes import Work

TASKS_PER_WORKER = 200  # then it is replaced, so that no leak outlives so many tasks
START_SECONDS = 120.0  # for a busy machine to import a worker's libraries
SILENT_SECONDS = 0.3  # after which a worker that should have spoken is looked at from outside
_TASKS_BEFORE_GROWN = 8  # a worker's size says little before
_GROWN_SHARE = 0.75  # of a worker's share of the memory
_LEAST_BATCH_BYTES = 1024
_LOSSES = 3  # from then on, a task whose machine goes away is taken for the reason


class Named(Protocol):
    """A task, as far as its attempts are concerned."""

    @property
    def name(self) -> str: ...
    @property
    def input(self) -> object: ...


@dataclass(frozen=True)
class Policy:
    """Limits and sizes of one pass."""

    workers: int
    batch_bytes: int
    hold_bytes: int = 0
    allowed_bytes: int = 0  # for the whole tree
    worker_limit: int = 0  # bytes that a worker may hold inside a user's function; 0: no limit
    limit_by: str = ""  # the setting behind `worker_limit`
    stall_notice: float = math.inf
    task_timeout: float = math.inf
    may_lose: tuple[str, ...] = ()  # some of DIED, HUNG, TOO_LARGE: reasons for which a task may leave a file out
    shift: int = 1  # a failure divides the batch by 2 ** shift
    failures_of_lost: int = ATTEMPTS  # at a file, before it is lost
    most_tries: float = math.inf  # of a task, whatever file it failed at

    @classmethod
    def of(cls, work: Work, settings: Settings, allowed: int, stall_notice: float, task_timeout: float) -> Self:
        """The policy of a pass."""
        return cls(
            workers=settings.workers,
            batch_bytes=settings.batch_bytes,
            hold_bytes=settings.hold_bytes,
            allowed_bytes=allowed,
            worker_limit=settings.worker_limit,
            limit_by=settings.limit_by,
            stall_notice=stall_notice,
            task_timeout=task_timeout,
            may_lose=tuple(title for title in GIVEN_UP if work.may_lose(title)),
        )


# Of a trial: a file that ends its process is left out at once; rows are measured in batches of an eighth.
SCOUTING = Policy(workers=1, batch_bytes=0, may_lose=GIVEN_UP, failures_of_lost=1, most_tries=ATTEMPTS)
MEASURING = Policy(workers=1, batch_bytes=0, shift=3)


@dataclass
class _Worker:
    number: int
    attempt: Attempt | None = None
    tasks: int = 0
    ready_bytes: int = 0  # that it held when it had started; 0 until then


class Attempts:
    """Tasks that wait and workers that have some. Workers stay from one pass to the next."""

    def __init__(self) -> None:
        self._workers: list[_Worker] = []
        self._waiting: deque[Attempt] = deque()
        self._numbers = itertools.count()
        self._fresh_bytes = 0  # of a worker before its first file

    def begin(self, tasks: Sequence[Named], policy: Policy) -> list[events.Command]:
        """Start a pass. A pass with larger batches has fewer workers."""
        self._policy = policy
        self._waiting = deque(map(Attempt, tasks))
        return [self._stop(worker) for worker in self._workers[: max(1, policy.workers) - 1 : -1]]

    def add(self, tasks: Sequence[Named]) -> None:
        """More tasks of the pass, behind those that wait."""
        self._waiting.extend(map(Attempt, tasks))

    def drop(self, names: Collection[str]) -> list[events.Command]:
        """Forget tasks that another member does."""
        if not names:  # every turn of an engine asks, and many thousands of tasks may wait
            return []
        self._waiting = deque(attempt for attempt in self._waiting if attempt.task.name not in names)
        return [self._stop(worker) for worker, attempt in self._busy() if attempt.task.name in names]

    def resize(self, workers: int) -> list[events.Command]:
        """From now on, so many workers: machines have come or gone. Workers that have a task keep it."""
        self._policy = replace(self._policy, workers=workers)
        idle = [worker for worker in self._workers if not worker.attempt]
        return [self._stop(worker) for worker in idle[: max(0, len(self._workers) - workers)]]

    @property
    def room(self) -> int:
        """How many more tasks could begin now. None beside one that must be alone."""
        busy = self._busy()
        free = self._policy.workers - len(busy) - len(self._waiting)
        if free <= 0 or any(each.is_alone for each in (*self._waiting, *(attempt for _, attempt in busy))):
            return 0
        return free

    @property
    def is_over(self) -> bool:
        return not self._waiting and not self._busy()

    @property
    def rows(self) -> int:
        """Rows that the tasks at work have read so far."""
        return sum(attempt.rows for _, attempt in self._busy())

    @property
    def busy(self) -> list[int]:
        """Workers that have a task."""
        return [worker.number for worker, _ in self._busy()]

    def states(self, now: float) -> list[WorkerState]:
        """Tasks at work, one per busy worker."""
        return [
            {
                "worker": worker.number,
                "task": attempt.task.name,
                "slice": str(attempt.task.input),
                "file": attempt.place,
                "rows": attempt.rows,
                "seconds": round(now - attempt.began, 1),
            }
            for worker, attempt in self._busy()
        ]

    def silent(self, now: float) -> list[int]:
        """Workers inside a user's function that has a limit, who have not said lately how much they hold."""
        return [
            worker.number
            for worker, attempt in self._busy()
            if attempt.place and self._policy.worker_limit and now - attempt.spoke >= SILENT_SECONDS
        ]

    def take(self, event: events.Event, now: float) -> list[events.Command]:
        """Commands that follow from an event at the time `now`, in their order. None follows one that ends the run."""
        commands: list[events.Command] = []
        for command in self._take(event, now):
            commands.append(command)
            if isinstance(command, events.GiveUp | events.Raise):
                break
        return commands

    def _take(self, event: events.Event, now: float) -> Iterator[events.Command]:
        if isinstance(event, events.Tick):
            yield from self._watch(now)
            yield from self._hand_out(now)
            return
        worker = next((each for each in self._workers if each.number == event.worker), None)
        if worker is None:  # it was stopped meanwhile
            return
        if isinstance(event, events.Ready):
            worker.ready_bytes = self._fresh_bytes = event.bytes
        if worker.attempt is not None:
            yield from self._of_task(event, worker, worker.attempt, now)
        elif isinstance(event, events.Died | events.Lost):
            yield self._stop(worker)
        elif isinstance(event, events.Failed):
            yield events.Raise(event.error)

    def _of_task(self, event: events.Event, worker: _Worker, attempt: Attempt, now: float) -> Iterator[events.Command]:
        match event:
            case events.Ready() | events.Queued():
                attempt.began = attempt.moved = now  # a task's time starts when its worker has
            case events.Moved(_, rows):
                if rows != attempt.rows:  # fewer: it began anew without an unreadable part
                    attempt.rows = rows
                    attempt.show(now)
            case events.Entered(_, file, held, whole):
                attempt.place, attempt.place_bytes, attempt.is_whole_file = file, held, whole
                attempt.spoke = now
                attempt.show(now)
            case events.Alone():
                yield from self._be_alone(worker, attempt)
            case events.Finished():
                yield from self._finish(worker, attempt, event, now)
            case events.Failed():
                worker.attempt = None
                yield events.Raise(event.error)
            case events.Died() | events.Overfull():
                yield from self._drop(worker, attempt, event.reason)
            case events.Lost():
                attempt.losses += 1
                is_its_fault = attempt.losses >= _LOSSES
                yield from self._drop(worker, attempt, event.reason, failures=int(is_its_fault))
            case events.Holds():
                attempt.spoke = now if event.is_own_word else attempt.spoke
                yield from self._limit(worker, attempt, event.bytes)
            case events.Stalled(_, stack):
                yield from self._notice(attempt, now, stack=stack)

    def _busy(self) -> list[tuple[_Worker, Attempt]]:
        return [(worker, worker.attempt) for worker in self._workers if worker.attempt]

    def _stop(self, worker: _Worker) -> events.Stop:
        self._workers.remove(worker)
        return events.Stop(worker.number)

    # Handing out.

    def _hand_out(self, now: float) -> Iterator[events.Command]:
        while self._waiting and self._may_begin(self._waiting[0]):
            if self._waiting[0].is_alone:
                yield from [self._stop(each) for each in self._workers[:0:-1]]  # what idle ones hold is not theirs
            worker = next((each for each in reversed(self._workers) if not each.attempt), None)
            if worker is None:
                if len(self._workers) >= self._policy.workers:
                    return
                worker = _Worker(next(self._numbers))
                self._workers.append(worker)
                yield events.Start(worker.number)
            yield self._give(worker, self._waiting.popleft(), now)

    def _may_begin(self, attempt: Attempt) -> bool:
        """Whether the task may start: neither it nor a running task must be alone."""
        busy = self._busy()
        return not busy if attempt.is_alone else not any(other.is_alone for _, other in busy)

    def _give(self, worker: _Worker, attempt: Attempt, now: float) -> events.Give:
        attempt.begin(now)
        worker.attempt = attempt
        return events.Give(
            worker.number,
            attempt.task,
            max(_LEAST_BATCH_BYTES, self._batch_bytes(attempt)),
            self._policy.hold_bytes if attempt.number == 0 else 0,
            attempt.lost,
            attempt.is_alone,
        )

    def _batch_bytes(self, attempt: Attempt) -> int:
        return self._policy.batch_bytes >> self._policy.shift * attempt.number

    # Ends of a try.

    def _be_alone(self, worker: _Worker, attempt: Attempt) -> Iterator[events.Command]:
        if attempt.is_alone:  # asking again would never end
            yield events.GiveUp(events.NEEDS_MORE, attempt, worker.number)
            return
        attempt.asked_to_be_alone = True
        worker.attempt = None
        self._waiting.appendleft(attempt)
        yield _say("alone", attempt)

    def _finish(
        self, worker: _Worker, attempt: Attempt, event: events.Finished, now: float
    ) -> Iterator[events.Command]:
        worker.attempt = None
        worker.tasks += 1
        effort = events.Effort(now - attempt.began, attempt.tries)
        yield events.Complete(attempt.task, event.row, effort)
        has_grown = event.bytes > _GROWN_SHARE * self._policy.allowed_bytes / max(1, self._policy.workers)
        if worker.tasks >= TASKS_PER_WORKER or (has_grown and worker.tasks >= _TASKS_BEFORE_GROWN):
            yield self._stop(worker)

    def _drop(self, worker: _Worker, attempt: Attempt, reason: str, failures: int = 1) -> Iterator[events.Command]:
        """Stop the worker; its task waits with a smaller batch or without a file, or is given up."""
        yield self._stop(worker)
        attempt.reason = reason
        attempt.failures[attempt.place] += failures
        attempt.number = attempt.failures[attempt.place]
        if attempt.number >= self._policy.failures_of_lost and not attempt.is_left_out:
            yield from self._lose_file(attempt, DIED, reason)
        is_too_often = attempt.number >= ATTEMPTS and not attempt.is_left_out
        if is_too_often or attempt.tries >= self._policy.most_tries:
            yield events.GiveUp(DIED, attempt, worker.number)
            return
        if attempt.is_left_out:
            attempt.number = 0
        self._waiting.appendleft(attempt)
        yield _say("retry", attempt, reason=reason, batch_bytes=self._batch_bytes(attempt))

    def _lose_file(self, attempt: Attempt, title: str, reason: str) -> Iterator[events.Command]:
        """Set the file aside in which a user's function was stopped, if that is allowed."""
        if attempt.can_be_left_out and title in self._policy.may_lose:
            attempt.lost = (*attempt.lost, (attempt.place, title, reason))
            facts = {"task": attempt.task.name, "file": attempt.place, "title": title, "reason": reason}
            yield events.Say("lost_file", facts)

    def _limit(self, worker: _Worker, attempt: Attempt, held: int) -> Iterator[events.Command]:
        """A user's function that holds too much: once more with a fresh worker, then its file is set aside."""
        limit = self._policy.worker_limit
        if not limit or held <= limit or not attempt.place:
            return
        if attempt.failures[attempt.place]:
            if attempt.place_bytes - self._fresh_bytes > (limit - self._fresh_bytes) / 2:
                yield events.GiveUp(events.LEAKS, attempt, worker.number, bytes=held)
                return
            yield from self._lose_file(attempt, TOO_LARGE, f"more than {self._policy.limit_by}")
        reason = f"{attempt.place} made its worker hold {format_size(held)}, more than {format_size(limit)}"
        yield from self._drop(worker, attempt, reason)

    # Tasks that show no row.

    def _watch(self, now: float) -> Iterator[events.Command]:
        for worker, attempt in self._busy():
            still = now - attempt.moved
            timeout = self._policy.task_timeout
            if still >= (timeout if worker.ready_bytes else max(timeout, START_SECONDS)):
                yield from self._hang(worker, attempt, still)
            elif still >= self._policy.stall_notice + SILENT_SECONDS and worker.ready_bytes:
                yield from self._notice(attempt, now, stack_of=worker.number)

    def _notice(self, attempt: Attempt, now: float, **stack: Any) -> Iterator[events.Command]:
        if not attempt.noticed:
            attempt.noticed = True
            yield _say("stall", attempt, seconds=round(now - attempt.moved, 1), rows=attempt.rows, **stack)

    def _hang(self, worker: _Worker, attempt: Attempt, still: float) -> Iterator[events.Command]:
        attempt.stalls[attempt.place] += 1
        if attempt.stalls[attempt.place] > 1:
            reason = f"it showed no row for {self._policy.task_timeout:g} s (task_timeout), twice"
            yield from self._lose_file(attempt, HUNG, reason)
            if not attempt.is_left_out:
                yield events.GiveUp(HUNG, attempt, worker.number, seconds=still)
                return
        # It was time, not memory: the batch stays.
        yield from self._drop(worker, attempt, f"it showed no row for {still:.3g} s", failures=0)


def _say(name: str, attempt: Attempt, stack_of: int | None = None, **facts: Any) -> events.Say:
    return events.Say(name, {"task": attempt.task.name, "slice": str(attempt.task.input), **facts}, stack_of)
