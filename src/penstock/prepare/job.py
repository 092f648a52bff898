"""Job: the doors that people use. `plan(job)` and `run(job)` take a path, a mapping, a Config or a Plan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from typing import Any

from penstock.base import machine
from penstock.base.events import Observer
from penstock.base.files import Folder
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.prepare.config import Config, load_config, make_config
from penstock.prepare.engines.local import measure_in_worker
from penstock.prepare.measure import BATCH_BYTES, Measured, assume, measure
from penstock.prepare.passes import buckets_of, cut_passes, make_recipe
from penstock.prepare.plan import Plan, make_plan
from penstock.prepare.run import run as run_plan
from penstock.prepare.settings import Means, row_bytes_of
from penstock.prepare.survey import Survey, take_survey
from penstock.shards.manifest import Manifest

Job = str | os.PathLike[str] | Mapping[str, Any] | Config
# Decoded bytes: from about there on, two workers are quicker than none, for all that they must start.
_SMALL = 128 << 20
_SMALL_NEEDS = 2 << 30  # free beside ten times that, since nobody watches it
_DRIVER_GROWTH = 8 << 20  # the event log, and what comes with a run
_LEDGER_ROW_BYTES = 5 << 10  # as Python holds it; 4.2 kB were measured for a bucket of short keys


def plan(job: Job) -> Plan:
    """What the job would do: passes, tasks, projected memory, disk and time. Writes nothing."""
    config = _config(job)
    budget = make_budget(config.memory)
    survey = take_survey(config)
    measured = _measure(config, survey, budget)
    means = Means(
        budget=budget,
        cores=machine.cpu_count().amount,
        free_disk=machine.free_disk(config.output_path) + _held(Folder(config.output_path)),
        driver_bytes=own_memory().counted + _DRIVER_GROWTH + _LEDGER_ROW_BYTES * _task_count(config, survey),
        measured=measured,
    )
    return make_plan(config, survey, means)


def run(job: Job | Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Prepare the dataset, going on from where an earlier run stopped. `observe` is called with each event."""
    return run_plan(job if isinstance(job, Plan) else plan(job), observe, redo)


def _config(job: Job) -> Config:
    if isinstance(job, Config):
        return job
    return make_config(dict(job)) if isinstance(job, Mapping) else load_config(job)


def _measure(config: Config, survey: Survey, budget: Budget) -> Measured:
    """In a folder of the driver's, so that a measuring worker that is killed leaves nothing behind."""
    row_bytes = row_bytes_of(survey)
    if _is_small(config, survey, budget):
        return assume(row_bytes)
    room = budget.allowed - 2 * own_memory().counted
    with tempfile.TemporaryDirectory(prefix="penstock-measure-") as folder:
        last = [cut for cut in cut_passes(survey.stages) if cut.kind != "fit"]
        recipes = tuple(make_recipe(cut, config, survey, root=folder) for cut in last)
        if config.workers == 0 or config.strategy == "sequential":
            return measure(recipes, survey.slices, BATCH_BYTES, row_bytes, room)
        return measure_in_worker(recipes, survey.slices, BATCH_BYTES, row_bytes, room, config.task_timeout)


def _task_count(config: Config, survey: Survey) -> int:
    cuts = cut_passes(survey.stages)
    return sum(len(survey.slices) if cut.spill < 0 else buckets_of(config, survey) for cut in cuts)


def _is_small(config: Config, survey: Survey, budget: Budget) -> bool:
    """Whether to do it inside the driver, unmeasured: little data, much memory, and no code but penstock's own."""
    if config.workers != "auto" or config.strategy != "auto" or any(stage.code() for stage in survey.stages):
        return False
    decoded = sum(map(survey.rows_of, survey.slices)) * row_bytes_of(survey)
    return decoded <= _SMALL and _SMALL_NEEDS + 10 * decoded <= budget.allowed


def _held(folder: Folder) -> int:
    """Bytes of an earlier run in this output: they are there already, or will be replaced."""
    return sum(max(folder.size(name), 0) for name in folder.list()) if folder.exists("") else 0
