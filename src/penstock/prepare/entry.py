"""Entry: the doors that people use. `plan(job)` and `run(job)` take a path, a mapping, a Config or a Plan."""

import os
from collections.abc import Callable, Mapping
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.base.user_code import load_object
from penstock.prepare.engines.hired import nursery
from penstock.prepare.engines.proving import EngineDiffers
from penstock.prepare.job.config import Config, load_config
from penstock.prepare.plan.plan import Plan
from penstock.prepare.planning import plan_of
from penstock.prepare.run.exports import make_export
from penstock.prepare.run.halves import halves_of, merge_batches
from penstock.shards.manifest import Manifest

Run = Callable[[Plan, Nursery, Observer | None, bool], Manifest]
Job = str | os.PathLike[str] | Mapping[str, Any] | Config


def plan(job: Job) -> Plan:
    """Passes, tasks, projected memory, disk and time of the job. Writes nothing.

    Args:
        job: Path of a job file, a dict of its keys, or a Config.

    Returns:
        A Plan, which `penstock.run` takes.
    """
    with nursery() as workers:
        return plan_with(workers, job)


def plan_with(workers: Nursery, job: Job) -> Plan:
    """The plan, where the run that follows has its workers from the same nursery."""
    if isinstance(job, Config):
        _refuse_changed(job)
    config = _config(job)
    try:
        return plan_of(config, workers)
    except EngineDiffers as differs:
        return plan_of(config, workers, refused=str(differs))


def run(job: Job | Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Prepare the dataset, resuming where an earlier run stopped. `observe` is called with each event."""
    with nursery() as workers:
        if isinstance(job, Plan):
            _refuse_changed(job.config)
        if isinstance(job, Plan) and not job.config.intermediate_dir:
            return run_with(workers, job, observe, redo)
        for part in halves_of(job.config if isinstance(job, Plan) else _config(job), plan if redo else None):
            manifest = run_with(workers, plan_with(workers, part), observe, redo)
        return manifest


def merge(
    job: Job, folder: str | os.PathLike[str] | None = None, observe: Observer | None = None, redo: bool = False
) -> Manifest:
    """Merge the batch files in `folder`, or in the job's `intermediate_dir`."""
    config = _config(job)
    place = os.path.abspath(folder) if folder else config.batches_path
    with nursery() as workers:
        return run_with(workers, plan_of(merge_batches(config, place), workers), observe, redo)


def run_with(workers: Nursery, planned: Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Run a plan, and make the export that its job asks for. Where an engine is found wrong, its tasks are redone."""
    run_plan: Run = load_object(planned.config.engine.kind.runs)
    try:
        manifest = run_plan(planned, workers, observe, redo)
    except EngineDiffers as differs:
        planned = plan_of(planned.config, workers, refused=str(differs))
        manifest = run_plan(planned, workers, observe, redo)
    make_export(planned.config)
    return manifest


def _refuse_changed(config: Config) -> None:
    """Refuse a job whose items are no longer those that its Config or Plan describes; its functions are copies."""
    for source in config.input:
        if source.items:
            source.items.refuse_changed()


def _config(job: Job) -> Config:
    if isinstance(job, Config):
        return job
    if isinstance(job, Mapping):
        return Config(dict(job))
    if not isinstance(job, str | os.PathLike):
        raise ConfigError(
            f"a job cannot be a {type(job).__name__}: {job!r}",
            next_step="give the path of a job file, a dict of its keys, or a penstock.Config",
        )
    return load_config(job)
