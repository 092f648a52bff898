"""Member log: what one member of a run says: its own tasks, retries and stalls, and a status that it renews.

The watcher tells it on, and `run.json` keeps a line of each member.
"""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.base.events import Observer
from penstock.base.events.log import EventLog, whole_lines
from penstock.base.stores.shared import MEMBERS, SharedStore, run_folder
from penstock.base.stores.store import Store

_TOLD = ("task", "retry", "alone", "lost_file", "stall", "failed")


class MemberLog(EventLog):
    def __init__(self, store: SharedStore, observer: Observer | None = None) -> None:
        self._place = run_folder(store.token, f"{MEMBERS}/{store.member}")
        super().__init__(store, observer, f"{self._place}.jsonl", f"{self._place}.json")
        self._facts: dict[str, Any] = {"member": store.member, "host": socket.gethostname(), "process": os.getpid()}
        self._counts = {"tasks": 0, "rows_done": 0, "stalls": 0, "retries": 0, "peak": 0}
        self._last: dict[str, Any] = {"memory": 0, "file": 0, "rows": 0, "busy": 0, "workers": []}

    def say(self, name: str, **facts: Any) -> None:
        """What the other members do is theirs to say."""
        if name not in _TOLD or (name == "task" and not facts["attempts"]):
            return
        self._counts["tasks"] += name == "task"
        self._counts["rows_done"] += facts["rows"] if name == "task" else 0
        self._counts["stalls"] += name == "stall"
        self._counts["retries"] += name == "retry"
        super().say(name, **facts)

    @property
    def tasks(self) -> int:
        return self._counts["tasks"]

    @property
    def rows(self) -> int:
        return self._counts["rows_done"]

    def sample(self, **facts: Any) -> None:
        self._counts["peak"] = max(self._counts["peak"], facts["memory"])
        self._last = facts
        super().sample(**facts, **self._facts, **self._counts, cpu_seconds=_cpu_seconds())

    def __exit__(self, *_: object) -> None:
        """The last status stays, for run.json."""
        self._file.close()
        status = {**self._last, **self._facts, **self._counts, "cpu_seconds": _cpu_seconds(), "busy": 0, "workers": []}
        with suppress(Exception):  # the run is over
            self._store.commit_bytes(f"{self._place}.json", json.dumps({**status, "ended": True}).encode())


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(each.ru_utime + each.ru_stime for each in usage), 3)


def statuses(store: Store, token: str) -> list[dict[str, Any]]:
    """The last status of every member that has left one."""
    found = []
    for name in store.entries(run_folder(token, MEMBERS)):
        if name.endswith(".json"):
            with suppress(Exception):  # it has just been replaced, or the run is over
                found.append(json.loads(store.read(name)))
    return found


class Heard:
    """What members have said since the last look."""

    def __init__(self, store: Store, token: str) -> None:
        self._store, self._folder = store, run_folder(token, MEMBERS)
        self._places: dict[str, int] = {}

    def new(self) -> Iterator[dict[str, Any]]:
        for name in self._store.entries(self._folder):
            if name.endswith(".jsonl"):
                for line, place in whole_lines(self._store, self._places.get(name, 0), name):
                    self._places[name] = place
                    with suppress(ValueError):  # cut by a crash
                        yield json.loads(line)
