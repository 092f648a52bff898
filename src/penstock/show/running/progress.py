"""Progress: the events of a run -> a live screen on a terminal, one changing line in a notebook, or lines in a log."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.status import Status
from rich.text import Text

from penstock.base.events import Event
from penstock.base.sizes import format_seconds
from penstock.show.running.notices import notices
from penstock.show.running.screen import Screen
from penstock.show.running.tracker import Tracker
from penstock.show.running.words import headline, memory_words, set_aside_words, speed_words, work_words

PLANNING = "planning: listing the input, measuring its first rows"  # shown while a Plan is being made
FIRST_LINE_SECONDS = 1.0
LINE_SECONDS = 10.0
_DRAW_SECONDS = 0.1  # small tasks end by the hundred per second, and drawing costs a millisecond or two
_CELL_SECONDS = 0.5  # each change is a message to the browser
_KEPT_NOTICES = 5  # said again when a terminal was resized


class Display:
    """`with Display(console) as display: run(plan, observe=display.observe)`."""

    def __init__(self, console: Console, planning: bool = True, notebook: bool = False) -> None:
        self.tracker = Tracker()
        self._plans = planning
        view = Cell if notebook else Drawn if console.is_interactive else Lines
        self._view: Drawn | Lines | None = view(console)

    def __enter__(self) -> Display:
        if self._plans:
            self._draw(lambda view: view.planning())
        return self

    def __exit__(self, *_: object) -> None:
        self._draw(lambda view: view.close())

    def observe(self, event: Event) -> None:
        self.tracker.take(event)
        self._draw(lambda view: self._tell(view, event))

    def _tell(self, view: Drawn | Lines, event: Event) -> None:
        for text in notices(event):
            view.say(text)
        view.update(self.tracker)

    def _draw(self, draw: Callable[[Drawn | Lines], None]) -> None:
        """Draw, and ignore a closed terminal or pipe: it must not end the run."""
        try:
            if self._view:
                draw(self._view)
        except OSError:
            self._view = None


class Drawn:
    """For a terminal. Drawn when an event comes, not by a thread, so that a debugger can have the terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._live: Live | None = None
        self._drawn = 0.0
        self._width = console.width
        self._said: deque[Text] = deque(maxlen=_KEPT_NOTICES)

    def planning(self) -> None:
        self._status = self._console.status(Text(PLANNING))
        self._status.start()

    def say(self, text: Text) -> None:
        self._end_planning()
        self._said.append(text)
        self._console.print(text, soft_wrap=True)

    def update(self, tracker: Tracker) -> None:
        self._end_planning()
        if not tracker.passes or (tracker.now - self._drawn < _DRAW_SECONDS and not tracker.ended):
            return
        self._drawn = tracker.now
        self._follow_resize()
        if self._live is None:
            self._live = Live(console=self._console, auto_refresh=False, transient=True, vertical_overflow="crop")
            self._live.start()
        self._live.update(Screen(tracker), refresh=True)

    def _follow_resize(self) -> None:
        """A terminal of another width has wrapped or cut the lines that are there: only a cleared one is clean."""
        if self._console.width == self._width:
            return
        self._width = self._console.width
        self._end_live()
        self._console.clear()
        for text in self._said:
            self._console.print(text, soft_wrap=True)

    def _end_planning(self) -> None:
        if self._status:
            self._status.stop()
            self._status = None

    def _end_live(self) -> None:
        if self._live:
            live, self._live = self._live, None
            live.stop()

    def close(self) -> None:
        self._end_planning()
        self._end_live()


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
        if tracker.started and tracker.elapsed >= self._next_line and not tracker.ended:
            self._next_line = tracker.elapsed + LINE_SECONDS
            self.say(Text(f"{format_seconds(tracker.elapsed)}: {progress_line(tracker)}"))

    def close(self) -> None:
        return None


class Cell(Lines):
    """For a notebook: notices, and one line that changes in place. A saved notebook keeps its last words."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._handle: Any = None
        self._drawn = 0.0

    def update(self, tracker: Tracker) -> None:
        if not tracker.passes or (tracker.now - self._drawn < _CELL_SECONDS and not tracker.ended):
            return
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        self._drawn = tracker.now
        line = {"text/plain": f"penstock: {format_seconds(tracker.elapsed)}: {progress_line(tracker)}"}
        if self._handle is None:
            self._handle = display(line, raw=True, display_id=True)
        else:
            self._handle.update(line, raw=True)


def progress_line(tracker: Tracker) -> str:
    """The words of the screen in one line; what is not known yet is left out."""
    read = f"{tracker.kind}: {headline(tracker)}" if tracker.kind else headline(tracker)
    words = [read, work_words(tracker), *speed_words(tracker), memory_words(tracker), set_aside_words(tracker)]
    return ", ".join(filter(None, words))
