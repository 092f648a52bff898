"""Onlooker: `penstock watch`: the output of a run in another terminal -> the same screen here, until the run ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from penstock.base.errors import Interrupted, printable
from penstock.base.events import Event
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.shards.manifest import MANIFEST, dataset_id
from penstock.show.console import make_console, put
from penstock.show.running.following import follow, recorded, refuse_idle, wait_for_run
from penstock.show.running.progress import Display


def watch_run(path: str, as_json: bool, wait: bool = False) -> dict[str, Any]:
    """Show the run that is at work in `path`. Returns, when it has ended, how it ended."""
    store = open_store(path)
    try:
        if wait:
            wait_for_run(store)
        working = refuse_idle(store)
        if not working.is_true and store.exists(MANIFEST):  # a run begins by removing it
            last = _print_events(recorded(store)) if as_json else None
        else:
            last = _print_events(follow(store)) if as_json else _draw_events(store, str(working))
    except KeyboardInterrupt:
        raise Interrupted("stopped watching; the run continues", where=store.root) from None
    return {"output": store.root, "at_work": False, "ended": last, **_dataset(store)}


def _draw_events(store: Store, working: str) -> Event | None:
    console = make_console(stderr=True)
    console.print(Text(printable(working)), soft_wrap=True)
    event = None
    with Display(console, planning=False) as display:
        for event in follow(store):
            display.observe(event)
    return event


def _print_events(events: Iterator[Event]) -> Event | None:
    event = None
    for event in events:
        put(json.dumps(event))
    return event


def _dataset(store: Store) -> dict[str, Any]:
    return {"dataset": dataset_id(store) if store.exists(MANIFEST) else None}


def onlooker_lines(facts: dict[str, Any]) -> Iterator[Text]:
    ended = facts["ended"]
    if ended is None:
        yield Text(f"{facts['output']} is finished, and no run is at work: dataset {facts['dataset']}.")
    elif ended["event"] == "failed":
        yield Text(printable(f"The run has ended without a dataset: {ended['error']}: {ended['what']}"), style="yellow")
    else:
        yield Text(f"The run is done: dataset {facts['dataset']}.", style="green")
    if facts["dataset"]:
        yield Text(f"See it: penstock inspect {facts['output']}")
