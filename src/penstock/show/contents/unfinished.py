"""Unfinished: the output of a run that has not ended -> how far it is, and when something last happened."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from penstock.base.errors import printable
from penstock.base.events.log import last_sample, whole_lines
from penstock.base.sizes import counted, format_count, format_seconds
from penstock.base.stores.store import STATE, Store
from penstock.prepare.run.owner import AtWork, run_at_work
from penstock.shards.manifest import MANIFEST


def unfinished_facts(store: Store) -> dict[str, Any] | None:
    """None if the store holds a finished dataset, or nothing of penstock's."""
    if store.exists(MANIFEST) or not store.exists(STATE):
        return None
    from penstock.prepare.ledger import read_rows  # here: a finished dataset is looked at without Arrow

    start, last = _start_and_last_event(store)
    return {
        "finished": False,
        "output": store.root,
        "tasks_done": len(read_rows(store)),
        "tasks": start.get("tasks"),
        "seconds_since_last_event": round(max(0.0, time.time() - last["time"]), 1) if last else None,
        **_owner_facts(run_at_work(store)),
    }


def _owner_facts(working: AtWork) -> dict[str, Any]:
    owner = asdict(working.owner) if working.owner and working.is_true is not False else None
    return {"at_work": working.is_true, "at_work_words": str(working), "owner": owner}


def _start_and_last_event(store: Store) -> tuple[dict[str, Any], dict[str, Any]]:
    """The last `start` and the last event at all; a line that a crash cut short is passed over."""
    start: dict[str, Any] = {}
    last: dict[str, Any] = {}
    for line, _ in whole_lines(store):
        try:
            last = json.loads(line)
        except ValueError:
            continue
        start = last if last.get("event") == "start" else start
    sample = last_sample(store)
    return start, dict(sample) if sample and sample["time"] > last.get("time", 0) else last


def unfinished_lines(facts: dict[str, Any]) -> Iterator[Text]:
    done = format_count(facts["tasks_done"])
    tasks = f"{done} of {counted(facts['tasks'], 'task')}" if facts["tasks"] else counted(facts["tasks_done"], "task")
    yield Text(f"{facts['output']} is not finished: its ledger has {tasks}.")
    since = facts["seconds_since_last_event"]
    if since is not None:
        yield Text(f"Its last event was {format_seconds(since)} ago.")
    words = facts["at_work_words"]
    yield Text(printable(f"{words[0].upper()}{words[1:]}."))
    if facts["at_work"] is False:
        yield Text("Run the job again: it resumes from here. Finished tasks are kept.", style="green")
    else:
        yield Text(f"Watch it: penstock watch {facts['output']}", style="green")
