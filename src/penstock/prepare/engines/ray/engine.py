"""Ray engine: the tasks of a pass on the nodes of a cluster. Like local.py, it decides nothing: it turns what happens
to calls into events for attempts.py, and carries out its commands."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock.base.errors import TaskError
from penstock.base.memory import own_memory
from penstock.prepare.engines import Opening, events
from penstock.prepare.engines.attempts import Attempts, Policy
from penstock.prepare.engines.giving_up import given_up, refuse_other_row
from penstock.prepare.engines.ray.calls import Calls
from penstock.prepare.engines.ray.cluster import Cluster
from penstock.prepare.engines.ray.places import Node, find_places
from penstock.prepare.ledger import forget, read_row, read_rows

if TYPE_CHECKING:
    from penstock.prepare.budget.means import Settings
    from penstock.prepare.engines import Done
    from penstock.prepare.passes import Task, Work

_TICK_SECONDS = 0.1
_SAMPLE_SECONDS = 0.25
_NODES_SECONDS = 2.0  # between two looks at which nodes are alive


class RayEngine:
    """`nodes` were probed. A node that joins later does no task of this run."""

    def __init__(self, opening: Opening, cluster: Cluster, nodes: Sequence[Node]) -> None:
        config = opening.plan.config
        self._budget, self._store, self._log = opening.plan.means.budget, opening.store, opening.log
        self._stall_notice, self._task_timeout = config.stall_notice, config.task_timeout
        self._most = None if config.workers == "auto" else config.workers
        self._cluster, self._nodes, self._own_node = cluster, list(nodes), cluster.own_node
        self._attempts, self._calls = Attempts(), Calls(cluster)
        self._rows_done, self._sampled, self._looked = 0, 0.0, time.monotonic()
        self._is_open = True

    def run(self, tasks: Sequence[Task], work: Work, settings: Settings, done: Done) -> None:
        forget(self._store, read_rows(self._store).keys() & {task.name for task in tasks})  # so a row is of this run
        self._work, self._settings, self._done = work, settings, done
        self._find_places()
        policy = Policy.of(
            work, self._calls.places.settings, self._budget.allowed, self._stall_notice, self._task_timeout
        )
        self._carry_out(self._attempts.begin(tasks, policy))
        self._carry_out(self._attempts.resize(self._calls.places.total))
        while not self._attempts.is_over:
            self._take(events.Tick())
            for event in self._calls.heard():
                self._take(event)
            for number in self._calls.ended(_TICK_SECONDS):
                self._end(number)
            self._look_at_nodes()
            self._sample()

    def held_bytes(self) -> int:
        """Bytes on the node where tasks and the driver hold most, without Ray's own processes."""
        held = self._calls.held_bytes()
        held[self._own_node] += own_memory().counted
        return max(held.values())

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            try:
                self._calls.close()
            finally:  # also if the cluster does not answer: this run may have started it
                self._cluster.leave()

    # Nodes.

    def _find_places(self) -> None:
        places = find_places(self._nodes, self._settings, self._budget, self._most)
        if not places.total:
            raise TaskError(
                "the Ray cluster has no node left that can do tasks",
                where=self._work.root,
                next_step="run the same command when nodes are back: it resumes from here",
            )
        self._calls.begin_pass(self._work, places, self._stall_notice)

    def _look_at_nodes(self, at_once: bool = False) -> None:
        """Give no more tasks to nodes that are gone."""
        if not at_once and time.monotonic() - self._looked < _NODES_SECONDS:
            return
        self._looked = time.monotonic()
        alive = {node.id for node in self._cluster.nodes()}
        if any(node.id not in alive for node in self._nodes):
            self._nodes = [node for node in self._nodes if node.id in alive]
            self._find_places()
            self._carry_out(self._attempts.resize(self._calls.places.total))

    # Events.

    def _take(self, event: events.Event) -> None:
        self._carry_out(self._attempts.take(event, time.monotonic()))

    def _end(self, number: int) -> None:
        """A call has ended. A row that its worker committed counts, however the worker ended."""
        event = self._calls.outcome(number)
        task = self._calls.task_of(number)
        if isinstance(event, events.Died):
            self._look_at_nodes(at_once=True)
            row = read_row(self._store, task.name)
            if row and row.fingerprint == task.fingerprint and row.identity == self._work.identity:
                event = events.Finished(number, row, 0)
            elif not self._calls.is_on(number, {node.id for node in self._nodes}):
                event = events.Lost(number, "its node has left the cluster")
        self._calls.over(number)
        if event:
            self._take(event)

    def _sample(self) -> None:
        if time.monotonic() - self._sampled < _SAMPLE_SECONDS:
            return
        self._sampled = time.monotonic()
        states, rows = self._attempts.states(self._sampled), self._rows_done + self._attempts.rows
        self._log.sample(memory=self.held_bytes(), file=0, rows=rows, busy=len(states), workers=states)
        for event in list(self._calls.overfull(self._budget)):
            self._take(event)

    # Commands.

    def _carry_out(self, commands: Sequence[events.Command]) -> None:
        for command in commands:
            match command:
                case events.Give():
                    self._calls.give(command)
                case events.Stop(number):
                    self._calls.stop(number)
                case events.Say(name, facts, None):
                    self._log.say(name, **facts)
                case events.Say(name, facts, int(number)):
                    self._log.say(name, **facts, stack=self._calls.stack(number))
                case events.Complete(task, row, effort):
                    refuse_other_row(task, row)
                    self._rows_done += row.rows_read
                    self._done(task, row, effort)
                case events.Raise(error):
                    raise error
                case events.GiveUp():
                    stack = partial(self._calls.stack, command.worker)
                    raise given_up(command, self._settings, self._budget, stack)
