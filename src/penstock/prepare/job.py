"""Job: the doors that people use. `plan(job)` and `run(job)` take a path, a mapping, a Config or a Plan."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatch
from typing import Any

import pyarrow as pa

from penstock.base import machine
from penstock.base.errors import ConfigError, InputError
from penstock.base.events import Observer
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.sizes import parse_size
from penstock.base.store import STATE, Store
from penstock.base.stores import open_store
from penstock.prepare.config import Config, load_config, make_config
from penstock.prepare.costs import SLICES, Measured, assume
from penstock.prepare.engines.trial import Trial
from penstock.prepare.exports import make_export, refuse_columns, refuse_export
from penstock.prepare.heap import give_back_memory
from penstock.prepare.means import Means, Settings
from penstock.prepare.passes import Pass
from penstock.prepare.passes import Trial as Tried
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.passes.job import Job as Asked
from penstock.prepare.passes.job import user_code
from penstock.prepare.passes.measure import BATCH_BYTES, measure
from penstock.prepare.plan import Plan, make_plan
from penstock.prepare.resume import refuse_foreign
from penstock.prepare.room import Room, alone_room
from penstock.prepare.run import run as run_plan
from penstock.prepare.scouting import scout
from penstock.prepare.settings import row_bytes_of, threads_of
from penstock.prepare.stages.tokenize import Located
from penstock.prepare.survey import Survey, take_survey
from penstock.prepare.tokenizers.proof import choose_engine
from penstock.shards.manifest import Manifest, read_manifest

Job = str | os.PathLike[str] | Mapping[str, Any] | Config
# Decoded bytes: from about there on, two workers are quicker than none, for all that they must start.
_SMALL = 128 << 20
_SMALL_NEEDS = 2 << 30  # free beside ten times that, since nobody watches it
_DRIVER_GROWTH = 8 << 20  # the event log, and what comes with a run
_MEASURE, _OLD_SECONDS = "penstock-measure-", 3600
_HELD_BATCH = 1.3  # times its bytes: pieces of columns, and what writing them takes
_DESCRIBED_BYTES = 1 << 10  # of a file, in what a run remembers of its job
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
        measured = _with_more(config, survey, _measure(asked, passes, trial, is_small))
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
    for part in halves_of(job.config if isinstance(job, Plan) else _config(job), redo):
        manifest = _run(plan(part), observe, redo)
    return manifest


def _run(planned: Plan, observe: Observer | None, redo: bool) -> Manifest:
    manifest = run_plan(planned, observe, redo)
    make_export(planned.config)
    return manifest


def halves_of(config: Config, redo: bool = False) -> Iterator[Config]:
    """The job itself; or, where batch files are kept, the job that makes them, and when it is done, their merge.

    Batch files that are the input are merged as they are. With `redo`, what only the merge would refuse is refused
    before batch files are replaced.
    """
    if not config.intermediate_dir:
        yield config
        return
    if all(source.npz for source in config.input):
        yield make_config(written(config), folder=config.folder)
        return
    refuse_foreign(open_store(config.output_path))
    if redo and open_store(config.batches_path).exists(STATE):
        plan(config)
    yield keep_batches(config)
    yield merge_batches(config, config.batches_path)


def keep_batches(config: Config) -> Config:
    if not config.intermediate_dir:
        raise ConfigError(
            "where are batch files to be kept?", next_step="add intermediate_dir: data/intermediate to the job"
        )
    job = {**written(config), "output": config.batches_path, "stages": [], "format": "npz", "export": None}
    return make_config(job, folder=config.folder)


def merge_batches(config: Config, folder: str) -> Config:
    """The job with batch files for its input."""
    if not folder:
        raise ConfigError(
            "where are the batch files?", next_step="penstock merge DIR --config JOB, or intermediate_dir: in the job"
        )
    _refuse_other_batches(open_store(folder))
    source = {
        "npz": os.path.join(folder, "batch_*.npz"),
        "trust_pickle": any(each.trust_pickle for each in config.input),
    }
    return make_config({**written(config), "input": source, "format": "arrays"}, folder=config.folder)


def _refuse_other_batches(store: Store) -> None:
    """A folder that penstock wrote has a manifest: all of its batch files must be there, and no others."""
    if not store.exists(STATE):
        return
    manifest = read_manifest(store)
    known = {file.file: file.bytes for shards in manifest.splits.values() for shard in shards for file in shard.files}
    found = {name: store.size(name) for name in store.list() if fnmatch(name, "batch_*.npz")}
    wrong = sorted(name for name in {*known, *found} if known.get(name) != found.get(name))
    if wrong:
        raise InputError(
            f"{len(wrong)} batch files are missing, changed, or none of this folder's; the first: {wrong[0]}",
            where=store.root,
            next_step="run the job again with --skip-merge, which mends the folder, or move foreign files elsewhere",
        )


def written(config: Config) -> dict[str, Any]:
    """The config as a job file has it, without the batch files that lie between."""
    return config.model_dump(mode="json", by_alias=True, exclude={"intermediate_dir"}, exclude_unset=True)


def _config(job: Job) -> Config:
    if isinstance(job, Config):
        return job
    return make_config(dict(job)) if isinstance(job, Mapping) else load_config(job)


def _with_engines(survey: Survey, at_once: bool) -> Survey:
    """What will run each tokenizer: the fastest that was proved, on the first documents too. A small job is begun
    meanwhile: the proof takes as long as all the rest of it."""

    def proved(stage: Located) -> Located:
        question = (stage.file, _texts(survey, stage), stage.engine, stage.special_tokens)
        chosen = choose_engine(*question) if at_once else ThreadPoolExecutor(1).submit(choose_engine, *question)
        return replace(stage, chosen=chosen)

    stages = tuple(proved(stage) if isinstance(stage, Located) else stage for stage in survey.stages)
    return replace(survey, stages=stages)


def _texts(survey: Survey, stage: Located) -> pa.Array:
    """The first documents, where they are read as the stage takes them."""
    column = stage.column if stage.column in survey.sample.schema.names else None
    return survey.sample.column(column).drop_null() if column else pa.array([], pa.string())


def _measure(job: Asked, passes: tuple[Pass, ...], trial: Trial, is_small: bool) -> Measured:
    """In a folder of the driver's, so that a measuring worker that is killed leaves nothing behind."""
    config, survey, row_bytes = job.config, job.survey, row_bytes_of(job.survey)
    if is_small:
        return assume(row_bytes, any(isinstance(stage, Located) for stage in survey.stages))
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
            found[tried.word] = Tried(tried.word, replace(tried.work, root=folder))
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


def _with_more(config: Config, survey: Survey, measured: Measured) -> Measured:
    """What is said of a function's memory counts for more than what it took for the first files; a batch file is held
    until it is full; a tokenizer's tables grow with the words that it meets."""
    said = max((parse_size(source.function_memory) for source in config.input if source.function_memory), default=0)
    held = 0
    if config.format == "npz":
        rows = min(config.batch_size, max(map(survey.rows_of, survey.slices), default=0))
        held = int(_HELD_BATCH * rows * row_bytes_of(survey))
    grown = 0 if measured.assumed else sum(stage.grows_by(_threads(config, survey)) for stage in survey.stages)
    fixed = max(measured.slices.fixed_bytes, said) + held + grown
    return replace(measured, costs={**measured.costs, SLICES: replace(measured.slices, fixed_bytes=fixed)})


def _threads(config: Config, survey: Survey) -> int:
    """The most that a process will have."""
    cores = machine.cpu_count().amount if config.workers == "auto" else max(1, config.workers)
    return threads_of(max((stage.threads() for stage in survey.stages), default=0), cores, 1)


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
