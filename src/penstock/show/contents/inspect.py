"""Inspect: an output folder or .arrayrecord files -> what they hold, finished or not, with a few records decoded."""

from __future__ import annotations

import glob
import json
import os
import time
from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.events import EVENTS
from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.prepare.ledger import read_rows
from penstock.shards.dataset import is_bare, older_files, open_dataset
from penstock.shards.foreign.arrayrecord_file import SUFFIX
from penstock.shards.manifest import MANIFEST, Manifest, read_manifest
from penstock.shards.packed import TOKENIZER
from penstock.shards.schema import short_type
from penstock.show.contents.arrayrecord_files import file_facts, file_tables
from penstock.show.contents.decoded import document_facts, open_decoder, row_tables
from penstock.show.contents.keys import key_facts, key_tables
from penstock.show.contents.packed import packed_facts, packed_tables
from penstock.show.contents.values import jsonable, short
from penstock.show.running.result import account_tables, dataset_facts, group_lines, memory_line
from penstock.show.tables import by_workers, filled, make_list, make_table, split_table


def inspect_facts(path: str, split: str | None, records: int) -> dict[str, Any]:
    if older_files(path) and split is None:
        return file_facts(os.path.join(glob.escape(path), f"*{SUFFIX}"), None, records)
    if is_bare(path) or older_files(path):
        return file_facts(path, split, records)
    store = open_store(path)
    if not store.exists(MANIFEST) and store.exists(STATE):
        return _unfinished_facts(store)
    manifest = read_manifest(store)
    facts = dataset_facts(store, manifest)
    shown = split or _first_filled(manifest)
    samples = []
    if manifest.config["format"] != "npz":  # batch files are opened by numpy
        dataset = open_dataset(path, shown)
        samples = [jsonable(dataset[number]) for number in range(min(records, len(dataset)))]
    text = packed_facts(store, manifest, facts["run"])
    return {
        "finished": True,
        **facts,
        "job": manifest.job,
        "config": manifest.config,
        "group": key_facts(store, manifest),
        "text": text,
        "records": {"split": shown, "first": samples, **(_decoded(store, manifest, samples) if text else {})},
    }


def _decoded(store: Store, manifest: Manifest, rows: list[dict[str, Any]]) -> dict[str, Any]:
    decoder = open_decoder(store, manifest)
    documents = [document_facts(row, decoder) for row in rows]
    return {"documents": documents, "decoded_by": TOKENIZER if decoder else None}


def _first_filled(manifest: Manifest) -> str:
    return next((split for split in manifest.splits if manifest.records(split)), next(iter(manifest.splits)))


def _unfinished_facts(store: Store) -> dict[str, Any]:
    start, last = _start_and_last_event(store)
    return {
        "finished": False,
        "output": store.root,
        "tasks_done": len(read_rows(store)),
        "tasks": start.get("tasks"),
        "seconds_since_last_event": round(max(0.0, time.time() - last["time"]), 1) if last else None,
    }


def _start_and_last_event(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last `start` and the last event at all; a line that a crash cut short is passed over."""
    start: dict[str, Any] = {}
    last: dict[str, Any] = {}
    lines = store.read(EVENTS).splitlines() if store.exists(EVENTS) else []
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
    if "paths" in facts:
        yield from file_tables(facts)
        yield from _record_tables(facts["records"])
        return
    yield make_list(_lines(facts))
    yield ""
    yield split_table(facts["splits"])
    yield ""
    if facts["group"]:
        yield from key_tables(facts["group"])
        yield ""
    if facts["text"]:
        yield from packed_tables(facts["text"])
        yield ""
    fields = [(field["name"], short_type(field["type"])) for field in facts["schema"]]
    yield from filled(make_table("column", "type"), fields, "column")
    yield ""
    yield from account_tables(facts)
    rows = [(file["file"], format_size(file["bytes"])) for file in facts["artifacts"] + facts["rejected"]]
    if rows:
        yield ""
        yield from filled(make_table("other files", ">bytes"), rows, "file")
    yield from _record_tables(facts["records"])
    if "documents" in facts["records"] and not facts["records"]["decoded_by"] and _has_tokenizer(facts):
        yield Text("\nTokens are numbers here: pip install 'penstock[text]' brings what decodes them.", style="dim")


def _has_tokenizer(facts: dict[str, Any]) -> bool:
    return any(file["file"] == TOKENIZER for file in facts["artifacts"])


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    source, run = facts["input"], facts["run"]
    yield "dataset", facts["dataset"]
    yield "output", f"{facts['output']}, {format_size(facts['bytes'])}"
    yield "made from", f"{counted(source['files'], 'file')}, {format_size(source['bytes'])}"
    if run:
        yield "made", f"{run['started']}, in {format_seconds(run['seconds'])}, {by_workers(run['workers'])}"
        yield "memory", memory_line(run)
    yield from group_lines(facts)
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
    for number, documents in enumerate(records.get("documents", ())):
        yield from row_tables(f"{records['split']}[{number}]", documents)
    for number, record in enumerate(records["first"] if "documents" not in records else ()):
        yield Text(f"\n{records['split']}[{number}]", style="bold")
        yield make_list((f"  {name}", short(value)) for name, value in record.items())
