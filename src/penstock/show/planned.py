"""Planned: a Plan -> what the job would read, hold, write and need, before a byte of it is written."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.files import Folder
from penstock.base.sizes import format_count, format_seconds, format_size
from penstock.prepare.ledger import files_are_there, read_rows
from penstock.prepare.plan import Pass, Plan
from penstock.prepare.resume import finished, refuse_foreign
from penstock.shards.schema import type_from_arrow
from penstock.show.tables import counted, filled, make_list, make_table

PLANNING = "planning: listing the input, measuring its first rows"  # shown while a Plan is being made


def plan_facts(plan: Plan) -> dict[str, Any]:
    survey, settings = plan.survey, plan.settings
    folder = Folder(plan.config.output_path)
    passes = _pass_facts(folder, plan)
    return {
        "job": plan.job,
        "output": plan.config.output_path,
        "input": {
            "files": survey.files,
            "bytes": survey.bytes,
            "rows": plan.passes[-1].projected.rows,
            "rows_are_estimated": any(piece.rows < 0 for piece in survey.slices),
            "slices": len(survey.slices),
            "bad_files": [asdict(each) for each in survey.bad_files],
        },
        "memory": _memory_facts(plan),
        "settings": {"workers": settings.workers, "batch_bytes": settings.batch_bytes, "cores": plan.means.cores},
        "disk": {"free_bytes": plan.means.free_disk},
        "passes": passes,
        "schema": {
            "in": [{"name": each.name, "type": type_from_arrow(each.type) or str(each.type)} for each in survey.schema],
            "read": list(survey.columns),
            "out": [asdict(each) for each in survey.output],
        },
        "splits": list(plan.splits),
        "run": _run_facts(folder, plan, passes),
    }


def _memory_facts(plan: Plan) -> dict[str, Any]:
    """The three words: *allowed* is the budget, *reserved* what is held before a row is read, *projected* the peak."""
    means = plan.means
    return {
        "allowed_bytes": means.budget.allowed,
        "allowed_by": means.budget.source,
        "reserved_bytes": means.driver_bytes + plan.settings.workers * means.measured.worker_bytes,
        "projected_bytes": plan.projected_memory,
    }


def _pass_facts(folder: Folder, plan: Plan) -> list[dict[str, Any]]:
    rows = read_rows(folder) if folder.exists("") else {}
    ledger = {name: row.fingerprint for name, row in rows.items() if files_are_there(folder, row)}
    return [_one_pass(each, plan, ledger) for each in plan.passes]


def _one_pass(each: Pass, plan: Plan, ledger: dict[str, str]) -> dict[str, Any]:
    return {
        "number": each.number,
        "kind": each.kind,
        "stages": list(plan.config.stage_names[: each.stage_count]),
        "tasks": len(each.tasks),
        "tasks_done": sum(ledger.get(task.name) == task.fingerprint for task in each.tasks),
        **asdict(each.projected),
    }


def _run_facts(folder: Folder, plan: Plan, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """What `penstock run` would make of the output as it is now: start, resume, nothing, or refuse and why."""
    try:
        refuse_foreign(folder)
        done = finished(folder, plan, redo=False) is not None
    except (OutputError, IntegrityError) as error:
        return {"would": "refuse", "refusal": error.as_dict()}
    kept = any(each["tasks_done"] for each in passes)
    return {"would": "nothing" if done else "resume" if kept else "start", "refusal": None}


def plan_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    yield _pass_table(facts["passes"])
    yield ""
    yield from filled(make_table("column", "in", "out"), _schema_rows(facts["schema"]), "column")
    yield ""
    bad = [(each["path"], each["reason"], each["detail"]) for each in facts["input"]["bad_files"]]
    if bad:
        yield from filled(make_table("bad file", "reason", "detail"), bad, "file")
        yield ""
    yield _last_line(facts)


def _last_line(facts: dict[str, Any]) -> Text:
    would, refusal = facts["run"]["would"], facts["run"]["refusal"]
    run = "`penstock run` with the same options"
    if would == "refuse":
        words = f"Nothing has been written, and {run} refuses (exit {refusal['exit_code']}): {refusal['what']}"
        return Text(f"{words}\n  try: {refusal['next_step']}", style="yellow")
    if would == "nothing":
        return Text(f"This job is done already: {run} has nothing to do.", style="green")
    if would == "resume":
        done, tasks = (sum(each[key] for each in facts["passes"]) for key in ("tasks_done", "tasks"))
        kept = f"{format_count(done)} of {counted(tasks, 'task')} of an earlier run will be kept"
        return Text(f"Nothing has been written. {run} goes on: {kept}.", style="dim")
    return Text(f"Nothing has been written. {run} does this.", style="dim")


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, memory, settings = facts["input"], facts["memory"], facts["settings"]
    about = "about " if source["rows_are_estimated"] else ""
    files = f"{counted(source['files'], 'file')}, {format_size(source['bytes'])}"
    yield "input", f"{files}, {about}{counted(source['rows'], 'row')}, in {counted(source['slices'], 'slice')}"
    yield "output", f"{facts['output']} ({format_size(facts['disk']['free_bytes'])} free)"
    yield "memory", _memory_words(memory)
    yield "settings", _settings_words(settings)
    yield "splits", ", ".join(facts["splits"])


def _memory_words(memory: dict[str, Any]) -> str:
    allowed, reserved = format_size(memory["allowed_bytes"]), format_size(memory["reserved_bytes"])
    projected = format_size(memory["projected_bytes"])
    return f"{projected} projected, of it {reserved} reserved; {allowed} allowed ({memory['allowed_by']})"


def _settings_words(settings: dict[str, Any]) -> str:
    workers = counted(settings["workers"], "worker") if settings["workers"] else "inside the driver (workers: 0)"
    return f"{workers}, {counted(settings['cores'], 'core')}, batches of {format_size(settings['batch_bytes'])}"


def _pass_table(passes: list[dict[str, Any]]) -> Table:
    table = make_table("pass", "stages", ">tasks", ">rows", ">memory", ">spill", ">output", ">time")
    for each in passes:
        table.add_row(
            f"{each['number']} {each['kind']}",
            ", ".join(each["stages"]) or "copy",
            format_count(each["tasks"]),
            format_count(each["rows"]),
            format_size(each["memory_bytes"]),
            format_size(each["spill_bytes"]),
            format_size(each["output_bytes"]),
            format_seconds(each["seconds"]),
        )
    return table


def _schema_rows(schema: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Columns by name: one that is renamed or made by a stage stands on a line of its own."""
    outputs = {field["name"]: field["type"] for field in schema["out"]}
    read = set(schema["read"])
    for field in schema["in"]:
        name = field["name"]
        kind = field["type"] if name in read else f"{field['type']} (not read)"
        yield name, kind, outputs.pop(name, "-")
    for name, kind in outputs.items():
        yield name, "-", kind
