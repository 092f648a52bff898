"""Inspect: an output folder -> what it holds, finished or not, with a few records decoded."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.events import EVENTS
from penstock.base.files import STATE, Folder
from penstock.base.sizes import format_count, format_seconds, format_size
from penstock.prepare.ledger import read_rows
from penstock.shards.dataset import open_dataset
from penstock.shards.manifest import MANIFEST, Manifest, read_manifest
from penstock.show.result import dataset_facts, memory_line
from penstock.show.tables import account_table, balance_line, counted, filled, make_list, make_table, split_table

_MOST_CHARACTERS = 200  # of a value, in a table


def inspect_facts(path: str, split: str | None, records: int) -> dict[str, Any]:
    folder = Folder(path)
    if not folder.exists(MANIFEST) and folder.exists(STATE):
        return _unfinished_facts(folder)
    manifest = read_manifest(folder)
    shown = split or _first_filled(manifest)
    dataset = open_dataset(path, shown)
    samples = [jsonable(dataset[number]) for number in range(min(records, len(dataset)))]
    return {
        "finished": True,
        **dataset_facts(folder, manifest),
        "job": manifest.job,
        "config": manifest.config,
        "records": {"split": shown, "first": samples},
    }


def _first_filled(manifest: Manifest) -> str:
    return next((split for split in manifest.splits if manifest.records(split)), next(iter(manifest.splits)))


def _unfinished_facts(folder: Folder) -> dict[str, Any]:
    start, last = _start_and_last_event(folder)
    return {
        "finished": False,
        "output": folder.root,
        "tasks_done": len(read_rows(folder)),
        "tasks": start.get("tasks"),
        "seconds_since_last_event": round(max(0.0, time.time() - last["time"]), 1) if last else None,
    }


def _start_and_last_event(folder: Folder) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last `start` and the last event at all; a line that a crash cut short is passed over."""
    start: dict[str, Any] = {}
    last: dict[str, Any] = {}
    lines = folder.read(EVENTS).splitlines() if folder.exists(EVENTS) else []
    for line in lines:
        try:
            last = json.loads(line)
        except ValueError:
            continue
        start = last if last.get("event") == "start" else start
    return start, last


def inspect_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    if not facts["finished"]:
        yield from _unfinished_tables(facts)
        return
    yield make_list(_lines(facts))
    yield ""
    yield split_table(facts["splits"])
    yield ""
    fields = [(field["name"], field["type"]) for field in facts["schema"]]
    yield from filled(make_table("column", "type"), fields, "column")
    yield ""
    yield account_table(facts["account"])
    yield balance_line(facts["account"])
    rows = [(file["file"], format_size(file["bytes"])) for file in facts["artifacts"] + facts["rejected"]]
    if rows:
        yield ""
        yield from filled(make_table("other files", ">bytes"), rows, "file")
    yield from _record_tables(facts["records"])


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, run = facts["input"], facts["run"]
    yield "dataset", facts["dataset"]
    yield "output", f"{facts['output']}, {format_size(facts['bytes'])}"
    yield "made from", f"{counted(source['files'], 'file')}, {format_size(source['bytes'])}"
    if run:
        yield "made", f"{run['started']}, in {format_seconds(run['seconds'])} by {counted(run['workers'], 'worker')}"
        yield "memory", memory_line(run)
    yield "stages", ", ".join(next(iter(stage)) for stage in facts["config"]["stages"]) or "none"


def _unfinished_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    done = format_count(facts["tasks_done"])
    tasks = f"{done} of {counted(facts['tasks'], 'task')}" if facts["tasks"] else counted(facts["tasks_done"], "task")
    yield Text(f"{facts['output']} is not finished: its ledger has {tasks}.")
    since = facts["seconds_since_last_event"]
    if since is not None:
        perhaps = "; a run may be at work right now" if since < 5 else ""
        yield Text(f"Its last event was {format_seconds(since)} ago{perhaps}.")
    yield Text("Run the job again: it goes on from here, with nothing done twice.", style="green")


def _record_tables(records: dict[str, Any]) -> Iterator[RenderableType]:
    for number, record in enumerate(records["first"]):
        yield Text(f"\n{records['split']}[{number}]", style="bold")
        yield make_list((f"  {name}", short(value)) for name, value in record.items())


def jsonable(value: Any) -> Any:
    """JSON's own types as they are; NaN, times, decimals and bytes by their text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return jsonable(value.tolist())
    if isinstance(value, list | tuple):
        return [jsonable(each) for each in value]
    if isinstance(value, dict):
        return {str(key): jsonable(each) for key, each in value.items()}
    return str(value)


def short(value: Any, most: int = _MOST_CHARACTERS) -> str:
    """One line, cut where it is too long, with the size of what was cut."""
    text = value if isinstance(value, str) else json.dumps(_rounded(value), ensure_ascii=False)
    text = text.replace("\n", "\\n").replace("\r", "\\r")
    if len(text) <= most:
        return text
    size = f"{len(value):,} values" if isinstance(value, list) else f"{len(text):,} characters"
    return f"{text[:most]}... ({size})"


def _rounded(value: Any) -> Any:
    """Seven digits: as many as a float32 has, so that 0.1 does not read 0.10000000149011612."""
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value
