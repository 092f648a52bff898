"""Spread: a Plan and some Nodes -> time, spill and network of the job there. Pure. The model, with its formulas and
what each term was measured on: docs/how-it-works/projection.md.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from penstock.base.errors import PlanError
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Means, Settings
from penstock.prepare.passes import Pass, Workload
from penstock.prepare.plan.nodes import Nodes
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.plan.settings import choose_settings, refuse_without_memory

# Seconds of one core that `plan` does not measure itself: from benchmarks/projection.py, see LOG.md.
TASK_SECONDS = 0.008  # per task, besides its rows: opening and committing files, the ledger entry
PIECE_SECONDS = 0.00004  # per bucket that a task spills to, and per spill that it reads a bucket of
PASS_SECONDS = 0.02  # per pass, on each node
JOIN_SECONDS = 0.1  # per node, besides planning: its workers start
FINISH_SECONDS = 0.0006  # per task, in one process, when all tasks are done
CROWDING = 0.02  # a task takes 2% longer per further busy worker of its node: RESULTS.md, 1 to 16 cores

# The largest runs that the model was compared with: RESULTS.md. Beyond them, it extrapolates.
COMPARED_NODES, COMPARED_WORKERS, COMPARED_BYTES, _FAR = 4, 1, 200_000_000, 10
COMPARED = f"up to {COMPARED_NODES} nodes of {COMPARED_WORKERS} worker and {format_size(COMPARED_BYTES)} of input"


@dataclass(frozen=True)
class Moved:
    """Bytes that the nodes of one pass read from the shared folder and write to it."""

    input_bytes: int
    spill_read_bytes: int
    spill_written_bytes: int
    output_bytes: int

    @property
    def all_bytes(self) -> int:
        return self.input_bytes + self.spill_read_bytes + self.spill_written_bytes + self.output_bytes


@dataclass(frozen=True)
class SpreadPass:
    """A pass on all nodes. `workers` are per node; `at_once` tasks run at one time on all nodes."""

    number: int
    kind: str
    tasks: int
    workers: int
    at_once: int
    work_seconds: float  # seconds of one core for all tasks
    compute_seconds: float
    network_seconds: float
    seconds: float
    moved: Moved
    left_out: str


@dataclass(frozen=True)
class Spread:
    """A job on some nodes."""

    nodes: Nodes
    start_seconds: float
    passes: tuple[SpreadPass, ...]
    finish_seconds: float

    @property
    def seconds(self) -> float:
        return self.start_seconds + sum(each.seconds for each in self.passes) + self.finish_seconds

    @property
    def network_bytes(self) -> int:
        return sum(each.moved.all_bytes for each in self.passes)

    @property
    def spill_bytes(self) -> int:
        """Bytes in the shared folder that are gone when the job is done."""
        return sum(each.moved.spill_written_bytes for each in self.passes)


def spread(plan: Plan, nodes: Nodes, planning_seconds: float) -> Spread:
    """`planning_seconds`: how long planning took here. Raises PlanError if a node is too small for a task."""
    means = nodes.means(plan.means)
    settings = _settings(plan, nodes, means)
    written = {each.pass_.number: _written(each) for each in plan.passes}
    passes = tuple(
        _on(nodes, each, own, each.pass_.workload(means), written)
        for each, own in zip(plan.passes, settings, strict=True)
    )
    finish = FINISH_SECONDS * plan.task_count
    start = 2 * planning_seconds + JOIN_SECONDS / nodes.speed  # the run plans, then every node as it joins
    return Spread(nodes, start, passes, finish / nodes.speed)


def _settings(plan: Plan, nodes: Nodes, means: Means) -> list[Settings]:
    """Settings of each pass as a run on a node would choose them."""
    passes: list[Pass] = [each.pass_ for each in plan.passes]
    try:
        refuse_without_memory(passes, plan.config, plan.survey, means)
    except PlanError as error:
        raise PlanError(
            f"a node with {nodes.budget} is too small for a task: {error.what}",
            where=error.where,
            next_step=f"use larger nodes; for each, {error.next_step}",
        ) from None
    return [choose_settings(each, plan.config, plan.survey, means) for each in passes]


def _written(planned: Planned) -> tuple[int, int]:
    """(bytes for later passes, bytes of the dataset) in the shared folder. Scratch files are on own disks."""
    if planned.pass_.facts().for_others:
        return planned.projected.spill_bytes, 0
    return 0, planned.projected.output_bytes


def _on(
    nodes: Nodes, planned: Planned, settings: Settings, work: Workload, written: dict[int, tuple[int, int]]
) -> SpreadPass:
    tasks, workers = len(planned.tasks), max(1, settings.workers)
    at_once = min(tasks, nodes.count * workers)
    busy = math.ceil(at_once / nodes.count)  # workers of a node
    cores = min(settings.threads, nodes.cores / busy) / (1 + CROWDING * (busy - 1))  # that a task has
    shared = work.seconds + PIECE_SECONDS * work.pieces
    compute = makespan(task_seconds(shared / cores, TASK_SECONDS / min(1.0, cores), tasks, work.sizes), at_once)
    moved = Moved(work.input_bytes, sum(sum(written[each]) for each in work.reads), *written[planned.pass_.number])
    network = moved.all_bytes / min(nodes.count, tasks) / nodes.bytes_per_second
    return SpreadPass(
        number=planned.pass_.number,
        kind=planned.pass_.kind,
        tasks=tasks,
        workers=workers,
        at_once=at_once,
        work_seconds=shared + TASK_SECONDS * tasks,
        compute_seconds=compute,
        network_seconds=network,
        seconds=together(compute, network, busy) + PASS_SECONDS / nodes.speed,
        moved=moved,
        left_out=work.left_out,
    )


def task_seconds(seconds: float, each_takes: float, tasks: int, sizes: Sequence[float]) -> list[float]:
    """Seconds of each task: its share of all `seconds`, plus `each_takes`."""
    sizes = sizes if len(sizes) == tasks and sum(sizes) > 0 else [1.0] * tasks
    whole = sum(sizes)
    return [seconds * size / whole + each_takes for size in sizes]


def makespan(seconds: Sequence[float], at_once: int) -> float:
    """Seconds until the last task ends, if each worker takes the next task as soon as it is free."""
    free = [0.0] * max(1, at_once)
    for each in seconds:
        heapq.heapreplace(free, free[0] + each)
    return max(free)


def together(compute: float, network: float, workers: int) -> float:
    """Seconds of a pass whose tasks compute and move bytes in turns: while one worker moves, others compute."""
    return max(compute, network) + min(compute, network) / max(1, workers)


def one_node(found: Spread, plan: Plan, planning_seconds: float) -> Spread:
    """The same job on one of these nodes."""
    return spread(plan, replace(found.nodes, count=1), planning_seconds)


def extrapolated(found: Spread, plan: Plan) -> list[str]:
    """What is larger than in the runs that the model was compared with, in words."""
    workers, size = max(each.workers for each in found.passes), plan.survey.file_bytes
    beyond = [f"{found.nodes.count:,} nodes"] if found.nodes.count > COMPARED_NODES else []
    beyond += [f"{workers:,} workers per node"] if workers > COMPARED_WORKERS else []
    beyond += [f"{format_size(size)} of input"] if size > _FAR * COMPARED_BYTES else []
    return beyond
