"""Notices: an event -> lines that stay on the screen and in the log. Names and reasons from data are escaped."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

from rich.text import Text

from penstock.base.errors import printable
from penstock.base.events import Event, LostFile, Retry, Stall, Start, WorkerClock, WorkerLeft
from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.show.failure import working_stack
from penstock.show.tables import by_workers, not_seen_words, unread_words


def notices(event: Event) -> Iterator[Text]:
    if event["event"] == "start":
        yield from _start(event)
    elif event["event"] == "pass":
        yield from (_line(note) for note in event["notes"])
    elif event["event"] == "retry":
        yield _retry(event)
    elif event["event"] == "stall":
        yield from _stall(event)
    elif event["event"] == "lost_file":
        yield _lost_file(event)
    elif event["event"] == "worker_left":
        yield from _worker_left(event)
    elif event["event"] == "worker_clock":
        yield _worker_clock(event)
    elif event["event"] == "no_worker":
        yield _line(f"no worker is at work, and the run waits. Start one: {_work(event['waits_for'])}", "yellow")


def _line(words: str, style: str = "") -> Text:
    return Text(printable(words), style=style)


def _start(event: Start) -> Iterator[Text]:
    for change in event["changes"]:
        yield _line(f"changed since the last run: {change}", "yellow")
    left, kept = event["tasks"] - event["tasks_kept"], event["tasks_kept"]
    if event["changes"]:
        yield _line(
            f"the tasks that depend on it are done again: {counted(left, 'task')} to do, {kept:,} kept", "yellow"
        )
    elif kept:
        yield _line(f"resuming an earlier run: {kept:,} of {counted(event['tasks'], 'task')} done", "green")
    if event["bad_files"]:
        yield _line(f"set aside as unusable: {counted(event['bad_files'], 'file')}", "yellow")
    if event["not_read"]:
        yield _line(f"not read: {unread_words(event['not_read'])}", "yellow")
    if event["not_seen"]:
        yield _line(f"not seen: {not_seen_words(event['not_seen'])}", "yellow")
    joined = event.get("waits_for", "")  # older logs have none
    workers = "by workers that join" if joined else by_workers(event["workers"])
    memory = f"{format_size(event['projected'])} projected, {format_size(event['allowed'])} allowed"
    yield _line(f"{counted(left, 'task')} to do, {_input(event)} in all, {workers}; memory: {memory}")
    if joined:
        yield _line(f"start a worker on each machine: {_work(joined)}", "green")


def _work(output: str) -> str:
    return f"penstock work {shlex.quote(output)}"


def _input(event: Start) -> str:
    """Each row once, however many passes take it. Items are counted, and what they make is not known."""
    if event.get("input_items", 0) and not event["input_bytes"]:
        return counted(event["input_items"], "item")
    about = "about " if event["rows_are_estimated"] else ""
    return about + counted(event["input_rows"], event["unit"].removesuffix("s"))


def _retry(event: Retry) -> Text:
    batch = format_size(event["batch_bytes"])
    return _line(f"trying again: {event['slice']}, because {event['reason']}; with batches of {batch}", "yellow")


def _lost_file(event: LostFile) -> Text:
    return _line(f"set aside: {event['file']}: {event['title']}, {event['reason']}", "yellow")


def _stall(event: Stall) -> Iterator[Text]:
    rows = format_count(event["rows"])
    yield _line(f"no row for {event['seconds']:.0f} s: {event['slice']}, after {rows} rows", "yellow")
    if event["stack"]:
        frames = "\n".join(map(printable, working_stack(event["stack"]).splitlines()))
        yield Text("it is here (innermost first):\n" + frames, style="dim")


def _worker_left(event: WorkerLeft) -> Iterator[Text]:
    yield _line(f"worker {event['member']} has ended: {event['error']}: {event['what']}", "yellow")
    if event["where"]:
        yield _line(f"  where: {event['where']}", "yellow")
    if event["next_step"]:
        yield _line(f"  try: {event['next_step']}", "yellow")


def _worker_clock(event: WorkerClock) -> Text:
    off = f"{format_seconds(abs(event['ahead']))} {'ahead of' if event['ahead'] > 0 else 'behind'}"
    return _line(
        f"worker {event['member']}: the clock of its machine is {off} that of the shared folder. Times in its log are "
        "off by that; tasks and leases are not affected",
        "yellow",
    )
