"""Calls: the tasks that Ray runs now, each on a node that is chosen here. What happens to them becomes events."""

from __future__ import annotations

import itertools
import pickle
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.base.sizes import format_size
from penstock.prepare.engines import events
from penstock.prepare.engines.attempts import TASKS_PER_WORKER
from penstock.prepare.engines.giving_up import defect_of
from penstock.prepare.engines.hired import event_of
from penstock.prepare.engines.ray.cluster import Cluster
from penstock.prepare.engines.ray.inbox import MEMORY, Inbox
from penstock.prepare.engines.ray.probing import at_node
from penstock.prepare.engines.ray.remote import do_task, duty_of, message_of_give

if TYPE_CHECKING:
    from penstock.base.memory import Budget
    from penstock.prepare.engines.ray.places import Places
    from penstock.prepare.passes import Work


@dataclass
class Call:
    """One attempt at a task. `reference` is Ray's reference to its result."""

    reference: Any
    give: events.Give
    node: str
    token: str
    has_begun: bool = False
    held: int = 0  # bytes that its process held at its last report
    stack: str = "it has not said where it is"


class Calls:
    """Calls by the number of their worker in attempts.py."""

    def __init__(self, cluster: Cluster) -> None:
        ray = cluster.ray
        self._ray, self._numbers = ray, itertools.count()
        self._do = ray.remote(num_cpus=1, max_retries=0, max_calls=TASKS_PER_WORKER)(do_task)
        beside = {**at_node(cluster.own_node), "num_cpus": 0}
        self._inbox = ray.remote(Inbox).options(**beside).remote()
        self._calls: dict[int, Call] = {}
        self._stacks: dict[int, str] = {}

    def begin_pass(self, work: Work, places: Places, stall_notice: float) -> None:
        """From now on, tasks belong to this pass. It is sent once for all its tasks."""
        self._duty, self.places = self._ray.put(duty_of(work, places.settings, stall_notice)), places

    def give(self, give: events.Give) -> None:
        """Start a task on the node with the most free places."""
        busy = Counter(call.node for call in self._calls.values())
        node = max(self.places.at_once, key=lambda each: (self.places.at_once[each] - busy[each], each))
        settings, token = self.places.settings, f"{next(self._numbers)}"
        options = {"num_cpus": settings.threads, "memory": settings.task_bytes, "name": give.task.name}
        do = self._do.options(**at_node(node), **options)
        reference = do.remote(self._duty, message_of_give(give), self._inbox, token)
        self._calls[give.worker] = Call(reference, give, node, token)

    def stop(self, number: int) -> None:
        call = self._calls.pop(number, None)
        if call:
            self._ray.cancel(call.reference, force=True, recursive=False)

    def task_of(self, number: int) -> Any:
        return self._calls[number].give.task

    def stack(self, number: int) -> str:
        """Stacks that a worker reported when it stalled."""
        return self._calls[number].stack

    def held_bytes(self) -> Counter[str]:
        """Bytes that calls hold, by node."""
        held: Counter[str] = Counter()
        for call in self._calls.values():
            held[call.node] += call.held
        return held

    # Reports.

    def overfull(self, budget: Budget) -> Iterator[events.Event]:
        """The largest call of each node that holds more than it may."""
        for node, held in self.held_bytes().items():
            if held > budget.allowed:
                largest = max((call.held, number) for number, call in self._calls.items() if call.node == node)[1]
                yield events.Overfull(largest, f"tasks on one node held {format_size(held)}, more than {budget}")

    def heard(self) -> Iterator[events.Event]:
        """Reports of workers since the last look. Calls that Ray has not begun yet wait for other jobs."""
        tokens = {call.token: number for number, call in self._calls.items()}
        for token, message in self._ray.get(self._inbox.take.remote()):
            number = tokens.get(token, -1)
            if number in self._calls and (event := self._event(number, self._calls[number], message)):
                yield event
        yield from (events.Queued(number) for number, call in list(self._calls.items()) if not call.has_begun)

    def _event(self, number: int, call: Call, message: tuple[Any, ...]) -> events.Event | None:
        if message[0] == MEMORY:
            call.held = message[1]
            return None
        event = event_of(number, message)
        call.has_begun = True
        if isinstance(event, events.Stalled):
            call.stack = event.stack
        elif isinstance(event, events.Ready | events.Entered):
            call.held = event.bytes
        return event

    def ended(self, seconds: float) -> Collection[int]:
        """Numbers of the calls that have ended. Waits at most `seconds` for one."""
        if not self._calls:
            time.sleep(seconds)
            return ()
        numbers = {call.reference: number for number, call in self._calls.items()}
        if self._ray.wait(list(numbers), timeout=seconds)[0]:  # one; others may have ended too
            ready, _ = self._ray.wait(list(numbers), num_returns=len(numbers), timeout=0)
            return [numbers[each] for each in ready]
        return ()

    def outcome(self, number: int) -> events.Event | None:
        """The result of a call that has ended."""
        reference = self._calls[number].reference
        try:
            return event_of(number, pickle.loads(self._ray.get(reference)))
        except self._ray.exceptions.RayTaskError as error:
            return events.Failed(number, defect_of(error.cause, str(error)))
        except self._ray.exceptions.RayError as error:
            return events.Died(number, " ".join(f"{type(error).__name__}: {error}".split())[:500])

    def over(self, number: int) -> None:
        """Forget a call that has ended: its process no longer holds memory for a task."""
        self._calls.pop(number, None)

    def is_on(self, number: int, nodes: Collection[str]) -> bool:
        return self._calls[number].node in nodes

    def close(self) -> None:
        """Calls that still run end when their driver leaves. In a program that stays connected they run to their end,
        and what they write fails. To cancel them could end the driver: if a call ends just then, Ray 2.60 aborts."""
        self._calls.clear()
        self._ray.kill(self._inbox)
