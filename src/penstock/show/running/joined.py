"""Joined: `penstock work` in the terminal: what a worker prints while it works and at the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from penstock.base.errors import printable
from penstock.base.events import Event
from penstock.base.sizes import counted, format_seconds
from penstock.prepare.engines.hired import nursery
from penstock.prepare.engines.workers.board import TakenAway
from penstock.prepare.entry import Job, plan_with
from penstock.prepare.planning import plan_of
from penstock.prepare.run.members.ensuring import ensure_begun
from penstock.prepare.run.members.joining import Joining, Worked, join
from penstock.show.console import make_console
from penstock.show.running.notices import notices

_BEGINNERS = 3  # so many machines may take the output from each other


def work(
    output: str,
    memory: str | None = None,
    workers: str | None = None,
    lease: float | None = None,
    job: Job | None = None,
) -> Worked:
    """Join the run in that output; with `job`, begin it if nobody has. Retries and stalls go to stderr."""
    console = make_console(stderr=True)

    def say(words: str) -> None:
        console.print(Text(printable(f"penstock: {words}")), soft_wrap=True)

    def observe(event: Event) -> None:
        for text in notices(event):
            console.print(Text("penstock: ").append_text(text), soft_wrap=True)

    with nursery() as processes:
        for tries_left in range(_BEGINNERS, -1, -1):
            if job:
                ensure_begun(plan_with(processes, job))
            try:
                return join(Joining(plan_of, processes, say, observe), output, memory, workers, lease)
            except TakenAway:  # by a machine that began at the same time, which our lock does not reach
                if not job or not tries_left:
                    raise
    raise AssertionError


def joined_facts(worked: Worked) -> dict[str, Any]:
    return asdict(worked)


def joined_lines(facts: dict[str, Any]) -> Iterator[Text]:
    done = f"{counted(facts['tasks'], 'task')}, {counted(facts['rows'], 'row')}, in {format_seconds(facts['seconds'])}"
    if facts["member"]:
        yield Text(f"worker {facts['member']} did {done}")
    yield Text(f"The run is done: dataset {facts['dataset']}.", style="green")
    yield Text(f"See it: penstock inspect {facts['output']}")
