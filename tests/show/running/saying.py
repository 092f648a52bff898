"""Events for tests of the display: a run of four passes over 1,000 documents."""

from __future__ import annotations

from typing import Any

from penstock.show.running.tracker import Tracker


def planned(number: int, kind: str, seconds: float = 10.0, **facts: Any) -> dict[str, Any]:
    usual = {"stages": [], "tasks": 4, "tasks_kept": 0, "rows": 1000, "rows_kept": 0, "rows_set_aside": {}}
    return {
        "number": number,
        "kind": kind,
        **usual,
        "reads_input": kind in ("hash", "map"),
        "seconds": seconds,
        **facts,
    }


PASSES = [planned(0, "hash"), planned(1, "match"), planned(2, "map"), planned(3, "pack")]
START = {
    "event": "start",
    "time": 100.0,
    "job": "0",
    "tasks": 16,
    "tasks_kept": 0,
    "changes": [],
    "workers": 2,
    "allowed": 2_000_000_000,
    "projected": 300_000_000,
    "rows": 4000,
    "input_rows": 1000,
    "input_bytes": 4_000_000,
    "input_items": 0,
    "rows_are_estimated": False,
    "not_read": [],
    "not_seen": [],
    "unit": "documents",
    "bad_files": 0,
    "passes": PASSES,
}


def fed(*events: Any) -> Tracker:
    tracker = Tracker()
    for event in events:
        tracker.take(event)
    return tracker


def begun(number: int, time: float = 100.0) -> dict[str, Any]:
    return {
        "event": "pass",
        "time": time,
        "number": number,
        "kind": PASSES[number]["kind"],
        "tasks": 4,
        "pending": 4,
        "notes": [],
    }


def over(number: int, time: float, seconds: float = 10.0, rows: int = 1000) -> dict[str, Any]:
    memory = {"start": 100_000_000, "peak": 200_000_000, "end": 150_000_000, "increase": 100_000_000}
    facts = {"number": number, "kind": PASSES[number]["kind"], "seconds": seconds, "rows": rows, "bytes": 4_000_000}
    return {"event": "pass_done", "time": time, **facts, "tasks": 4, "memory": memory}


def task(time: float, number: int = 0, rows: int = 250, **facts: Any) -> dict[str, Any]:
    usual = {"slice": "slice 0: a.jsonl [0:9]", "bytes": 1_000_000, "seconds": 1.0, "attempts": 1, "set_aside": {}}
    return {"event": "task", "time": time, "task": f"{number}-x-0", "pass_number": number, "rows": rows} | usual | facts


def worker(number: int, slice: str = "slice 3: part-3.jsonl [0:4]", **facts: Any) -> dict[str, Any]:
    usual = {"worker": number, "task": f"0-hash-{number:05}", "slice": slice, "file": "", "rows": 120, "seconds": 2.5}
    return usual | facts


def sample(time: float, rows: int, memory: int = 150_000_000, workers: Any = ()) -> dict[str, Any]:
    facts = {"memory": memory, "file": 0, "rows": rows, "busy": len(workers), "workers": list(workers)}
    return {"event": "sample", "time": time, **facts}
