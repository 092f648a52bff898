"""Needs: the plan of a job -> the memory, cores, disk and time that it needs on another machine. Next: slurm.py."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import InputError, PenstockError, PlanError
from penstock.prepare.plan.plan import Plan

_STEP = 100 * 10**6  # memory is rounded up to whole steps
_MARGIN = 1.1
_LEAST_MEMORY = 10**9  # a node that has less is rare, and a small job planned inside the driver says little of workers


@dataclass(frozen=True)
class Needs:
    """Needs of the job according to its plan. If it cannot be planned here, they are 0, and `unknown` says why."""

    memory_bytes: int = 0
    cores: int = 0
    disk_bytes: int = 0
    core_seconds: float = 0
    unknown: str = ""

    def seconds(self, cores: float) -> float | None:
        """Time of the job on this many cores, if it uses them as well as those of the plan."""
        return self.core_seconds / cores if self.core_seconds else None


def needs_of(plan: Plan) -> Needs:
    """The needs of a job as it was planned for this machine."""
    passes = [(each.projected.seconds, max(1, each.settings.workers * each.settings.threads)) for each in plan.passes]
    spill = sum(each.projected.spill_bytes for each in plan.passes)
    return Needs(
        memory_bytes=max(_LEAST_MEMORY, math.ceil(plan.projected_memory * _MARGIN / _STEP) * _STEP),
        cores=max(cores for _, cores in passes),
        disk_bytes=plan.output_bytes + spill,
        core_seconds=sum(seconds * cores for seconds, cores in passes),
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
