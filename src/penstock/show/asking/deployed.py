"""Deployed: facts about a written script or app -> lines that say what it asks for, and how to start it."""

import shlex
from collections.abc import Iterator
from typing import Any

from rich.table import Table
from rich.text import Text

from penstock.base.sizes import counted, format_seconds, format_size
from penstock.show.running.plans.nodes_tables import caveats
from penstock.show.tables import make_list

Part = Table | Text


def slurm_lines(facts: dict[str, Any]) -> list[Part]:
    """The array, and how to submit it. The watching command may begin the run, so it gets the elements' memory."""
    memory = facts["worker_memory_bytes"] >> 20
    asked = {
        "job": facts["job"],
        "output": facts["output"],
        "array": counted(facts["nodes"], "element"),
        "each": f"{counted(facts['cores'], 'core')}, {format_size(facts['memory_bytes'])}",
        "workers": f"{format_size(facts['worker_memory_bytes'])} for penstock, the rest for the shell",
        "time": facts["time"] or "the cluster's default",
        "partition": facts["partition"] or "the cluster's default",
        "penstock": f"{facts['python']} -m penstock",
    }
    return [
        Text(f"wrote {facts['script']}", style="green"),
        make_list([*asked.items(), *_estimate(facts, "if all elements run at once")]),
        *_larger_arrays(facts),
        Text("Next, in a folder that all nodes see:"),
        Text(f"  sbatch {shlex.quote(facts['script'])}", no_wrap=True),
        Text("To see the progress, on any machine that sees the folder (this does no tasks):"),
        Text(f"  penstock run {shlex.quote(facts['job'])} --engine workers --memory {memory}MiB", no_wrap=True),
    ]


def modal_lines(facts: dict[str, Any]) -> list[Part]:
    """The container, about what it costs, and how to run it."""
    disk = facts["disk_bytes"]
    asked = {
        "job": facts["job"],
        "volume": f"{facts['volume']}, with the output in {facts['output']}",
        "container": f"{counted(facts['cores'], 'physical core')}, {format_size(facts['memory_bytes'])}, "
        f"killed above {format_size(facts['limit_bytes'])}",
        "disk": format_size(disk) if disk else "the 550 GB that every container has",
        "attempts": f"{counted(facts['retries'] + 1, 'attempt')} of {format_seconds(facts['timeout'])} at most",
        "installs": facts["requirement"],
        "uploads": ", ".join(facts["files"]),
    }
    price = f"about ${facts['dollars_per_hour']:.2f} per hour"
    if facts["dollars"] is not None:
        price = f"about ${max(0.01, facts['dollars']):.2f}; {price}"
    cost = [("cost", f"{price}, at the prices of {facts['prices_of']}")]
    return [
        Text(f"wrote {facts['app']}", style="green"),
        make_list([*asked.items(), *_estimate(facts, "without the upload and the start of the container"), *cost]),
        Text("Next:"),
        Text(f"  modal run {shlex.quote(facts['app'])} --upload", no_wrap=True),
        Text(f"  modal volume get {shlex.quote(facts['volume'])} {shlex.quote(facts['output'])} .", no_wrap=True),
    ]


def _estimate(facts: dict[str, Any], condition: str) -> Iterator[tuple[str, str]]:
    """The time, as `penstock plan --nodes` projects it."""
    projection = facts["projection"]
    if projection is None:
        yield "estimate", f"none, since the job cannot be planned here: {facts['unknown']}"
        return
    yield "estimate", f"about {format_seconds(max(1.0, projection['seconds']))}, {condition}"
    yield from caveats(projection, "`penstock plan --network` projects another rate")


def _larger_arrays(facts: dict[str, Any]) -> list[Part]:
    if not facts["needs_larger_arrays"]:
        return []
    wanted = f"scontrol show config | grep MaxArraySize   # must be more than {facts['nodes'] - 1}"
    return [
        Text("By default, a cluster allows arrays of 1,001 elements. Ask yours:"),
        Text(f"  {wanted}"),
    ]
