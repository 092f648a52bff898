"""Run sections: facts of the run -> memory over time, passes, the slowest tasks, the machine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.base.sizes import counted, format_seconds, format_size
from penstock.show.report.drawing.blocks import facts_list, figure, note, table
from penstock.show.report.drawing.charts import Band, Bar, Limit, bars, curve
from penstock.show.report.drawing.markup import Html, element, text
from penstock.show.report.drawing.page import Section
from penstock.show.report.drawing.words import (
    count_or_unknown,
    duration_like,
    listed,
    moment,
    rate,
    seconds_or_unknown,
    size_or_unknown,
    size_rate,
)
from penstock.show.tables import by_workers, unread_words

Facts = dict[str, Any]
_MOST_POINTS = 40  # of the timeline, in its table


def memory_section(run: Facts) -> Section:
    return Section("memory", "Memory", list(_memory(run)))


def _memory(run: Facts) -> Iterator[Html]:
    points = [(point[0], point[1]) for point in run["timeline"]]
    if len(points) < 2:
        if run["is_known"]:
            yield note("Memory over time is not known for this run.")
        return
    allowed, peak = run["allowed_memory_bytes"], max(value for _, value in points)
    projected = size_or_unknown(run["projected_memory_bytes"])
    caption = f"Memory of all processes, sampled while the run worked. Projected: {projected}."
    if allowed and peak < allowed / 4:
        caption += f" The budget, {format_size(allowed)}, lies above this scale."
    limit = Limit(allowed, "budget") if allowed else None
    title = f"Memory over time, peak {format_size(peak)}" + (f", budget {format_size(allowed)}" if allowed else "")
    chart = curve(title, points, limit, _bands(run), duration_like(points[-1][0]), format_size)
    yield figure("Memory over time against the budget", caption, chart, _memory_table(run))


def _bands(run: Facts) -> list[Band]:
    """The stretch of each pass, up to where the next one begins."""
    begins = [each["began"] for each in run["passes"]]
    ends = [*begins[1:], run["timeline"][-1][0]][: len(begins)]  # a damaged run.json may have no passes
    return [
        Band(began, end, each["kind"] or "pass")
        for each, began, end in zip(run["passes"], begins, ends, strict=True)
        if end > began
    ]


def _memory_table(run: Facts) -> Html:
    points = run["timeline"]
    names = {each["number"]: each["kind"] for each in run["passes"]}
    step = max(1, -(-len(points) // _MOST_POINTS))
    taken = [max(points[low : low + step], key=lambda point: point[1]) for low in range(0, len(points), step)]
    rows = [
        (format_seconds(point[0]), names.get(point[2], f"{point[2]:.0f}"), format_size(point[1])) for point in taken
    ]
    return table([">time", "pass", ">memory"], rows, "sample")


def passes_section(run: Facts) -> Section:
    return Section("passes", "Passes", list(_passes(run)))


def _passes(run: Facts) -> Iterator[Html]:
    passes = run["passes"]
    if not passes:
        return
    drawn = [
        Bar(
            name=each["kind"] or "pass",
            below=each["stages"],
            parts=[each["seconds"] or 0.0],
            words=seconds_or_unknown(each["seconds"]),
            small=" · ".join(
                filter(None, [rate(each["rows"], each["seconds"], "rows"), size_rate(each["bytes"], each["seconds"])])
            ),
        )
        for each in passes
    ]
    rows = [
        (
            each["kind"],
            each["stages"],
            count_or_unknown(each["tasks"]),
            count_or_unknown(each["rows"]),
            seconds_or_unknown(each["seconds"]),
            *(size_or_unknown(each["memory"][name]) for name in ("start", "peak", "end", "increase")),
        )
        for each in passes
    ]
    columns = ["pass", "stages", ">tasks", ">rows", ">time", ">memory at start", ">peak", ">at end", ">increase"]
    caption = "A pass reads its rows once. Passes follow each other."
    yield figure("Time and throughput per pass", caption, bars("Time per pass", drawn), table(columns, rows, "pass"))


def slowest_section(run: Facts) -> Section:
    rows = [
        (
            each["task"],
            seconds_or_unknown(each["seconds"]),
            count_or_unknown(each["rows"]),
            size_or_unknown(each["bytes"]),
            count_or_unknown(each["attempts"]),
            each["slice"],
        )
        for each in run["slowest"]
    ]
    drawn = [
        Bar(each["task"], [each["seconds"] or 0.0], seconds_or_unknown(each["seconds"])) for each in run["slowest"][:8]
    ]
    parts = []
    if rows:
        data = table(["task", ">time", ">rows", ">bytes", ">attempts", "slice"], rows, "task")
        parts.append(figure("", "The tasks that took longest.", bars("Time of the slowest tasks", drawn), data))
    return Section("slowest", "Slowest tasks", parts)


def machine_section(run: Facts) -> Section:
    if not run["is_known"]:
        return Section("machine", "Machine and versions", [])
    return Section("machine", "Machine and versions", [element("div", facts_list(_machine(run)), class_="card")])


def _machine(run: Facts) -> Iterator[tuple[str, Html]]:
    machine = run["machine"]
    if run["started"]:
        yield "started", text(moment(run["started"]))
    if run["seconds"] is not None and run["workers"] is not None:
        cpu = f", {format_seconds(run['cpu_seconds'])} of CPU" if run["cpu_seconds"] is not None else ""
        yield "time", text(f"{format_seconds(run['seconds'])}{cpu}, {by_workers(int(run['workers']))}")
    if run["tasks_done"] is not None:
        kept = f", {counted(int(run['tasks_kept']), 'task')} kept from an earlier run" if run["tasks_kept"] else ""
        yield "tasks", text(f"{counted(int(run['tasks_done']), 'task')} done{kept}")
    if run["spill_bytes"]:
        yield "spilled", text(f"{format_size(run['spill_bytes'])} between passes")
    for name, value in machine.items():
        shown = format_size(value) if name.endswith("_bytes") and isinstance(value, int) else str(value)
        yield name.removesuffix("_bytes").replace("_", " "), text(shown)
    for name, value in run["versions"].items():
        if name not in machine:
            yield str(name), text(str(value))
    patterns = [str(each) for part in run["input"] for each in (part if isinstance(part, list) else [part])]
    if patterns:
        yield "input", text(listed(patterns, "pattern", 8))
    if run["not_read"]:
        yield "not read", text(unread_words(run["not_read"]), 1000)
