"""Progress: the events of a run -> a bar on a terminal, or a plain line now and then where there is none.

Fed by events alone (see base/events.py), and written to stderr: stdout belongs to the result.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.status import Status
from rich.text import Text

from penstock.base.events import Event
from penstock.base.sizes import format_count, format_seconds, format_size
from penstock.show.running.notices import notices
from penstock.show.running.tracker import Tracker

PLANNING = "planning: listing the input, measuring its first rows"  # shown while a Plan is being made
FIRST_LINE_SECONDS = 1.0
LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.1  # small tasks end by the hundred per second, and drawing costs a millisecond or two
_WIDE = 120  # columns from which the total finds room beside the bar


class Display:
    """`with Display(console) as display: run(plan, observe=display.observe)`."""

    def __init__(self, console: Console) -> None:
        self.tracker = Tracker()
        self._view: Bar | Lines | None = Bar(console) if console.is_interactive else Lines(console)

    def __enter__(self) -> Display:
        self._draw(lambda view: view.planning())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self._progress.update(
                self._bar,
                completed=tracker.share,
                description=tracker.kind,
                words=self._words(tracker),
                refresh=True,
            )

    def _end_planning(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None
            self._progress.start()

    def _words(self, tracker: Tracker) -> str:
        return "  ".join([f"{tracker.share:4.0%}", *progress_words(tracker, self._console.width >= _WIDE)])

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
            self.say(Text(self._line(tracker, elapsed)))

    def _line(self, tracker: Tracker, elapsed: float) -> str:
        share = f"{tracker.kind} {tracker.share:.0%}".strip()
        return f"{format_seconds(elapsed)}: " + ", ".join([share, *progress_words(tracker)])

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
