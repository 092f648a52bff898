"""Joined: what a worker of `penstock work` says while it works, and when the dataset is there."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.text import Text

from penstock.base.errors import printable
from penstock.base.events import Event
from penstock.base.sizes import counted, format_seconds
from penstock.prepare.joining import Worked
from penstock.show.console import make_console
from penstock.show.running.notices import notices


class Told:
    """Lines on stderr: retries and stalls of this machine's tasks."""

    def __init__(self) -> None:
        self._console = make_console(stderr=True)

    def say(self, words: str) -> None:
        self._console.print(Text(printable(f"penstock: {words}")), soft_wrap=True)

    def observe(self, event: Event) -> None:
        for text in notices(event):
            self._console.print(Text("penstock: ").append_text(text), soft_wrap=True)


def joined_facts(worked: Worked) -> dict[str, Any]:
    return asdict(worked)


def joined_lines(facts: dict[str, Any]) -> Iterator[Text]:
    done = f"{counted(facts['tasks'], 'task')}, {counted(facts['rows'], 'row')}, in {format_seconds(facts['seconds'])}"
    if facts["member"]:
        yield Text(f"worker {facts['member']} did {done}")
    yield Text(f"The run is done: dataset {facts['dataset']}.", style="green")
    yield Text(f"See it: penstock inspect {facts['output']}")
