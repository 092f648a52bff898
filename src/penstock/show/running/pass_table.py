"""Pass table: run.json -> time, speed and memory of each pass, for the end of a run."""

from collections.abc import Iterator
from typing import Any

from rich.console import RenderableType

from penstock.base.sizes import format_count, format_seconds, format_size
from penstock.show.tables import make_table


def pass_tables(run: dict[str, Any]) -> Iterator[RenderableType]:
    """One row per pass. Nothing for a single pass, whose figures are in the lines below, or for an older run.json."""
    passes = [each for each in run.get("passes", ()) if "memory" in each]
    if len(passes) < 2:
        return
    table = make_table("pass", ">time", ">rows/s", ">MB/s", ">start", ">peak", ">end", ">increase")
    for each in passes:
        table.add_row(f"{each['number']} {each['kind']}", *_speed(each), *_memory(each["memory"]))
    yield table


def _speed(facts: dict[str, Any]) -> tuple[str, str, str]:
    """Words for the speed; none if an earlier run did all tasks."""
    if not facts["tasks_done"]:
        return "kept", "", ""
    seconds = max(facts["seconds"], 0.001)
    megabytes = f"{facts['bytes'] / seconds / 1e6:,.1f}" if facts["bytes"] else ""  # items have none
    return format_seconds(facts["seconds"]), format_count(facts["rows"] / seconds), megabytes


def _memory(memory: dict[str, int]) -> tuple[str, ...]:
    return tuple(format_size(memory[name]) for name in ("start", "peak", "end", "increase"))


def memory_words(run: dict[str, Any]) -> str:
    """Peak, projected and allowed; for a single pass, its start, end and increase, too."""
    allowed, projected = format_size(run["allowed_memory_bytes"]), format_size(run["projected_memory_bytes"])
    peak = run["peak_memory_bytes"]
    words = f"peak {format_size(peak) if peak else 'not sampled'}, projected {projected}, allowed {allowed}"
    if len(run["passes"]) != 1 or "memory" not in run["passes"][0]:
        return words
    start, _, end, increase = _memory(run["passes"][0]["memory"])
    return f"{words}; start {start}, end {end}, increase {increase}"
