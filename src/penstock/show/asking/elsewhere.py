"""Elsewhere: a job file that other machines will run -> the job, and a function that plans it on this one."""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.base.errors import ConfigError
from penstock.prepare.engines.hired import nursery
from penstock.prepare.job.presets import PRESETS
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.halves import halves_of
from penstock.show.asking.asked import Asked, load_job, plan_job
from penstock.show.asking.overrides import Override, collect

WORKERS = "workers"


def load_job_file(name: str, overrides: Sequence[Override]) -> Asked:
    """The job file of that name. Refuses a preset: other machines need a file."""
    if not os.path.isfile(name) and name in PRESETS:
        raise ConfigError(
            f"{name} is a preset; this command needs a job file, which other machines can read",
            where="the command line",
            next_step="`penstock init FILES -o job.yaml` writes a job file",
        )
    return load_job(name, overrides)


def load_shared_job(name: str, output: str, memory: str | None, workers: str | None) -> Asked:
    """The job file of that name, with `engine: workers` and the `output:` of the worker."""
    overrides = collect(output=output, memory=memory, workers=workers)
    asked = load_job_file(name, overrides)
    if asked.config.engine.name == WORKERS:  # with options of its own
        return asked
    return load_job_file(name, [*overrides, *collect(engine=WORKERS)])


def planner(asked: Asked) -> Callable[[], Plan]:
    """A function that plans the job; of a job with batch files, the first half."""

    def make_plan() -> Plan:
        with nursery() as workers:
            return plan_job(replace(asked, config=next(halves_of(asked.config))), workers)

    return make_plan
