"""Places: the nodes of a cluster, and how many tasks of a pass each may do at once. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Settings
from penstock.prepare.budget.room import Room


@dataclass(frozen=True)
class Node:
    """A node that is alive. `cpus` and `memory` are what Ray may give to tasks there."""

    id: str
    name: str
    cpus: int
    memory: int

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Node:
        """The node that an entry of `ray.nodes()` describes."""
        resources = facts["Resources"]
        name = f"{facts['NodeManagerHostname']} ({facts['NodeManagerAddress']}, node {facts['NodeID'][:8]})"
        return cls(facts["NodeID"], name, int(resources.get("CPU", 0)), int(resources.get("memory", 0)))

    def __str__(self) -> str:
        return f"{self.name} has {self.cpus} CPUs and {format_size(self.memory)}"


@dataclass(frozen=True)
class Places:
    """Where tasks of a pass may run. `at_once` is the number of tasks, by the id of the node."""

    at_once: Mapping[str, int]
    settings: Settings

    @property
    def total(self) -> int:
        return sum(self.at_once.values())


def find_places(nodes: Sequence[Node], settings: Settings, budget: Budget, most: int | None) -> Places:
    """`budget` and `most`, the largest number of tasks at once, are per node.

    A task gets no more threads than the smallest node has CPUs. If a node runs more tasks than were planned for one
    machine, each task has less room for very large rows.
    """
    usable = [node for node in nodes if node.cpus]
    threads = min([settings.threads, *(node.cpus for node in usable)])
    at_once = {}
    for node in usable:
        fitting = min(node.cpus // threads, min(node.memory, budget.allowed) // settings.task_bytes)
        at_once[node.id] = fitting if most is None else min(fitting, most)
    return Places(at_once, _with_share(replace(settings, threads=threads), max(at_once.values(), default=0), budget))


def _with_share(settings: Settings, tasks: int, budget: Budget) -> Settings:
    """Settings for `tasks` tasks that share a node."""
    planned = max(1, settings.workers)
    if tasks <= planned:
        return settings
    shared = settings.room.shared * planned // tasks - settings.task_bytes * (tasks - planned) // tasks
    limit = min(settings.worker_limit, max(settings.task_bytes, budget.allowed // tasks))
    return replace(settings, room=Room(max(1, shared), settings.room.alone), worker_limit=limit)


def refuse_small_nodes(nodes: Sequence[Node], word: str, settings: Settings, budget: Budget) -> None:
    """Refuse a pass if one of its tasks does not fit on some node: Ray would wait for ever, silently."""
    usable = [node for node in nodes if node.cpus]
    if not usable:
        raise PlanError(
            "no node of the Ray cluster has a CPU for tasks",
            where="; ".join(map(str, nodes)) or "the cluster has no node",
            next_step="add nodes: ray start --address=HEAD:6379",
        )
    small = [node for node in usable if min(node.memory, budget.allowed) < settings.task_bytes]
    if small:
        raise PlanError(
            f"pass {word}: a task needs {format_size(settings.task_bytes)}, and {len(small)} of {len(usable)} nodes of "
            f"the Ray cluster cannot give that to one task",
            where="; ".join(map(str, small)) + f"; {budget} is allowed on each node",
            next_step="start these nodes with more memory (ray start --memory=BYTES), leave them out of the cluster, "
            "or set a smaller `memory:`, which makes batches smaller",
        )
