"""Planned: a Plan -> what the job would read, hold, write and need, before a byte of it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.base.errors import IntegrityError, OutputError
from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Projection
from penstock.prepare.ledger import files_are_there, read_rows
from penstock.prepare.passes import Facts
from penstock.prepare.plan.plan import Plan, Planned
from penstock.prepare.run.halves import halves_of, written
from penstock.prepare.run.resume import finished, refuse_foreign
from penstock.prepare.samples.schema import DECLARED
from penstock.prepare.stages.interfaces import notes_of
from penstock.prepare.survey.scouting import MOST_FILES
from penstock.shards.schema import short_type, type_from_arrow
from penstock.show.asking.asked import Asked, job_text, plan_job
from penstock.show.tables import by_workers, filled, make_list, make_table, not_seen_words, unread_words

PLANNING = "planning: listing the input, measuring its first rows"  # shown while a Plan is being made


def asked_facts(asked: Asked) -> dict[str, Any]:
    """Of the job; where batch files are kept, of the half that makes them: the other half's input is not there yet."""
    first, *merge = halves_of(asked.config)
    planned = plan_job(replace(asked, config=first))
    job = {**asked.job, "stages": written(planned.config)["stages"]} if asked.preset else dict(asked.job)
    return {**plan_facts(planned), "job_file": job, "merged_into": merge[0].output_path if merge else None}


def plan_facts(plan: Plan) -> dict[str, Any]:
    survey = plan.survey
    store = open_store(plan.config.output_path)
    passes = _pass_facts(store, plan)
    return {
        "job": plan.job,
        "output": plan.config.output_path,
        "input": {
            "files": survey.files,
            "bytes": survey.bytes,
            "rows": plan.passes[0].projected.rows,
            "rows_are_estimated": survey.rows_are_estimated,
            "unit": survey.unit,
            "slices": len(survey.slices),
            "bad_files": [asdict(each) for each in survey.bad_files],
            "not_read": [asdict(each) for each in survey.unread],
            "not_seen": list(survey.not_seen),
        },
        "functions": [_function_facts(plan, number) for number, each in enumerate(survey.sources) if each.function],
        "memory": _memory_facts(plan),
        "notes": notes_of(survey.stages),
        "settings": _settings_facts(plan),
        "disk": _disk_facts(plan),
        "passes": passes,
        "schema": {
            "in": [_column_facts(each) for each in survey.schema],
            "read": list(survey.columns),
            "out": [asdict(each) for each in survey.output],
        },
        "splits": list(plan.splits),
        "run": _run_facts(store, plan, passes),
    }


def _function_facts(plan: Plan, number: int) -> dict[str, Any]:
    """The user's function of a source: what it is given, where its samples' columns come from, what it may take."""
    options, said = plan.survey.sources[number], plan.config.input[number].function_memory
    return {
        "input": number,
        "function": options.function,
        "rows_at_once": options.batch_rows if options.takes_rows else None,
        "function_memory": said,
        "measured_bytes": plan.means.measured.slices.fixed_bytes,
        "worker_limit_bytes": plan.passes[0].settings.worker_limit,
        "files_asked": min(_files_of(plan, number), MOST_FILES),
        "columns": [{"name": each.name, "type": each.type, "origin": each.origin} for each in options.samples],
    }


def _files_of(plan: Plan, number: int) -> int:
    used = {each.path for piece in plan.survey.slices for each in piece.segments if each.source == number}
    return len(used | {each.path for each in plan.survey.bad_files if each.source == number})


def _memory_facts(plan: Plan) -> dict[str, Any]:
    """The three words: *allowed* is the budget, *reserved* what is held before a row is read, *projected* the peak."""
    means = plan.means
    return {
        "allowed_bytes": means.budget.allowed,
        "allowed_by": means.budget.source,
        "reserved_bytes": means.driver_bytes + plan.workers * means.measured.slices.worker_bytes,
        "projected_bytes": plan.projected_memory,
    }


def _settings_facts(plan: Plan) -> dict[str, Any]:
    return {
        "strategy": plan.config.strategy,
        "workers": plan.workers,
        "threads": max(each.settings.threads for each in plan.passes),
        "cores": plan.means.cores,
    }


def _column_facts(field: pa.Field) -> dict[str, str]:
    """A column of the input, which may be of a type that penstock has no word for."""
    word = type_from_arrow(field.type)
    return {"name": field.name, "type": word or str(field.type), "short": short_type(word) if word else str(field.type)}


def _disk_facts(plan: Plan) -> dict[str, int]:
    kept = plan.output_bytes
    spilled = sum(each.projected.spill_bytes for each in plan.passes)
    return {"most_bytes": kept + spilled, "kept_bytes": kept, "free_bytes": plan.means.free_disk}


def _pass_facts(store: Store, plan: Plan) -> list[dict[str, Any]]:
    rows = read_rows(store) if store.exists("") else {}
    ledger = {name: row.fingerprint for name, row in rows.items() if files_are_there(store, row, spill_needed=False)}
    return [_one_pass(each, plan, ledger) for each in plan.passes]


def _one_pass(planned: Planned, plan: Plan, ledger: dict[str, str]) -> dict[str, Any]:
    facts = planned.pass_.facts()
    return {
        "number": planned.pass_.number,
        "kind": planned.pass_.kind,
        "stages": [plan.config.stage_names[number] for number in facts.stages],
        "exchange": dict(facts.exchange) or None,
        "reads": facts.reads,
        "writes": facts.writes,
        "tasks": len(planned.tasks),
        "tasks_done": sum(ledger.get(task.name) == task.fingerprint for task in planned.tasks),
        **asdict(planned.projected),
        "workers": planned.settings.workers,
        "threads": planned.settings.threads,
        "batch_bytes": planned.settings.batch_bytes,
        "hold_bytes": planned.settings.hold_bytes,
        "words": _pass_words(facts, planned.projected),
    }


def _pass_words(facts: Facts, projected: Projection) -> dict[str, str]:
    """What people read of the pass: what it reads, what is there when it is over, what it takes meanwhile, and why."""
    spilled = format_size(projected.spill_bytes)
    size = spilled if facts.for_others else format_size(projected.output_bytes)
    wrote = facts.wrote.format(size=size) if facts.wrote else f"{size} of {facts.writes}"
    return {"reads": facts.origin, "writes": wrote, "scratch": "" if facts.for_others else spilled, "note": facts.note}


def _run_facts(store: Store, plan: Plan, passes: list[dict[str, Any]]) -> dict[str, Any]:
    """What `penstock run` would make of the output as it is now: start, resume, nothing, or refuse and why."""
    try:
        refuse_foreign(store)
        done = finished(store, plan, redo=False) is not None
    except (OutputError, IntegrityError) as error:
        return {"would": "refuse", "refusal": error.as_dict()}
    kept = any(each["tasks_done"] for each in passes)
    return {"would": "nothing" if done else "resume" if kept else "start", "refusal": None}


def plan_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    yield _pass_table(facts["passes"])
    yield from _exchange_lines(facts["passes"])
    yield from _notes(facts["passes"])
    yield ""
    yield from filled(make_table("column", "in", "out"), _schema_rows(facts["schema"]), "column")
    yield from _origin_lines(facts["functions"])
    yield ""
    bad = [(each["path"], each["reason"], each["detail"]) for each in facts["input"]["bad_files"]]
    if bad:
        yield from filled(make_table("bad file", "reason", "detail"), bad, "file")
        yield ""
    yield _last_line(facts)
    if facts.get("merged_into") and facts["run"]["would"] in ("start", "resume"):
        yield Text(f"Then the batch files are merged into {facts['merged_into']}.", style="dim")
    if facts.get("job_file"):
        yield Text("\nAs a job file:\n", style="dim")
        yield Text(job_text(facts["job_file"]).rstrip(), no_wrap=True)  # to be copied


def _last_line(facts: dict[str, Any]) -> Text:
    would, refusal = facts["run"]["would"], facts["run"]["refusal"]
    run = "`penstock run` with the same options"
    if would == "refuse":
        words = f"Nothing has been written, and {run} refuses (exit {refusal['exit_code']}): {refusal['what']}"
        return Text(f"{words}\n  try: {refusal['next_step']}", style="yellow")
    if would == "nothing" and facts.get("merged_into"):
        return Text(f"The batch files are there already: {run} merges them into {facts['merged_into']}.", style="green")
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
    rows = counted(source["rows"], source["unit"].removesuffix("s"))
    yield "input", f"{files}, {about}{rows}, in {counted(source['slices'], 'slice')}"
    if source["not_read"]:
        yield "not read", unread_words(source["not_read"])
    if source["not_seen"]:
        yield "not seen", not_seen_words(source["not_seen"])
    for each in facts["functions"]:
        yield "function", _function_words(each)
    yield "output", facts["output"]
    yield "memory", _memory_words(memory)
    yield "disk", _disk_words(facts["disk"])
    yield "settings", _settings_words(settings)
    for note in facts["notes"]:
        yield "note", note
    yield "splits", ", ".join(facts["splits"])


def _function_words(function: dict[str, Any]) -> str:
    rows, said = function["rows_at_once"], function["function_memory"]
    given = f"{counted(rows, 'row')} at a time" if rows else "a file at a time"
    limit = function["worker_limit_bytes"]
    stopped = f"; a worker that holds more than {format_size(limit)} is stopped" if limit else ""
    took = f"{said} declared" if said else f"{format_size(function['measured_bytes'])} measured on the first files"
    return f"{function['function']}, given {given}; function_memory: {took}{stopped}"


def _memory_words(memory: dict[str, Any]) -> str:
    allowed, reserved = format_size(memory["allowed_bytes"]), format_size(memory["reserved_bytes"])
    projected = format_size(memory["projected_bytes"])
    return f"{projected} projected, of it {reserved} reserved; {allowed} allowed ({memory['allowed_by']})"


def _disk_words(disk: dict[str, Any]) -> str:
    most, kept = format_size(disk["most_bytes"]), format_size(disk["kept_bytes"])
    return f"{most} at most while it runs, {kept} when it is done; {format_size(disk['free_bytes'])} free"


def _settings_words(settings: dict[str, Any]) -> str:
    workers = f"{by_workers(settings['workers'])}{_thread_words(settings)}"
    return f"strategy {settings['strategy']}: {workers}, {counted(settings['cores'], 'core')}"


def _thread_words(settings: dict[str, Any]) -> str:
    each = " each" if settings["workers"] > 1 else ""
    return f", {counted(settings['threads'], 'thread')}{each}" if settings["threads"] > 1 else ""


def _pass_table(passes: list[dict[str, Any]]) -> Table:
    """A column a pass: there are few of them, and a screen has only eighty characters."""
    table = make_table("pass", *(f"{each['number']} {each['kind']}" for each in passes))
    for name, words in _PASS_ROWS.items():
        table.add_row(name, *map(words, passes))
    return table


def _workers(facts: dict[str, Any]) -> str:
    workers = format_count(facts["workers"]) if facts["workers"] else "inside the driver"
    return f"{workers}{_thread_words(facts)}"


_PASS_ROWS: dict[str, Callable[[dict[str, Any]], str]] = {
    "stages": lambda facts: ", ".join(facts["stages"]) or "copy",
    "reads": lambda facts: facts["words"]["reads"],
    "writes": lambda facts: facts["words"]["writes"],
    "scratch": lambda facts: facts["words"]["scratch"],
    "workers": _workers,
    "batch": lambda facts: format_size(facts["batch_bytes"]),
    "memory": lambda facts: format_size(facts["memory_bytes"]),
    "time": lambda facts: f"about {format_seconds(facts['seconds'])}",
}


def _exchange_lines(passes: list[dict[str, Any]]) -> Iterator[Text]:
    """What the two sides of each exchange are to each other."""
    for each in passes:
        side = (each["exchange"] or {}).get("to")
        if side:
            by = ", ".join(side["by"])
            order = f", in the order of {', '.join(side['order'])}" if side["order"] else ""
            buckets = counted(side["buckets"], "bucket")
            scattered = f"pass {each['number']} scatters rows into {buckets} by a hash of {by}"
            behind = [
                other for other in passes if (other["exchange"] or {}).get("from", {}).get("pass") == each["number"]
            ]
            gathered = f"pass {behind[-1]['number']} gathers each into records{order}"
            yield Text(f"{side['stage']} is an exchange: {scattered}, {gathered}.", style="dim")


def _notes(passes: list[dict[str, Any]]) -> Iterator[Text]:
    for each in passes:
        if each["words"]["note"]:
            yield Text(each["words"]["note"], style="dim")


def _origin_lines(functions: list[dict[str, Any]]) -> Iterator[Text]:
    """Where the columns of samples come from."""
    for each in functions:
        inferred = [column for column in each["columns"] if column["origin"] != DECLARED]
        files = counted(each["files_asked"], "file")
        told = f"inferred from the first samples of {files}" if inferred else "declared in the job"
        yield Text(f"What {each['function']} yields is {told}.", style="dim")


def _schema_rows(schema: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Columns by name: one that is renamed or made by a stage stands on a line of its own."""
    outputs = {field["name"]: short_type(field["type"]) for field in schema["out"]}
    read = set(schema["read"])
    for field in schema["in"]:
        name = field["name"]
        kind = field["short"] if name in read else f"{field['short']} (not read)"
        yield name, kind, outputs.pop(name, "-")
    for name, kind in outputs.items():
        yield name, "-", kind
