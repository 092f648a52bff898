"""Job: the doors that people use. `plan(job)` and `run(job)` take a path, a mapping, a Config or a Plan."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from penstock.base import machine
from penstock.base.events import Observer
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.sizes import parse_size
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import SLICES, Measured, assume
from penstock.prepare.budget.heap import give_back_memory
from penstock.prepare.budget.means import Means, Settings
from penstock.prepare.budget.room import Room, alone_room
from penstock.prepare.engines.trial import Trial
from penstock.prepare.job.config import Config, load_config, make_config
from penstock.prepare.passes import Pass
from penstock.prepare.passes import Trial as Tried
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.passes.folds.trying.measure import measure
from penstock.prepare.passes.job import Job as Asked
from penstock.prepare.passes.job import user_code
from penstock.prepare.plan.plan import Plan, make_plan
from penstock.prepare.plan.settings import row_bytes_of, threads_of
from penstock.prepare.run.exports import make_export, refuse_columns, refuse_export
from penstock.prepare.run.halves import halves_of
from penstock.prepare.run.run import run as run_plan
from penstock.prepare.stages.interfaces import UsesThreads, busy_threads
from penstock.prepare.survey.scouting import scout
from penstock.prepare.survey.survey import Survey, take_survey
from penstock.shards.manifest import Manifest

Job = str | os.PathLike[str] | Mapping[str, Any] | Config
# Decoded bytes: from about there on, two workers are quicker than none, for all that they must start.
_SMALL = 128 << 20
_SMALL_NEEDS = 2 << 30  # free beside ten times that, since nobody watches it
_DRIVER_GROWTH = 8 << 20  # the event log, and what comes with a run
_MEASURE, _OLD_SECONDS = "penstock-measure-", 3600
_DESCRIBED_BYTES = 1 << 10  # of a file, in what a run remembers of its job
BATCH_BYTES = 4 << 20
_LEDGER_ROW_BYTES = 5 << 10  # as Python holds it; 4.2 kB were measured for a bucket of short keys


def plan(job: Job) -> Plan:
    """What the job would do: passes, tasks, projected memory, disk and time. Writes nothing."""
    config = _config(job)
    refuse_export(config)
    budget = make_budget(config.memory)
    limit = max(budget.allowed - own_memory().counted, 0)
    with Trial(config.task_timeout, limit, config.on_bad_input == "set_aside") as trial:
        survey = take_survey(config, scout if _is_inside(config) else trial.scout, budget)
        trial.may_hold(max(budget.allowed - own_memory().counted, 0))
        refuse_columns(config, survey.output)
        is_small = _is_small(config, survey, budget)
        survey = _with_engines(survey, at_once=not is_small)
        asked, passes = cut_passes(config, survey, budget.allowed)
        measured = _with_more(asked, passes, _measure(asked, passes, trial, is_small))
    store = open_store(config.output_path)
    means = Means(
        budget=budget,
        cores=machine.cpu_count().amount,
        free_disk=store.free_bytes() + _held(store),
        driver_bytes=own_memory().counted + _growth_of_driver(passes, survey),
        measured=measured,
    )
    return make_plan(asked, passes, means)


def run(job: Job | Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Prepare the dataset, going on from where an earlier run stopped. `observe` is called with each event."""
    if isinstance(job, Plan) and not job.config.intermediate_dir:
        return _run(job, observe, redo)
    for part in halves_of(job.config if isinstance(job, Plan) else _config(job), plan if redo else None):
        manifest = _run(plan(part), observe, redo)
    return manifest


def _run(planned: Plan, observe: Observer | None, redo: bool) -> Manifest:
    manifest = run_plan(planned, observe, redo)
    make_export(planned.config)
    return manifest


def _config(job: Job) -> Config:
    if isinstance(job, Config):
        return job
    return make_config(dict(job)) if isinstance(job, Mapping) else load_config(job)


def _with_engines(survey: Survey, at_once: bool) -> Survey:
    """Choose the engines of stages that have some; those of a small job are chosen while it is begun."""
    stages = (
        stage.ready(survey.sample, at_once) if isinstance(stage, UsesThreads) else stage for stage in survey.stages
    )
    return replace(survey, stages=tuple(stages))


def _measure(job: Asked, passes: tuple[Pass, ...], trial: Trial, is_small: bool) -> Measured:
    """In a folder of the driver's, so that a measuring worker that is killed leaves nothing behind."""
    config, survey, row_bytes = job.config, job.survey, row_bytes_of(job.survey)
    if is_small:
        own = (stage.assumed_bytes for stage in survey.stages if isinstance(stage, UsesThreads))
        return assume(row_bytes, max(own, default=0))
    room = job.allowed - 2 * own_memory().counted
    alone = alone_room(job.allowed)
    settings = Settings(0, BATCH_BYTES, 0, row_bytes, 1.0, threads=_threads(config, survey), room=Room(alone, alone))
    _sweep_measurements()
    with tempfile.TemporaryDirectory(prefix=f"{_MEASURE}{os.getpid()}-") as folder:
        trials = _trials(passes, folder)
        if _is_inside(config):
            measured = measure(trials, survey.slices, settings, room)
            give_back_memory()  # the driver goes on without what was measured
            return measured
        return trial.measure(trials, survey.slices, settings, room)


def _trials(passes: tuple[Pass, ...], folder: str) -> list[Tried]:
    """The first pass that can be tried for each word, in the order of the passes."""
    found: dict[str, Tried] = {}
    for tried in (each.trial for each in passes):
        if tried and tried.word not in found:
            found[tried.word] = tried._replace(work=replace(tried.work, root=folder))
    return list(found.values())


def _sweep_measurements() -> None:
    """What planning left behind when it was killed, an hour ago or more."""
    for name in os.listdir(tempfile.gettempdir()):
        path = os.path.join(tempfile.gettempdir(), name)
        owner = name.removeprefix(_MEASURE).partition("-")[0]
        if name.startswith(_MEASURE) and owner.isdecimal() and not os.path.exists(f"/proc/{owner}"):
            with suppress(OSError):  # another's, or gone meanwhile
                if os.stat(path).st_mtime < time.time() - _OLD_SECONDS:
                    shutil.rmtree(path)


def _is_inside(config: Config) -> bool:
    return config.workers == 0 or config.strategy == "sequential"


def _with_more(job: Asked, passes: tuple[Pass, ...], measured: Measured) -> Measured:
    """Add what a trial is too short to show: the memory that is declared for a function, what endings hold until it is
    enough for a file, and what the engines of stages grow by."""
    declared = (parse_size(source.function_memory) for source in job.config.input if source.function_memory)
    held = max(each.held_later(row_bytes_of(job.survey)) for each in passes)
    grown = 0 if measured.assumed else _growth_of_stages(job.config, job.survey)
    fixed = max([measured.slices.fixed_bytes, *declared]) + held + grown
    return replace(measured, costs={**measured.costs, SLICES: replace(measured.slices, fixed_bytes=fixed)})


def _threads(config: Config, survey: Survey) -> int:
    """The most that a process will have."""
    cores = machine.cpu_count().amount if config.workers == "auto" else max(1, config.workers)
    return threads_of(busy_threads(survey.stages), cores, 1)


def _growth_of_stages(config: Config, survey: Survey) -> int:
    threads = _threads(config, survey)
    return sum(stage.grows_by(threads) for stage in survey.stages if isinstance(stage, UsesThreads))


def _growth_of_driver(passes: tuple[Pass, ...], survey: Survey) -> int:
    """Bytes that a run adds to the driver: a row per task, and the description of every file."""
    tasks = sum(each.task_count for each in passes)
    return _DRIVER_GROWTH + _LEDGER_ROW_BYTES * tasks + _DESCRIBED_BYTES * survey.files


def _is_small(config: Config, survey: Survey, budget: Budget) -> bool:
    """Whether to do it inside the driver, unmeasured: little data, much memory, and no code but penstock's own."""
    if config.workers != "auto" or config.strategy != "auto" or user_code(survey):
        return False
    decoded = sum(map(survey.rows_of, survey.slices)) * row_bytes_of(survey)
    return decoded <= _SMALL and _SMALL_NEEDS + 10 * decoded <= budget.allowed


def _held(store: Store) -> int:
    """Bytes of an earlier run in this output: they are there already, or will be replaced."""
    return sum(max(store.size(name), 0) for name in store.list()) if store.exists("") else 0
