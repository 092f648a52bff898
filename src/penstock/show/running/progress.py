"""Progress: the events of a run -> a bar on a terminal, or a plain line now and then where there is none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status
from rich.text import Text

from penstock.base.events import Event
from penstock.base.sizes import counted, format_count, format_seconds, format_size
from penstock.show.failure import working_stack
from penstock.show.tables import by_workers, not_seen_words, unread_words

PLANNING = "planning: listing the input, measuring its first rows"  # shown while a Plan is being made
FIRST_LINE_SECONDS = 1.0
LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.1  # small tasks end by the hundred per second, and drawing costs a millisecond or two
_WINDOW_SECONDS = 15.0  # speed is that of the last so many seconds: a run on a warming or sharing machine changes
_WIDE = 120  # columns from which the total finds room beside the bar


class Display:
    """`with Display(console) as display: run(plan, observe=display.observe)`."""

    def __init__(self, console: Console) -> None:
        self.tracker = Tracker()
        self._view: Bar | Lines | None = Bar(console) if console.is_interactive else Lines(console)

    def __enter__(self) -> Display:
        self._draw(lambda view: view.planning())
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(lambda view: view.close())

    def observe(self, event: Event) -> None:
        self.tracker.take(event)
        self._draw(lambda view: self._tell(view, event))

    def _tell(self, view: Bar | Lines, event: Event) -> None:
        for text in notices(event):
            view.say(text)
        view.update(self.tracker)

    def _draw(self, draw: Callable[[Bar | Lines], None]) -> None:
        """A screen that went away (a closed terminal, `| head`) must not end the run it looks at."""
        try:
            if self._view:
                draw(self._view)
        except OSError:
            self._view = None


class Bar:
    """For a terminal. Drawn when an event comes, not by a thread, so that a debugger can have the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            TextColumn("{task.fields[words]}", markup=False),
            console=console,
            auto_refresh=False,
            expand=True,
            transient=True,
        )
        self._bar = self._progress.add_task("", total=1.0, words="")
        self._drawn = 0.0

    def planning(self) -> None:
        self._status = self._console.status(Text(PLANNING))
        self._status.start()

    def say(self, text: Text) -> None:
        self._end_planning()
        self._console.print(text, soft_wrap=True)

    def update(self, tracker: Tracker) -> None:
        self._end_planning()
        if tracker.now - self._drawn >= _DRAW_SECONDS or tracker.ended:
            self._drawn = tracker.now
            words = "  ".join([f"{tracker.share:4.0%}", *progress_words(tracker, self._console.width >= _WIDE)])
            self._progress.update(
                self._bar, completed=tracker.share, description=tracker.kind, words=words, refresh=True
            )

    def _end_planning(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None
            self._progress.start()

    def close(self) -> None:
        if self._status:
            self._status.stop()
        self._progress.stop()


class Lines:
    """For a log: what happens, and how far it is after a second and then every ten."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._next_line = FIRST_LINE_SECONDS

    def planning(self) -> None:
        self.say(Text(PLANNING))

    def say(self, text: Text) -> None:
        self._console.print(Text("penstock: ").append_text(text), soft_wrap=True)

    def update(self, tracker: Tracker) -> None:
        elapsed = tracker.now - tracker.started
        if tracker.started and elapsed >= self._next_line and not tracker.ended:
            self._next_line = elapsed + LINE_SECONDS
            share = f"{tracker.kind} {tracker.share:.0%}".strip()
            self.say(Text(f"{format_seconds(elapsed)}: " + ", ".join([share, *progress_words(tracker)])))

    def close(self) -> None:
        return None


def progress_words(tracker: Tracker, with_total: bool = True) -> list[str]:
    """Rows, speed, memory and time left; what is not known yet is left out."""
    about = "about " if tracker.is_estimated else ""
    total = f" of {about}{format_count(max(tracker.total, tracker.rows))}" if with_total else ""
    words = [f"{format_count(tracker.rows)}{total} rows"]
    if speed := tracker.rows_per_second:
        words.append(f"{format_count(float(f'{speed:.3g}'))} rows/s")
    if tracker.memory:
        words.append(f"memory {format_size(tracker.memory)} of {format_size(tracker.allowed)}")
    left = tracker.seconds_left
    if tracker.total and tracker.rows >= tracker.total:
        words.append("finishing")
    elif left is not None:
        words.append(f"{max(1, round(left))} s left" if left < 100 else f"{format_seconds(left)} left")
    return words


@dataclass
class Tracker:
    """Feed it every event with `take`; the rest only reads. Time comes from the events themselves."""

    kind: str = ""
    tasks: int = 0
    tasks_done: int = 0
    total: int = 0  # rows of all passes: exact where footers tell, an estimate for text
    is_estimated: bool = False  # whether `total` is
    kept: int = 0  # rows of tasks that an earlier run did
    finished: int = 0  # rows of tasks that this run did
    seen: int = 0  # the same, with the rows of tasks at work
    memory: int = 0
    allowed: int = 0
    started: float = 0.0
    now: float = 0.0
    ended: bool = False
    already_done: bool = False
    _recent: deque[tuple[float, int]] = field(default_factory=deque)

    def take(self, event: Event) -> None:
        self.now = event["time"]
        name = event["event"]
        if name == "start":
            self._start(event)
        elif name == "pass":
            self.kind = event["kind"]
        elif name == "sample":
            self.memory = event["memory"]
            self.seen = event["rows"]
        elif name == "task":
            self.tasks_done += 1
            self.finished += event["rows"]
        elif name in ("done", "already_done"):
            self.ended, self.already_done = True, name == "already_done"
        self._recent.append((self.now, self._new_rows))
        while self.now - self._recent[0][0] > _WINDOW_SECONDS:
            self._recent.popleft()

    def _start(self, event: Event) -> None:
        self.started = event["time"]
        self.allowed, self.total = event["allowed"], event["rows"]
        self.is_estimated = event["rows_are_estimated"]
        self.tasks, self.tasks_done = event["tasks"], event["tasks_kept"]
        # The ledger's rows are not in the event; slices are about equal, so their share is near enough for a bar.
        self.kept = round(self.total * self.tasks_done / max(1, self.tasks))

    @property
    def _new_rows(self) -> int:
        return max(self.finished, self.seen)  # inside the driver (`workers: 0`) samples see no rows

    @property
    def rows(self) -> int:
        return self.kept + self._new_rows

    @property
    def share(self) -> float:
        """0 to 1, and 1 only when the run says so: an estimated total may be too small."""
        if self.ended:
            return 1.0
        return min(self.rows / self.total, 0.99) if self.total else 0.0

    @property
    def rows_per_second(self) -> float:
        seconds = self.now - self._recent[0][0] if self._recent else 0.0
        return max(0, self._new_rows - self._recent[0][1]) / seconds if seconds > 0 else 0.0

    @property
    def seconds_left(self) -> float | None:
        speed = self.rows_per_second
        return max(0, self.total - self.rows) / speed if speed > 0 else None


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
