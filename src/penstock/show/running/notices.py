"""Notices: an event that a person should know of when it happens -> lines of text. Most events have none."""

from collections.abc import Iterator

from rich.text import Text

from penstock.base.events import Event
from penstock.base.sizes import counted, format_count, format_size
from penstock.show.failure import working_stack
from penstock.show.tables import by_workers, not_seen_words, unread_words


def notices(event: Event) -> Iterator[Text]:
    known = {"start": _start, "pass": _pass, "retry": _retry, "stall": _stall, "lost_file": _lost_file}
    if event["event"] in known:
        yield from known[event["event"]](event)


def _start(event: Event) -> Iterator[Text]:
    for change in event["changes"]:
        yield Text(f"changed since the last run: {change}", style="yellow")
    left, kept = event["tasks"] - event["tasks_kept"], event["tasks_kept"]
    if event["changes"]:
        yield Text(f"what that concerns is redone: {counted(left, 'task')} to do, {kept:,} kept", style="yellow")
    elif kept:
        yield Text(f"going on from an earlier run: {kept:,} of {counted(event['tasks'], 'task')} done", style="green")
    if event["bad_files"]:
        yield Text(f"set aside as unusable: {counted(event['bad_files'], 'file')}", style="yellow")
    if event["not_read"]:
        yield Text(f"not read: {unread_words(event['not_read'])}", style="yellow")
    if event.get("not_seen"):
        yield Text(f"not seen: {not_seen_words(event['not_seen'])}", style="yellow")
    workers = by_workers(event["workers"])
    memory = f"{format_size(event['projected'])} projected, {format_size(event['allowed'])} allowed"
    yield Text(f"{counted(left, 'task')} to do, {_input(event)} in all, {workers}; memory: {memory}")


def _input(event: Event) -> str:
    """Each row once, however many passes take it."""
    about = "about " if event["rows_are_estimated"] else ""
    return about + counted(event["input_rows"], event["unit"].removesuffix("s"))


def _pass(event: Event) -> Iterator[Text]:
    for note in event.get("notes", ()):
        yield Text(note)


def _retry(event: Event) -> Iterator[Text]:
    batch = format_size(event["batch_bytes"])
    yield Text(f"trying again: {event['slice']}, because {event['reason']}; with batches of {batch}", style="yellow")


def _lost_file(event: Event) -> Iterator[Text]:
    yield Text(f"set aside: {event['file']}: {event['title']}, {event['reason']}", style="yellow")


def _stall(event: Event) -> Iterator[Text]:
    rows = format_count(event["rows"])
    yield Text(f"no row for {event['seconds']:.0f} s: {event['slice']}, after {rows} rows", style="yellow")
    if event["stack"]:
        yield Text("it is here (innermost first):\n" + working_stack(event["stack"]), style="dim")
