"""Needs: the plan of a job -> the memory, cores and disk that it needs on another machine, and the time it takes there.
Next: slurm.py."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import InputError, PenstockError, PlanError
from penstock.base.machine import process_age
from penstock.base.memory import Budget
from penstock.base.sizes import format_size, parse_rate
from penstock.prepare.plan.nodes import NETWORK, Nodes
from penstock.prepare.plan.plan import Plan
from penstock.prepare.plan.projection import projection

_STEP = 100 * 10**6  # memory is rounded up to whole steps
_MARGIN = 1.1
_LEAST_MEMORY = 10**9  # a node that has less is rare, and a small job planned inside the driver says little of workers


@dataclass(frozen=True)
class Needs:
    """Needs of the job according to its plan. If it cannot be planned here, they are 0, and `unknown` says why."""

    memory_bytes: int = 0
    cores: int = 0
    disk_bytes: int = 0
    plan: Plan | None = None
    unknown: str = ""

    def projection(self, nodes: int, cores: int, memory_bytes: int) -> dict[str, Any] | None:
        """The job on `nodes` that each give a run `cores` and `memory_bytes`. None if it has no plan."""
        if self.plan is None:
            return None
        budget = Budget(memory_bytes, f"{format_size(memory_bytes)} of memory")
        return projection(self.plan, Nodes(nodes, cores, budget, parse_rate(NETWORK)), process_age())


def needs_of(plan: Plan) -> Needs:
    """The needs of a job as it was planned for this machine."""
    spill = sum(each.projected.spill_bytes for each in plan.passes)
    return Needs(
        memory_bytes=max(_LEAST_MEMORY, math.ceil(plan.projected_memory * _MARGIN / _STEP) * _STEP),
        cores=max(max(1, each.settings.workers * each.settings.threads) for each in plan.passes),
        disk_bytes=plan.output_bytes + spill,
        plan=plan,
    )


def known_needs(make_plan: Callable[[], Plan], missing: list[str]) -> Needs:
    """The needs of the job. If it cannot be planned here, raises if options are `missing`."""
    try:
        return needs_of(make_plan())
    except (InputError, PlanError) as error:
        if missing:
            _ask_for(missing, error)
            raise
        return Needs(unknown=error.what)


def _ask_for(missing: list[str], error: PenstockError) -> None:
    error.add_note(f"The plan would say how much to ask for. Without a plan, give {' and '.join(missing)}.")
