"""Local engine: worker processes on this machine, within the memory budget. Next: worker.py.

It starts processes and passes messages: what happens to them becomes events for attempts.py, which decides, and its
commands are carried out here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from penstock.base.events.log import EventLog
from penstock.base.memory import Budget, TreeMemory, tree_memory
from penstock.base.processes.nursery import Nursery
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines import Feed, Listed, events
from penstock.prepare.engines.attempts import Attempts, Policy
from penstock.prepare.engines.giving_up import given_up, refuse_other_row
from penstock.prepare.engines.hired import Worker, event_of
from penstock.prepare.passes import Task, Work

if TYPE_CHECKING:
    from penstock.prepare.engines import Done, Opening

_TICK_SECONDS = 0.1
_SAMPLE_SECONDS = 0.25


def open_engine(opening: Opening) -> LocalEngine:
    plan, nursery, log = opening.plan, opening.nursery, opening.log
    return LocalEngine(
        nursery, plan.means.budget, log, plan.config.stall_notice, plan.config.task_timeout, opening.lock
    )


class LocalEngine:
    def __init__(
        self,
        nursery: Nursery,
        budget: Budget,
        log: EventLog,
        stall_notice: float,
        task_timeout: float,
        hold: tuple[int, ...] = (),
    ) -> None:
        self._nursery, self._budget, self._log, self._hold = nursery, budget, log, hold
        self._stall_notice, self._task_timeout = stall_notice, task_timeout
        self._workers: dict[int, Worker] = {}
        self._attempts = Attempts()
        self._rows_done = 0
        self._sampled = self._shown = time.monotonic()  # a run reads memory when it begins
        self._looked, self._is_seen = 0.0, False
        self._sample_pause = _SAMPLE_SECONDS
        self._memory = TreeMemory()

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        self.serve(Listed(tasks), work, settings, done)

    def serve(self, feed: Feed, work: Work, settings: Settings, done: Done) -> None:
        """Do the tasks that come while the pass runs, until no more will."""
        self._work, self._settings, self._done = work, settings, done
        self._carry_out(self._attempts.begin((), self._policy(work, settings)))
        for worker in self._workers.values():
            worker.send("work", work, settings, self._stall_notice)
        while True:
            self._carry_out(self._attempts.drop(feed.lost()))
            self._attempts.add(feed.take(self._attempts.room))
            if self._attempts.is_over and feed.is_over:
                return
            self._take(events.Tick())
            self._sample()  # after workers got their tasks: they do not wait for it
            for number in self._heard():
                self._listen(number)
            self._look_at_silent_workers()

    def held_bytes(self) -> int:
        return tree_memory(os.getpid()).counted

    def close(self) -> None:
        for worker in self._workers.values():
            worker.kill()
        self._workers.clear()
        self._nursery.close()  # so that their CPU time counts as ours

    def _stack_of(self, number: int) -> Callable[[], str]:
        """Asked only of a worker that hangs: one that died is no longer there."""
        return lambda: self._workers[number].stack()

    def _policy(self, work: Work, settings: Settings) -> Policy:
        return Policy.of(work, settings, self._budget.allowed, self._stall_notice, self._task_timeout)

    # Events.

    def _take(self, event: events.Event) -> None:
        self._carry_out(self._attempts.take(event, time.monotonic()))

    def _heard(self) -> list[int]:
        numbers = {worker.connection: number for number, worker in self._workers.items()}
        return [numbers[each] for each in wait(list(numbers), timeout=_TICK_SECONDS)]  # type: ignore[index]

    def _listen(self, number: int) -> None:
        worker = self._workers[number]
        try:
            message = worker.connection.recv()
        except (EOFError, OSError):  # OSError: it died in the middle of a message
            self._take(events.Died(number, f"its worker died of {worker.death()}"))
            return
        if event := event_of(number, message):
            worker.is_ready = True  # that is the first thing it says
            self._take(event)

    def _look_at_silent_workers(self) -> None:
        """Measure silent workers from outside: a worker that runs C code cannot report its memory."""
        now = time.monotonic()
        if now - self._looked < _TICK_SECONDS:
            return
        self._looked = now
        for number in self._attempts.silent(now):
            self._take(events.Holds(number, self._workers[number].held_bytes(), is_own_word=False))

    def _sample(self) -> None:
        """Read the tree's memory rarely enough that reading it costs at most a hundredth of the time; between, samples
        repeat it."""
        now = time.monotonic()
        is_read = now - self._sampled >= self._sample_pause
        if is_read:
            self._memory = tree_memory(os.getpid())
            self._sampled = time.monotonic()
            self._sample_pause = max(_SAMPLE_SECONDS, 100 * (self._sampled - now))
        if is_read or now - self._shown >= _SAMPLE_SECONDS:
            self._shown, memory = time.monotonic(), self._memory
            rows, workers = self._rows_done + self._attempts.rows, self._attempts.states(now)
            self._log.sample(memory=memory.counted, file=memory.file, rows=rows, busy=len(workers), workers=workers)
        if is_read:
            self._stop_largest()

    def _stop_largest(self) -> None:
        """End the largest worker, if the tree holds more than it may."""
        memory, busy = self._memory, self._attempts.busy
        if memory.counted > self._budget.allowed and busy:
            largest = max(busy, key=lambda number: self._workers[number].held_bytes())
            self._take(
                events.Overfull(largest, f"the tree held {format_size(memory.counted)}, more than {self._budget}")
            )

    # Commands.

    def _carry_out(self, commands: Sequence[events.Command]) -> None:
        for command in commands:
            match command:
                case events.Start(number):
                    self._workers[number] = Worker(self._nursery, self._hold)
                    self._workers[number].send("work", self._work, self._settings, self._stall_notice)
                case events.Give():
                    self._workers[command.worker].send("task", command)
                case events.Stop(number):
                    self._workers.pop(number).kill()
                case events.Say(name, facts, None):
                    self._log.say(name, **facts)
                case events.Say(name, facts, int(number)):
                    self._log.say(name, **facts, stack=self._workers[number].stack())
                case events.Complete(task, row, effort):
                    refuse_other_row(task, row)
                    self._rows_done += row.rows_read
                    self._done(task, row, effort)
                    if not self._is_seen:  # sample while it holds memory: a short run may have no other sample
                        self._is_seen, self._sampled = True, 0.0
                case events.Raise(error):
                    raise error
                case events.GiveUp():
                    raise given_up(command, self._settings, self._budget, self._stack_of(command.worker))
