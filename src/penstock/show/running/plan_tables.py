"""Plan tables: the facts of a plan -> what a person reads before a byte is written."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.prepare.job.job_text import job_text
from penstock.prepare.samples.schema import DECLARED
from penstock.shards.schema import short_type
from penstock.show.tables import by_workers, filled, input_words, make_list, make_table, not_seen_words, unread_words


def plan_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    yield make_list(_lines(facts))
    yield ""
    yield _pass_table(facts["passes"])
    yield from _exchange_lines(facts["passes"])
    yield from (Text(each["words"]["note"], style="dim") for each in facts["passes"] if each["words"]["note"])
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
        return Text(f"Nothing has been written. {run} resumes: {kept}.", style="dim")
    return Text(f"Nothing has been written. {run} does this.", style="dim")


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, memory, settings = facts["input"], facts["memory"], facts["settings"]
    about = "about " if source["rows_are_estimated"] else ""
    rows = f"{about}{counted(source['rows'], source['unit'].removesuffix('s'))}"
    rows = f", {rows}" if source["files"] else ""  # how many samples an item makes is not known
    yield "input", f"{input_words(source)}{rows}, in {counted(source['slices'], 'slice')}"
    if source["not_read"]:
        yield "not read", unread_words(source["not_read"])
    if source["not_seen"]:
        yield "not seen", not_seen_words(source["not_seen"])
    for each in facts["functions"]:
        yield "function", _function_words(each)
    yield "output", facts["output"]
    allowed, reserved = format_size(memory["allowed_bytes"]), format_size(memory["reserved_bytes"])
    projected = format_size(memory["projected_bytes"])
    yield "memory", f"{projected} projected, including {reserved} reserved; {allowed} allowed ({memory['allowed_by']})"
    most, kept, free = (format_size(facts["disk"][name]) for name in ("most_bytes", "kept_bytes", "free_bytes"))
    yield "disk", f"{most} at most while it runs, {kept} when it is done; {free} free"
    if scratch := facts["scratch"]:
        most, free = format_size(scratch["most_bytes"]), format_size(scratch["free_bytes"])
        yield "scratch", f"{most} at most in {scratch['folder']}; {free} free"
    workers = f"{by_workers(settings['workers'])}{_thread_words(settings)}"
    yield "settings", f"strategy {settings['strategy']}: {workers}, {counted(settings['cores'], 'core')}"
    for note in facts["notes"]:
        yield "note", note
    yield "splits", ", ".join(facts["splits"])


def _function_words(function: dict[str, Any]) -> str:
    rows, said = function["rows_at_once"], function["function_memory"]
    word = "item" if function["items"] else "file"
    given = f"{counted(rows, 'row')} at a time" if rows else f"one {word} at a time"
    limit = function["worker_limit_bytes"]
    stopped = f"; a worker that holds more than {format_size(limit)} is stopped" if limit else ""
    took = f"{said} declared" if said else f"{format_size(function['measured_bytes'])} measured on the first {word}s"
    return f"{function['function']}, given {given}; function_memory: {took}{stopped}"


def _thread_words(settings: dict[str, Any]) -> str:
    each = " each" if settings["workers"] > 1 else ""
    return f", {counted(settings['threads'], 'thread')}{each}" if settings["threads"] > 1 else ""


def _pass_table(passes: list[dict[str, Any]]) -> Table:
    """One column per pass: there are few of them, and a screen has only eighty characters."""
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
    for each in passes:
        side = (each["exchange"] or {}).get("to")
        if side:
            by = ", ".join(side["by"])
            order = f", in the order of {', '.join(side['order'])}" if side["order"] else ""
            buckets, number = counted(side["buckets"], "bucket"), each["number"]
            scattered = f"pass {number} scatters rows into {buckets} by a hash of {by}"
            behind = [other for other in passes if (other["exchange"] or {}).get("from", {}).get("pass") == number]
            gathered = f"pass {behind[-1]['number']} gathers each into records{order}"
            yield Text(f"{side['stage']} is an exchange: {scattered}, {gathered}.", style="dim")


def _origin_lines(functions: list[dict[str, Any]]) -> Iterator[Text]:
    for each in functions:
        inferred = [column for column in each["columns"] if column["origin"] != DECLARED]
        files = counted(each["files_asked"], "item" if each["items"] else "file")
        told = f"inferred from the first samples of {files}" if inferred else "declared in the job"
        yield Text(f"What {each['function']} yields is {told}.", style="dim")
        if ragged := [column["name"] for column in inferred if column["type"].startswith("list<")]:
            yield Text(f"Arrays of {', '.join(ragged)} differ in length there: [*] takes any length.", style="dim")
        if optional := [column["name"] for column in each["columns"] if column["optional"]]:
            yield Text(f"May be null, as `missing:` says: {', '.join(optional)}.", style="dim")


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
