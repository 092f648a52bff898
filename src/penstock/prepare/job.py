"""Job: the doors that people use. `plan(job)` and `run(job)` take a path, a mapping, a Config or a Plan."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.base import machine
from penstock.base.events import Observer
from penstock.base.files import Folder
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.prepare.config import Config, load_config, make_config
from penstock.prepare.engines.local import measure_in_worker
from penstock.prepare.measure import Measurement, decoded_row_bytes, measure
from penstock.prepare.plan import BATCH_BYTES, Means, Plan, make_plan, make_recipe
from penstock.prepare.run import run as run_plan
from penstock.prepare.survey import Survey, take_survey
from penstock.shards.manifest import Manifest

Job = str | os.PathLike[str] | Mapping[str, Any] | Config
_DRIVER_GROWTH = 8 << 20  # the ledger's rows and the event log, for thousands of tasks


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
        driver_bytes=own_memory().counted + _DRIVER_GROWTH,
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


def _measure(config: Config, survey: Survey, budget: Budget) -> Measurement:
    """In a folder of the driver's, so that a measuring worker that is killed leaves nothing behind."""
    row_bytes = decoded_row_bytes(survey.sample)
    room = budget.allowed - 2 * own_memory().counted
    with tempfile.TemporaryDirectory(prefix="penstock-measure-") as folder:
        recipe = replace(make_recipe(config, survey), root=folder)
        if config.workers == 0:
            return measure(recipe, survey.slices, BATCH_BYTES, row_bytes, room)
        return measure_in_worker(recipe, survey.slices, BATCH_BYTES, row_bytes, room, config.task_timeout)


def _held(folder: Folder) -> int:
    """Bytes of an earlier run in this output: they are there already, or will be replaced."""
    return sum(max(folder.size(name), 0) for name in folder.list()) if folder.exists("") else 0
