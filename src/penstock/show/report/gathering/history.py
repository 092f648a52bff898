"""History: run.json of a dataset -> what is known of the run that made it, and what is not.

The file may be absent, older or damaged: nothing in it decides a byte of the dataset. A value that is not what it
should be counts as unknown, and the report says so.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any

from penstock.base.stores.store import RUN, Store

Facts = dict[str, Any]
MOST_POINTS = 500  # of the timeline
_NUMBERS = (
    *("seconds", "cpu_seconds", "tasks_done", "tasks_kept", "workers", "spill_bytes"),
    *("peak_memory_bytes", "allowed_memory_bytes", "projected_memory_bytes"),
)


def history(store: Store) -> Facts:
    """Facts of the run, each None or empty where it is not known, and a sentence for each that is missed."""
    run = _read_run(store)
    passes = list(_passes(run))
    timeline = _points(run.get("timeline"))
    facts: Facts = {
        "is_known": bool(run),
        "started": run.get("started") if isinstance(run.get("started"), str) else None,
        **{name: number(run.get(name)) for name in _NUMBERS},
        "passes": passes,
        "timeline": thinned(sorted([*_ends(passes), *timeline], key=lambda point: point[0])),
        "slowest": [_task_facts(each) for each in items(run.get("slowest"))],
        "input": run.get("input") if isinstance(run.get("input"), list) else [],
        "not_read": [each for each in items(run.get("not_read")) if _is_unread(each)],
        "machine": {name: value for name, value in _mapping(run.get("machine")).items() if _is_told(value)},
        "versions": _mapping(run.get("versions")),
    }
    return {**facts, "unknown": list(_unknown(facts))}


def _unknown(facts: Facts) -> Iterator[str]:
    if not facts["is_known"]:
        yield "There is no .penstock/run.json: the time, the memory and the machine of the run are not known."
        return
    if facts["tasks_kept"]:
        kept = f"{facts['tasks_kept']:,.0f} of {facts['tasks_kept'] + (facts['tasks_done'] or 0):,.0f} tasks"
        yield f"The run was resumed: {kept} were kept from an earlier run. Times and memory are those of the last run."
    if not facts["peak_memory_bytes"]:
        yield "Memory was not sampled: the run was too short."
    elif len(facts["timeline"]) < 2:
        yield "Memory over time is not known: the run left fewer than two samples."
    if not facts["passes"]:
        yield "The time of each pass is not known: the version that made this dataset did not keep it."
    if not facts["slowest"]:
        yield "The slowest tasks are not known: the version that made this dataset did not keep them."


def _read_run(store: Store) -> Facts:
    try:
        found = json.loads(store.read(RUN)) if store.exists(RUN) else {}
    except (ValueError, RecursionError):
        return {}
    return _mapping(found)


# Values of files that anybody may have written.


def number(value: Any) -> float | None:
    """A number that can be shown; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1e18 and math.isfinite(value) else None


def items(value: Any) -> list[Facts]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def _mapping(value: Any) -> Facts:
    return value if isinstance(value, dict) else {}


def _is_unread(each: Facts) -> bool:
    is_named = all(isinstance(each.get(name), str) for name in ("what", "first"))
    return is_named and number(each.get("count")) is not None


def _is_told(value: Any) -> bool:
    """Text, or a number that can be shown."""
    return not isinstance(value, int | float) or number(value) is not None


def _words(value: Any) -> str:
    """A name, or several, as text."""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "" if value is None else str(value)


def _passes(run: Facts) -> Iterator[Facts]:
    """Passes whose time is known, with the second at which each began: they follow each other."""
    began = 0.0
    for each in items(run.get("passes")):
        facts = _pass_facts(each)
        if facts["seconds"] is not None:
            yield {**facts, "began": began}
            began += facts["seconds"]


def _ends(passes: list[Facts]) -> Iterator[list[float]]:
    """Samples that were taken when a pass began and ended."""
    for each in passes:
        for name, seconds in (("start", each["began"]), ("end", each["began"] + (each["seconds"] or 0.0))):
            if each["memory"][name] is not None:
                yield [seconds, each["memory"][name], each["number"] or 0]


def _pass_facts(each: Facts) -> Facts:
    memory = _mapping(each.get("memory"))
    return {
        "number": number(each.get("number")),
        "kind": _words(each.get("kind")),
        "stages": _words(each.get("stages")),
        **{name: number(each.get(name)) for name in ("seconds", "rows", "bytes", "tasks")},
        "memory": {name: number(memory.get(name)) for name in ("start", "peak", "end", "increase")},
    }


def _task_facts(each: Facts) -> Facts:
    names = {name: number(each.get(name)) for name in ("pass", "seconds", "rows", "bytes", "attempts")}
    return {"task": _words(each.get("task")), "slice": _words(each.get("slice")), **names}


def _points(value: Any) -> list[list[float]]:
    """`[seconds, bytes, pass]` of each sample, in the order of time."""
    points = []
    for each in value if isinstance(value, list) else []:
        numbers = [number(part) for part in each[:3]] if isinstance(each, list) else []
        if len(numbers) >= 2 and numbers[0] is not None and numbers[1] is not None:
            points.append([numbers[0], numbers[1], (numbers[2:] or [0])[0] or 0])
    return sorted(points, key=lambda point: point[0])


def thinned(points: list[list[float]]) -> list[list[float]]:
    """At most MOST_POINTS: of each stretch the largest, so that no peak is lost."""
    if len(points) <= MOST_POINTS:
        return points
    bounds = [step * len(points) // MOST_POINTS for step in range(MOST_POINTS + 1)]
    return [max(points[low:high], key=lambda point: point[1]) for low, high in itertools.pairwise(bounds)]
