"""Run: turn a Plan into a Manifest. Pending tasks go to an engine, what they produced to the ledger.

It decides nothing: plan.py said what to do, resume.py says what is done already.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import pyarrow

from penstock.base import machine
from penstock.base.errors import IntegrityError, Interrupted, OutputError
from penstock.base.events import Event, EventLog, Observer
from penstock.base.faults import crash_point
from penstock.base.files import LOCK, TEMPORARY, Folder
from penstock.prepare.arrays import parts_of, refuse_without_room, remove_announced
from penstock.prepare.engines import Engine
from penstock.prepare.engines.inline import InlineEngine
from penstock.prepare.engines.local import LocalEngine
from penstock.prepare.exchange.spill import SpillFile, rows_by_part
from penstock.prepare.finishing import batch_folder, finish, remove_scaffolding
from penstock.prepare.keying import FromKeys
from penstock.prepare.ledger import TASKS, LedgerRow
from penstock.prepare.packing import FromTokens
from penstock.prepare.passes import from_parts, make_recipe
from penstock.prepare.placing import FromParts
from penstock.prepare.plan import Pass, Plan
from penstock.prepare.resume import finished, is_redoing, keep_or_forget, refuse_foreign, remember_job
from penstock.prepare.stages.dedup import Found, Remembering
from penstock.prepare.task import FromBuckets, Recipe, Task
from penstock.prepare.text import keys_of, spills_of, tokens_of
from penstock.shards.manifest import MANIFEST, Manifest, read_manifest
from penstock.shards.placed import PLACING, make_room


@dataclass
class Progress:
    """What this run has seen, for run.json."""

    started: float = field(default_factory=time.time)
    peak_memory: int = 0
    spill_bytes: int = 0
    tasks_done: int = 0
    tasks_kept: int = 0


def run(plan: Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Do the job, or what is left of it; with `redo`, all of it. Returns at once when its output is there."""
    folder = Folder(plan.config.output_path)
    refuse_foreign(folder)
    with folder.lock(_owner(plan)) as lock:
        there = finished(folder, plan, redo)
        if there:
            remove_scaffolding(folder)  # which a kill just after the manifest would leave
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        redo = redo and not is_redoing(folder, plan)  # a redo that was stopped goes on like any other run
        progress = Progress()
        with _holding_others(plan), EventLog(folder, _watching(progress, observe)) as log:
            _refuse_late(plan, folder)
            _remove_merged(folder)  # from here on, nothing is left of an earlier result that is to be replaced
            folder.remove(MANIFEST)
            crash_point("run.after_forgetting_manifest")
            folder.remove(TEMPORARY)
            return _run(plan, folder, log, lock, progress, redo)


@contextmanager
def _holding_others(plan: Plan) -> Iterator[None]:
    """Hold the other folders of a job: remembered keys, which it reads now and adds to at its end, and batch files,
    which others may read but not make anew."""
    owner = _owner(plan) + f", which writes {plan.config.output_path}".encode(errors="surrogateescape")
    with ExitStack() as stack:
        for stage in plan.survey.stages:
            if isinstance(stage, Remembering):
                folder = Folder(stage.remembered.root)
                stack.enter_context(folder.lock(owner, "this folder of remembered keys", "remember"))
                stage.remembered.refuse_changed()
        batches = batch_folder(plan.survey)
        if batches and os.access(batches.path(LOCK), os.W_OK):  # nobody makes anew what cannot be written
            stack.enter_context(batches.lock(owner, "these batch files", "intermediate_dir", shared=True))
        yield


def _refuse_late(plan: Plan, folder: Folder) -> None:
    """Wait for what planning left open, which tokenizer's engine is equal, where there is something to lose."""
    if folder.exists(MANIFEST) or folder.list(TASKS):
        for stage in plan.survey.stages:
            stage.says()


def _watching(progress: Progress, observe: Observer | None) -> Observer:
    def watch(event: Event) -> None:
        if event["event"] == "sample":
            progress.peak_memory = max(progress.peak_memory, event["memory"])
        if observe:
            observe(event)

    return watch


def _owner(plan: Plan) -> bytes:
    owner = f"process {os.getpid()} on {socket.gethostname()}, since {time.strftime('%Y-%m-%d %H:%M:%S')}"
    return f"{owner}, job {plan.job[:8]}".encode()


def _run(plan: Plan, folder: Folder, log: EventLog, lock: int, progress: Progress, redo: bool) -> Manifest:
    rows, changes = keep_or_forget(folder, plan, redo)
    progress.tasks_kept = len(rows)
    crash_point("run.after_forgetting_tasks")
    remember_job(folder, plan, redoing=redo or is_redoing(folder, plan))
    log.say("start", **_start_facts(plan, rows, changes))
    engine = _engine(plan, folder, log, lock)
    try:
        artifacts: dict[int, Any] = {}
        for each in plan.passes:
            _run_pass(each, plan, engine, log, rows, artifacts, progress)
        engine.close()  # before run.json, so that the workers' CPU time is in it
        manifest = finish(plan, folder, rows, artifacts, partial(_run_facts, plan, progress))
    except KeyboardInterrupt:
        raise _stopped(plan, rows) from None
    finally:
        engine.close()
        folder.remove(TEMPORARY)
    log.say("done", seconds=round(time.time() - progress.started, 3))
    return manifest


def _start_facts(plan: Plan, rows: dict[str, LedgerRow], changes: list[str]) -> dict[str, Any]:
    tasks = sum(len(each.tasks) for each in plan.passes)
    return {
        "job": plan.job,
        "tasks": tasks,
        "tasks_kept": len(rows),
        "changes": changes,
        "workers": plan.workers,
        "allowed": plan.means.budget.allowed,
        "projected": plan.projected_memory,
        "rows": sum(each.projected.rows for each in plan.passes),
        "input_rows": sum(map(plan.survey.rows_of, plan.survey.slices)),
        "rows_are_estimated": plan.survey.rows_are_estimated,
        "unit": plan.survey.unit,
        "bad_files": len(plan.survey.bad_files),
        "not_read": [asdict(each) for each in plan.survey.unread],
        "not_seen": list(plan.survey.not_seen),
    }


def _engine(plan: Plan, folder: Folder, log: EventLog, lock: int) -> Engine:
    if plan.workers == 0:
        return InlineEngine(folder, log)
    return LocalEngine(plan.means.budget, log, plan.config.stall_notice, plan.config.task_timeout, hold=(lock,))


def _run_pass(
    each: Pass,
    plan: Plan,
    engine: Engine,
    log: EventLog,
    rows: dict[str, LedgerRow],
    artifacts: dict[int, Any],
    progress: Progress,
) -> None:
    source = _left_by_others(each, plan, rows, artifacts)
    recipe = make_recipe(each.cut, plan.config, plan.survey, artifacts, source=source)
    recipe = recipe.within(plan.means.budget.allowed)
    recipe = replace(recipe, threads=each.settings.threads, room=each.settings.room)
    folder = Folder(recipe.root)
    if source:
        _forget_other_layout(each, source, rows, folder)
    if isinstance(source, FromParts):
        refuse_without_room(source, plan)
        make_room(folder, source.layout)
    pending = _largest_first([task for task in each.tasks if task.name not in rows], recipe)
    notes = [note for stage in recipe.stages.values() if (note := stage.says())] if pending else []
    log.say(
        "pass", number=each.cut.number, kind=each.cut.kind, tasks=len(each.tasks), pending=len(pending), notes=notes
    )

    def done(task: Task, row: LedgerRow) -> None:
        rows[task.name] = row
        progress.tasks_done += 1
        progress.spill_bytes += row.spill.bytes if row.spill else 0
        log.say("task", task=task.name, rows=row.rows_read)

    engine.run(pending, recipe, each.settings, done)
    for number in each.cut.fits:
        artifacts[number] = _merge(number, plan, [rows[task.name] for task in each.tasks])
    if isinstance(source, FromKeys):
        artifacts[each.cut.last] = Found(source.keys, spills_of(each, rows))


def _left_by_others(
    each: Pass, plan: Plan, rows: dict[str, LedgerRow], artifacts: dict[int, Any]
) -> FromParts | FromKeys | FromTokens | None:
    """What the tasks of earlier passes have put down for this one, where it reads that."""
    if each.cut.kind == "place":
        parts = parts_of(plan, rows)
        return from_parts(each.cut, plan.config, plan.survey, artifacts, plan.config.output_path, parts)
    if each.cut.kind == "match":
        return keys_of(each, plan, rows)
    return tokens_of(plan, rows) if each.cut.kind == "pack" else None


def _forget_other_layout(
    each: Pass, source: FromParts | FromKeys | FromTokens, rows: dict[str, LedgerRow], folder: Folder
) -> None:
    """What was placed, matched or packed when it was made of something else is done again."""
    for task in each.tasks:
        if task.name in rows and rows[task.name].states.get("layout") != source.identity:
            del rows[task.name]
    if isinstance(source, FromParts) and not any(task.name in rows for task in each.tasks):
        folder.remove(PLACING)


def _largest_first(tasks: list[Task], recipe: Recipe) -> list[Task]:
    """Buckets by their rows: a large one that comes last would leave the other workers idle."""
    if not tasks or not isinstance(recipe.source, FromBuckets):
        return tasks
    folder = Folder(recipe.root)
    rows = np.zeros(recipe.source.buckets, "i8")
    for name in recipe.source.spills:
        rows += rows_by_part(SpillFile(folder.path(name)), folder.size(name))
    return sorted(tasks, key=lambda task: -int(rows[task.input.number]))


def _merge(number: int, plan: Plan, rows: list[LedgerRow]) -> Any:
    """Merge the slices' states from left to right, in the order of the slices."""
    fit = plan.survey.stages[number].fit()
    assert fit
    return fit.finish(reduce(fit.merge, (row.states[str(number)] for row in rows), fit.pack(fit.start())))


def _remove_merged(folder: Folder) -> None:
    """The single files of an output that is to be replaced: only its manifest tells them from a person's, or what
    a run that wrote arrays has announced."""
    remove_announced(folder)
    if not folder.exists(MANIFEST):
        return
    try:
        manifest = read_manifest(folder)
    except (IntegrityError, OutputError):
        return  # damaged, or of another version: then the files stay
    if manifest.config["format"] in ("npz", "arrayrecord"):
        for file in (file for shards in manifest.splits.values() for shard in shards for file in shard.files):
            folder.remove(file.file)


def _run_facts(plan: Plan, progress: Progress) -> bytes:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    facts = {
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(progress.started)),
        "seconds": round(time.time() - progress.started, 3),
        "cpu_seconds": round(sum(each.ru_utime + each.ru_stime for each in usage), 3),
        "tasks_done": progress.tasks_done,
        "tasks_kept": progress.tasks_kept,
        "peak_memory_bytes": progress.peak_memory,
        "allowed_memory_bytes": plan.means.budget.allowed,
        "projected_memory_bytes": plan.projected_memory,
        "workers": plan.workers,
        "passes": [{"kind": each.cut.kind, **asdict(each.settings)} for each in plan.passes],
        "spill_bytes": progress.spill_bytes,
        "input": [list(source.patterns) for source in plan.config.input],
        "not_read": [asdict(each) for each in plan.survey.unread],
        "output": plan.config.output_path,
        "machine": machine.describe(),
        "versions": {
            "numpy": np.__version__,
            "pyarrow": pyarrow.__version__,
            "python": platform.python_version(),
        },
    }
    return json.dumps(facts, indent=1).encode() + b"\n"


def _stopped(plan: Plan, rows: dict[str, LedgerRow]) -> Interrupted:
    tasks = sum(len(each.tasks) for each in plan.passes)
    return Interrupted(
        f"stopped with {len(rows)} of {tasks} tasks done; nothing half-written is left",
        where=plan.config.output_path,
        next_step="run the same command: it goes on from here",
    )
