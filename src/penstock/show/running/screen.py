"""Screen: a Tracker -> the lines of the live screen, as many as fit. Everything that comes from data is escaped."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from penstock.base.errors import printable
from penstock.base.events import WorkerState
from penstock.base.sizes import format_count, format_seconds
from penstock.show.running.tracker import TrackedPass, Tracker
from penstock.show.running.words import headline, memory_words, pass_words, set_aside_words, work_words

_STATES = {"done": "green", "now": "bold", "waiting": "dim"}
_TIGHT = 0.9  # share of the allowed memory from which the bar warns
_LEAST_WORKERS = 1  # lines for workers on however small a terminal


class Screen:
    """All of a run at one moment. Each line is cut at the width; lines of workers are cut at the height."""

    def __init__(self, tracker: Tracker) -> None:
        self._tracker = tracker

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        above, below = [*self._top(), *self._passes()], [*self._bottom()]
        room = max(_LEAST_WORKERS, options.size.height - len(above) - len(below) - 1)
        yield from (*above, *self._workers(room), *below)

    def _top(self) -> Iterator[RenderableType]:
        tracker = self._tracker
        yield _line(headline(tracker), "bold")
        yield _bar("work", tracker.share, work_words(tracker), "green")
        if tracker.memory:
            share = tracker.memory / tracker.allowed if tracker.allowed else 0.0
            words = memory_words(tracker).removeprefix("memory ")
            yield _bar("memory", share, words, "red" if share >= _TIGHT else "cyan")

    def _passes(self) -> Iterator[Text]:
        width = max((len(each.planned["kind"]) for each in self._tracker.passes.values()), default=0)
        yield from (self._pass_line(each, width) for each in self._tracker.passes.values())

    def _pass_line(self, each: TrackedPass, width: int) -> Text:
        words = ", ".join(pass_words(each, self._tracker))
        line = f"{each.state:<7}  pass {each.planned['number']} {each.planned['kind']:<{width}}  {words}"
        return _line(line, _STATES[each.state])

    def _workers(self, room: int) -> Iterator[Text]:
        workers = self._tracker.workers
        shown = workers if len(workers) <= room else workers[: max(0, room - 1)]
        yield from map(_worker_line, shown)
        if len(workers) > len(shown):
            more = len(workers) - len(shown)
            yield _line(f"and {more:,} more" if shown else f"{more:,} workers at work", "dim")

    def _bottom(self) -> Iterator[Text]:
        if words := set_aside_words(self._tracker):
            yield _line(words, "yellow")


def _worker_line(worker: WorkerState) -> Text:
    place = worker["file"] or worker["slice"]
    progress = f"{format_count(worker['rows'])} rows, {format_seconds(worker['seconds'])}"
    return _line(f"worker {worker['worker']}  {worker['task']}  {progress}  {place}", "dim")


def _line(words: str, style: str = "") -> Text:
    return Text(printable(words), style=style, no_wrap=True, overflow="ellipsis")


def _bar(name: str, share: float, words: str, style: str) -> Table:
    """One line: a name, a bar as wide as there is room for, and what it says in words."""
    grid = Table.grid(padding=(0, 1), expand=True)
    grid.add_column(width=6, no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True, overflow="ellipsis")
    bar = ProgressBar(total=1.0, completed=min(1.0, share), complete_style=style, finished_style=style)
    grid.add_row(_line(name), bar, _line(words))
    return grid
