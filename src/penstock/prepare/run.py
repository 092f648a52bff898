"""Run: turn a Plan into a Manifest. Pending tasks go to an engine, what they produced to the ledger.

It decides nothing: plan.py said what to do, resume.py says what is done already.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import socket
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
import pyarrow

from penstock.base import machine
from penstock.base.errors import IntegrityError, Interrupted, OutputError
from penstock.base.events import Event, EventLog, Observer
from penstock.base.faults import crash_point
from penstock.base.files import STATE, TEMPORARY, Folder
from penstock.base.fingerprint import digest
from penstock.prepare.account import make_account, make_token_account, refuse_unbalanced
from penstock.prepare.arrays import finish_arrays, parts_of, refuse_without_room, remove_announced
from penstock.prepare.engines import Engine
from penstock.prepare.engines.inline import InlineEngine
from penstock.prepare.engines.local import LocalEngine
from penstock.prepare.exchange.spill import SpillFile, rows_by_part
from penstock.prepare.keying import FromKeys
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.packing import FromTokens
from penstock.prepare.passes import from_parts, make_recipe
from penstock.prepare.placing import FromParts
from penstock.prepare.plan import Pass, Plan, describe_input
from penstock.prepare.resume import finished, is_redoing, keep_or_forget, refuse_foreign, remember_job
from penstock.prepare.rows import rejected_line
from penstock.prepare.sinks import PARTS, SPILL
from penstock.prepare.stages.dedup import Found
from penstock.prepare.task import FromBuckets, Recipe, Task
from penstock.prepare.text import keys_of, remember, spills_of, text_artifacts, tokens_of
from penstock.prepare.text_sinks import KEYS
from penstock.shards.arrayrecord_file import merge_parts
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import MANIFEST, Manifest, ShardFacts, dataset_id, read_manifest, write_manifest
from penstock.shards.placed import PLACING, make_room

RUN = f"{STATE}/run.json"


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
            _remove_scaffolding(folder)  # which a kill just after the manifest would leave
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        redo = redo and not is_redoing(folder, plan)  # a redo that was stopped goes on like any other run
        _remove_merged(folder)
        folder.remove(MANIFEST)
        crash_point("run.after_forgetting_manifest")
        folder.remove(TEMPORARY)
        progress = Progress()
        with EventLog(folder, _watching(progress, observe)) as log:
            return _run(plan, folder, log, lock, progress, redo)


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
        manifest = _finish(plan, folder, rows, artifacts, progress)
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
        "bad_files": len(plan.survey.bad_files),
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
    recipe = replace(recipe, threads=each.settings.threads, room_bytes=each.settings.room_bytes)
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


def _finish(
    plan: Plan, folder: Folder, rows: dict[str, LedgerRow], artifacts: dict[int, Any], progress: Progress
) -> Manifest:
    """Everything but the manifest, then what does not belong removed, then the manifest."""
    kept = [[rows[task.name] for task in each.tasks] for each in plan.passes if each.cut.is_for_good]
    splits, assembled = _splits(plan, folder, rows)
    manifest = Manifest(
        config=plan.semantic,
        input=_input_facts(plan),
        schema=plan.survey.output,
        splits=splits,
        account=make_account(plan, rows),
        artifacts=(*_write_artifacts(plan, folder, artifacts), *assembled, *text_artifacts(plan, folder, rows)),
        rejected=(
            *_write_bad_files(plan, folder),
            *(row.rejected for side in kept for row in side if row.rejected),
        ),
        job=plan.job,
        tokens=make_token_account(plan, rows),
    )
    refuse_unbalanced(manifest.account, manifest.tokens)
    crash_point("run.before_clean_up")
    _remove_leftovers(folder, manifest)
    remember(plan, folder, artifacts)
    folder.commit_bytes(RUN, _run_facts(plan, progress))
    crash_point("run.before_manifest")
    write_manifest(folder, manifest)
    crash_point("run.after_manifest")
    _remove_scaffolding(folder)
    if is_redoing(folder, plan):
        remember_job(folder, plan, redoing=False)
    return manifest


def _splits(
    plan: Plan, folder: Folder, rows: dict[str, LedgerRow]
) -> tuple[dict[str, tuple[ShardFacts, ...]], tuple[FileFacts, ...]]:
    """The shards of each split in order, and files made of them; a format of one file a split is finished here."""
    last = [rows[task.name] for task in plan.passes[-1].tasks]
    if plan.config.format == "arrays":
        return finish_arrays(plan, folder, rows)
    splits = {split: tuple(row.shards[split] for row in last if split in row.shards) for split in plan.splits}
    if plan.config.format != "arrayrecord":
        return splits, ()
    return {split: (merge_parts(folder, split, parts),) for split, parts in splits.items()}, ()


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


def _remove_scaffolding(folder: Folder) -> None:
    """What tasks put down for each other, and nobody else."""
    for name in (SPILL, PARTS, PLACING, KEYS):
        if folder.exists(name):
            folder.remove(name)


def _input_facts(plan: Plan) -> dict[str, Any]:
    described = describe_input(plan.survey)
    files = described["files"]
    facts = {"files": len(files), "bytes": plan.survey.bytes, "digest": digest(json.dumps(described).encode())}
    return {**facts, **_batch_facts(plan)}


def _batch_facts(plan: Plan) -> dict[str, Any]:
    """Of batch files: what became of the samples that they were made from, as their own manifest tells."""
    places = {os.path.dirname(segment.location) for piece in plan.survey.slices for segment in piece.segments}
    if plan.survey.formats != ("npz",) or len(places) != 1:
        return {}
    folder = Folder(places.pop())
    if not folder.exists(MANIFEST):
        return {}
    made = read_manifest(folder)
    return {"batches": {"dataset": dataset_id(folder), "account": [asdict(step) for step in made.account]}}


def _write_artifacts(plan: Plan, folder: Folder, artifacts: dict[int, Any]) -> tuple[FileFacts, ...]:
    facts, used = [], set[str]()
    for number, artifact in sorted(artifacts.items()):
        if isinstance(artifact, Found):
            continue  # of use to this run alone
        name = plan.config.stage_names[number].replace(":", ".")
        name = name if name not in used else f"{name}-{number}"
        used.add(name)
        facts.append(_commit(folder, f"artifacts/{name}.json", [json.dumps(artifact, indent=1)]))
    return tuple(facts)


def _write_bad_files(plan: Plan, folder: Folder) -> tuple[FileFacts, ...]:
    if not plan.survey.bad_files:
        return ()
    lines = [
        json.dumps(rejected_line(each.source, each.path, None, each.reason, detail=each.detail), ensure_ascii=False)
        for each in plan.survey.bad_files
    ]
    return (_commit(folder, "rejected/files.jsonl", lines),)


def _commit(folder: Folder, name: str, lines: list[str]) -> FileFacts:
    data = "".join(line + "\n" for line in lines).encode()
    folder.commit_bytes(name, data)
    return FileFacts(name, len(data), digest(data))


def _remove_leftovers(folder: Folder, manifest: Manifest) -> None:
    """Shards and rejected rows of an earlier job in this output that this one does not have."""
    known = {file.file for file in manifest.files}
    for name in _own_files(folder):
        if name not in known:
            folder.remove(name)


_OURS = re.compile(
    r"[^/]+/\d{5}-of-\d{5}\.[^/]+|batch_+\d+(_+\d+)*\.npz|rejected/((records-\d+-)?\d{5}|files)\.jsonl|artifacts/[^/]+\.json"
)


def _own_files(folder: Folder) -> Iterable[str]:
    """Files with names that only penstock gives; a person's file that lies among them is left alone."""
    return [name for name in folder.list() if _OURS.fullmatch(name)]


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
