"""Member log: the events of one member of a run (tasks, retries, stalls), and its status, written again and again.

The watcher repeats the events, and `run.json` keeps a line per member.
"""

from __future__ import annotations

import json
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, TypeGuard

from penstock.base.errors import PenstockError
from penstock.base.events import Observer
from penstock.base.events.log import EventLog, whole_lines
from penstock.base.stores.shared import MEMBERS, SharedStore, run_folder
from penstock.base.stores.store import Store

_NOTHING = {"tasks": 0, "rows": 0, "retries": 0, "stalls": 0}
_COUNTED = {"task": "tasks", "retry": "retries", "stall": "stalls"}
_STATUS = {"member", "memory", "file", "rows", "workers"}  # keys that a status has
_TASK = {"task", "rows", "seconds", "attempts"}  # keys of a finished task
_LEFT = {"member", "error", "what", "where", "next_step"}
_FACTS = {"task": _TASK, "worker_left": _LEFT, "worker_clock": {"member", "ahead"}}
_TOLD = ("task", "retry", "alone", "lost_file", "stall", "worker_left", "worker_clock")


class MemberLog(EventLog):
    def __init__(self, store: SharedStore, observer: Observer | None = None) -> None:
        self._place = run_folder(store.token, f"{MEMBERS}/{store.member}")
        super().__init__(store, observer, f"{self._place}.jsonl", f"{self._place}.json")
        self._facts: dict[str, Any] = {"member": store.member, "host": socket.gethostname(), "process": os.getpid()}
        self.done = 0, 0  # tasks and rows
        self._peak = 0
        self._last: dict[str, Any] = {"memory": 0, "file": 0, "rows": 0, "busy": 0, "workers": []}

    def say(self, name: str, **facts: Any) -> None:
        """Log what this member did itself; the others log their own work."""
        if name not in _TOLD or (name == "task" and not facts["attempts"]):
            return
        if name == "task":
            self.done = self.done[0] + 1, self.done[1] + facts["rows"]
        super().say(name, **facts)

    def sample(self, **facts: Any) -> None:
        self._peak = max(self._peak, facts["memory"])
        self._last = facts
        super().sample(**facts, **self._facts, peak=self._peak, cpu_seconds=_cpu_seconds())

    def write_status(self, **facts: Any) -> None:
        """Write the status now: run.json needs it, and a short run has written no sample."""
        status = {**self._last, **self._facts, "peak": self._peak, "cpu_seconds": _cpu_seconds(), **facts}
        with suppress(Exception):  # the run is over, or its folder cannot be written; nothing here decides a byte
            self._store.commit_bytes(f"{self._place}.json", json.dumps(status).encode())

    def __exit__(self, *_: object) -> None:
        """The last status stays, for run.json."""
        self._file.close()
        self.write_status(busy=0, workers=[], ended=True)


def say_left(store: SharedStore, error: PenstockError) -> None:
    """Tell the watcher why this member has ended or cannot join. This only appends to a log: the disk may be full."""
    facts = {key: value for key, value in error.as_dict().items() if key in _LEFT}
    line = json.dumps({"event": "worker_left", "member": store.member, **facts})  # ASCII: paths may be invalid UTF-8
    with suppress(PenstockError):  # no room for it, or the run is over
        file = store.append(run_folder(store.token, f"{MEMBERS}/{store.member}.jsonl"))
        try:
            file.write(line.encode() + b"\n")
        finally:
            file.close()


def _cpu_seconds() -> float:
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return round(sum(each.ru_utime + each.ru_stime for each in usage), 3)


def statuses(store: Store, token: str) -> list[dict[str, Any]]:
    """The last status of every member that has left one."""
    found = []
    for name in store.entries(run_folder(token, MEMBERS)):
        if name.endswith(".json"):
            with suppress(Exception):  # it has just been replaced, or the run is over
                status = json.loads(store.read(name))
                found += [status] if isinstance(status, dict) and status.keys() >= _STATUS else []
    return found


class Heard:
    """Events that members have logged since the last look."""

    def __init__(self, store: Store, token: str) -> None:
        self._store, self._folder = store, run_folder(token, MEMBERS)
        self._places: dict[str, int] = {}

    def new(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """(member, event)."""
        for name in self._store.entries(self._folder):
            if name.endswith(".jsonl"):
                member = name.rpartition("/")[2].removesuffix(".jsonl")
                for line, place in whole_lines(self._store, self._places.get(name, 0), name):
                    self._places[name] = place
                    event = None
                    with suppress(ValueError):  # cut by a crash
                        event = json.loads(line)
                    if _is_told(event):
                        yield member, event


def _is_told(event: Any) -> TypeGuard[dict[str, Any]]:
    """Whether it is a whole event of a member. Damaged lines must not end a run: nothing in them decides a byte."""
    if not isinstance(event, dict) or event.get("event") not in _TOLD or "name" in event:
        return False
    return event.keys() >= _FACTS.get(event["event"], set()) and isinstance(event.get("ahead", 0), int | float)


def with_members(run_facts: bytes, store: SharedStore) -> bytes:
    """The contents of run.json, with what each member did. A member may not have logged its last task yet."""
    facts = json.loads(run_facts)
    facts["tasks_done"] -= facts["tasks_kept"]  # it has counted every row of the ledger
    members = {each["member"]: {**each, **_NOTHING} for each in statuses(store, store.token)}
    for name, event in Heard(store, store.token).new():
        if word := _COUNTED.get(event["event"]):
            member = members.setdefault(name, {"member": name, **_NOTHING})
            member[word] += 1
            member["rows"] += event["rows"] if word == "tasks" else 0
    facts["workers"] = len(members)
    keys = ("member", "host", "process", *_NOTHING, "peak", "cpu_seconds")
    facts["members"] = [{key: members[name].get(key) for key in keys} for name in sorted(members)]
    facts["peak_memory_bytes"] = max([facts["peak_memory_bytes"], *(each.get("peak", 0) for each in members.values())])
    facts["cpu_seconds"] = round(sum(each.get("cpu_seconds", 0.0) for each in members.values()), 3)
    return json.dumps(facts, indent=1).encode() + b"\n"
