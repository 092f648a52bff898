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
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pyarrow

from penstock.base import machine
from penstock.base.errors import IntegrityError, Interrupted, OutputError
from penstock.base.events import Event, EventLog, Observer
from penstock.base.faults import crash_point
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means
from penstock.prepare.engines import Engine
from penstock.prepare.engines.inline import InlineEngine
from penstock.prepare.engines.local import LocalEngine
from penstock.prepare.ledger import TASKS, LedgerRow
from penstock.prepare.passes import Left, Task
from penstock.prepare.passes.announced import remove_announced
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.run.finishing import finish, remove_scaffolding
from penstock.prepare.run.resume import finished, is_redoing, keep_or_forget, refuse_foreign, remember_job
from penstock.prepare.stages.interfaces import notes_of
from penstock.shards.manifest import MANIFEST, Manifest, read_manifest


@dataclass
class Progress:
    """Counts and peaks of this run, for run.json."""

    started: float = field(default_factory=time.time)
    peak_memory: int = 0
    spill_bytes: int = 0
    tasks_done: int = 0
    tasks_kept: int = 0
    tasks_again: int = 0  # of those kept: what they were made of is something else now


def run(plan: Plan, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Do the job, or what is left of it; with `redo`, all of it. Returns at once when its output is there."""
    store = open_store(plan.config.output_path)
    refuse_foreign(store)
    with store.hold(_owner(plan)) as lock:
        there = finished(store, plan, redo)
        if there:
            remove_scaffolding(store)  # which a kill just after the manifest would leave
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        redo = redo and not is_redoing(store, plan)  # a redo that was stopped goes on like any other run
        progress = Progress()
        with _holding_others(plan), EventLog(store, _watching(progress, observe)) as log:
            _refuse_late(plan, store)
            _remove_merged(store)  # from here on, nothing is left of an earlier result that is to be replaced
            store.remove(MANIFEST)
            crash_point("run.after_forgetting_manifest")
            store.sweep()
            return _run(plan, store, log, lock, progress, redo)


@contextmanager
def _holding_others(plan: Plan) -> Iterator[None]:
    """Hold the folders beside the output that stages and sources of the job use."""
    owner = _owner(plan) + f", which writes {plan.config.output_path}".encode(errors="surrogateescape")
    with ExitStack() as stack:
        for other in plan.survey.other_folders:
            stack.enter_context(open_store(other.root).hold(owner, other.what, other.key, other.shared))
            other.refuse_changed()
        yield


def _refuse_late(plan: Plan, store: Store) -> None:
    """Wait for the engines of stages, where planning left their choice open and there is something to lose."""
    if store.exists(MANIFEST) or store.list(TASKS):
        notes_of(plan.survey.stages)


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


def _run(plan: Plan, store: Store, log: EventLog, lock: tuple[int, ...], progress: Progress, redo: bool) -> Manifest:
    rows, changes = keep_or_forget(store, plan, redo)
    progress.tasks_kept = len(rows)
    crash_point("run.after_forgetting_tasks")
    remember_job(store, plan, redoing=redo or is_redoing(store, plan))
    log.say("start", **_start_facts(plan, rows, changes))
    engine = _engine(plan, store, log, lock)
    try:
        left = _run_passes(plan, rows, store, engine, log, progress)
        engine.close()  # before run.json, so that the workers' CPU time is in it
        manifest = finish(plan, store, left, partial(_run_facts, plan, progress))
    except KeyboardInterrupt:
        raise _stopped(plan, progress) from None
    finally:
        engine.close()
        store.sweep()
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


def _engine(plan: Plan, store: Store, log: EventLog, lock: tuple[int, ...]) -> Engine:
    if plan.workers == 0:
        return InlineEngine(store, log)
    return LocalEngine(plan.means.budget, log, plan.config.stall_notice, plan.config.task_timeout, hold=lock)


def _run_passes(
    plan: Plan, kept: dict[str, LedgerRow], store: Store, engine: Engine, log: EventLog, progress: Progress
) -> Left:
    """Do what is not done yet, pass after pass; the answer is all that was left and learned."""
    left = Left()
    for planned in plan.passes:
        rows = _run_pass(planned, plan.means, left, kept, store, engine, log, progress)
        number = planned.pass_.number
        left = Left({**left.rows, number: rows}, {**left.learned, **planned.pass_.learn(left, rows)})
    return left


def _run_pass(
    planned: Planned,
    means: Means,
    left: Left,
    kept: dict[str, LedgerRow],
    store: Store,
    engine: Engine,
    log: EventLog,
    progress: Progress,
) -> list[LedgerRow]:
    each, tasks = planned.pass_, planned.tasks
    known = [kept[task.name] for task in tasks if task.name in kept]
    work = each.prepare(left, store, known, means)
    # What was placed, matched or packed when it was made of something else is done again.
    done = {row.task: row for row in known if row.states.get("layout", "") == work.identity}
    progress.tasks_again += len(known) - len(done)
    pending = each.order([task for task in tasks if task.name not in done], store)
    notes = work.notes if pending else []
    log.say("pass", number=each.number, kind=each.kind, tasks=len(tasks), pending=len(pending), notes=notes)

    def finished(task: Task, row: LedgerRow) -> None:
        done[task.name] = row
        progress.tasks_done += 1
        progress.spill_bytes += row.spill.bytes if row.spill else 0
        log.say("task", task=task.name, rows=row.rows_read)

    engine.run(pending, work, planned.settings, finished)
    return [done[task.name] for task in tasks]


def _remove_merged(store: Store) -> None:
    """Remove the files of an output that is to be replaced which lie beside its manifest: only that, or what a run has
    announced, tells them from a person's."""
    remove_announced(store)
    if not store.exists(MANIFEST):
        return
    try:
        manifest = read_manifest(store)
    except (IntegrityError, OutputError):
        return  # damaged, or of another version: then the files stay
    for file in (file for shards in manifest.splits.values() for shard in shards for file in shard.files):
        if "/" not in file.file:
            store.remove(file.file)


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
        "passes": [{"kind": each.pass_.kind, **asdict(each.settings)} for each in plan.passes],
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


def _stopped(plan: Plan, progress: Progress) -> Interrupted:
    tasks = sum(len(each.tasks) for each in plan.passes)
    done = progress.tasks_kept - progress.tasks_again + progress.tasks_done
    return Interrupted(
        f"stopped with {done} of {tasks} tasks done; nothing half-written is left",
        where=plan.config.output_path,
        next_step="run the same command: it goes on from here",
    )
