"""Nodes tables: facts about a job on several machines -> the tables below the plan."""

from collections.abc import Callable, Iterator
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from penstock.base.sizes import counted, format_count, format_rate, format_seconds, format_size
from penstock.show.tables import make_list, make_table

_NOT_FASTER = 1.05


def nodes_tables(facts: dict[str, Any]) -> Iterator[RenderableType]:
    machine = f"{counted(facts['cores'], 'core')}, {format_size(facts['memory_bytes'])} ({facts['memory_by']})"
    yield Text(f"On {counted(facts['nodes'], 'node')} with `penstock work`, each with {machine}:")
    yield ""
    table = make_table("pass", *(f"{each['number']} {each['kind']}" for each in facts["passes"]))
    for name, words in _ROWS.items():
        table.add_row(name, *(words(each, facts) for each in facts["passes"]))
    yield table
    yield ""
    yield make_list(_lines(facts))


def _at_once(each: dict[str, Any], facts: dict[str, Any]) -> str:
    most = facts["nodes"] * each["workers"]
    idle = f", {format_count(most - each['at_once'])} idle" if most > each["at_once"] else ""
    return f"{format_count(each['at_once'])}{idle}"


def _time(each: dict[str, Any], _: dict[str, Any]) -> str:
    slower = " (network)" if each["network_seconds"] > each["compute_seconds"] else ""
    return f"about {format_seconds(each['seconds'])}{slower}"


def _network(each: dict[str, Any], _: dict[str, Any]) -> str:
    moved = sum(each["moved"].values())
    return f"{format_size(moved)} in {format_seconds(each['network_seconds'])}"


_ROWS: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {
    "tasks": lambda each, _: format_count(each["tasks"]),
    "at once": _at_once,
    "work": lambda each, _: f"{format_seconds(each['work_seconds'])} of one core",
    "compute": lambda each, _: format_seconds(each["compute_seconds"]),
    "network": _network,
    "time": _time,
}


def _lines(facts: dict[str, Any]) -> Iterator[tuple[str, str]]:
    yield "time", _time_words(facts)
    yield "spill", f"{format_size(facts['spill_bytes'])} in the shared folder, gone when the job is done"
    yield "network", _network_words(facts)
    yield from caveats(facts, "--network")


def caveats(facts: dict[str, Any], option: str) -> Iterator[tuple[str, str]]:
    """What the projection assumes, leaves out and extrapolates. `option` gives the rate of the network."""
    rate = (
        f"{format_rate(facts['network_bytes_per_second'])} per node, from storage that serves all nodes at that speed"
    )
    yield "assumed", f"nodes as fast as this machine; {rate} ({option}). Neither was measured."
    if facts["costs_are_assumed"]:
        yield "assumed", "costs of rows: the job is so small that nothing was measured"
    for words in sorted({each["left_out"] for each in facts["passes"] if each["left_out"]}):
        yield "left out", words
    if facts["extrapolated"]:
        beyond = ", ".join(facts["extrapolated"])
        yield "extrapolated", f"to {beyond}: the model was compared with {facts['compared']}"


def _time_words(facts: dict[str, Any]) -> str:
    seconds, one = format_seconds(facts["seconds"]), format_seconds(facts["one_node_seconds"])
    start = f"including {format_seconds(facts['start_seconds'])} to start: the run plans, then every node"
    if facts["nodes"] == 1:
        return f"about {seconds}, {start}"
    times = facts["times_as_fast"]
    if times < _NOT_FASTER:
        return f"about {seconds}, no faster than 1 such node, {_why(facts)}; {start}"
    return f"about {seconds}, {times:.1f} times as fast as 1 such node ({one}){_idle_words(facts)}; {start}"


def _why(facts: dict[str, Any]) -> str:
    """The reason why more nodes do not help."""
    longest = max(facts["passes"], key=lambda each: each["seconds"])
    if longest["tasks"] == 1:
        return f"because {longest['kind']} is one task"
    if longest["tasks"] <= longest["workers"]:
        return f"because one node does all {longest['tasks']} tasks of {longest['kind']} at once"
    return "because starting and ending takes most of the time"


def _idle_words(facts: dict[str, Any]) -> str:
    idle = [each for each in facts["passes"] if each["at_once"] < facts["nodes"] * each["workers"]]
    if not idle:
        return ""
    least = min(idle, key=lambda each: each["at_once"])
    return f"; {least['kind']} has {counted(least['tasks'], 'task')}, so more workers than that are idle"


def _network_words(facts: dict[str, Any]) -> str:
    total = {key: sum(each["moved"][key] for each in facts["passes"]) for key in facts["passes"][0]["moved"]}
    nodes, read = facts["nodes"], total["spill_read_bytes"]
    parts = [f"{format_size(total['input_bytes'])} of input"]
    if total["spill_written_bytes"]:
        others = f" ({format_size(read * (nodes - 1) / nodes)} of it from other nodes)" if nodes > 1 else ""
        parts += [f"{format_size(total['spill_written_bytes'])} of spill written, {format_size(read)} read{others}"]
    parts += [f"{format_size(total['output_bytes'])} of output"]
    each = f", {format_size(facts['network_bytes'] / nodes)} per node" if nodes > 1 else ""
    return f"{format_size(facts['network_bytes'])} with the shared folder{each}: {', '.join(parts)}"
