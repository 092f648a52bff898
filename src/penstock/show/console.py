"""Console: facts -> one JSON document or tables on stdout; everything else goes to stderr."""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext, redirect_stdout
from typing import Any, NoReturn

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from penstock.base.errors import printable_lines

Facts = dict[str, Any]
Tables = Callable[[Facts], Iterable[RenderableType]]
_PLAIN_WIDTH = 120  # in a file or a pipe nobody has a width; rich would take 80 and fold the paths


class _Console(Console):
    """A console that obeys nothing that comes from data: names of files and columns may hold escape codes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            is_safe = segment.control or segment.text.replace("\n", "").isprintable()
            yield segment if is_safe else Segment(printable_lines(segment.text), segment.style)

    def on_broken_pipe(self) -> NoReturn:
        raise BrokenPipeError  # rich would exit with 1, which says that penstock has a defect


def make_console(stderr: bool = False) -> Console:
    """A console that takes text as it is: `kind in [a, b]` is a condition here, not markup."""
    stream = sys.stderr if stderr else sys.stdout
    is_screen = stream is not None and stream.isatty()
    width = None if stream is None or is_screen or "COLUMNS" in os.environ else _PLAIN_WIDTH
    # Not rich's own way with notebooks, which needs ipywidgets. And a screen is drawn only on a real terminal:
    # Jupyter kernels and some CI set FORCE_COLOR, for which rich would draw into a log, frame after frame.
    return _Console(
        stderr=stderr,
        width=width,
        markup=False,
        emoji=False,
        highlight=False,
        force_jupyter=False,
        force_interactive=None if is_screen else False,
    )


@contextmanager
def stdout_kept_clean() -> Iterator[None]:
    """Send to stderr what a user's functions print, from Python or from C: stdout is for the result alone."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


@contextmanager
def waiting(text: str) -> Iterator[None]:
    """A sign of life on a terminal while something takes its time; nothing elsewhere."""
    console = make_console(stderr=True)
    with console.status(Text(text)) if console.is_interactive else nullcontext():
        yield


def as_json_text(facts: Facts) -> str:
    """JSON that stdout can write: where that is not UTF-8, other characters than ASCII are escaped."""
    is_utf8 = (getattr(sys.stdout, "encoding", None) or "utf-8").lower().replace("-", "") == "utf8"
    return json.dumps(facts, indent=1, ensure_ascii=not is_utf8, default=str)


def show(facts: Facts, tables: Tables, as_json: bool) -> None:
    if as_json:
        put(as_json_text(facts))
        return
    console = make_console()
    with console.capture() as drawn:
        for part in tables(facts):
            # In a file a sentence stays on its line, where it can be searched for; what is to be copied always does.
            as_it_is = isinstance(part, Text) and (bool(part.no_wrap) or not console.is_terminal)
            console.print(part, soft_wrap=as_it_is)
    # rich fills lines up with blanks, which in a file or a diff are noise.
    put("\n".join(line.rstrip() for line in drawn.get().splitlines()))


def put(text: str) -> None:
    """Print on stdout. Where its reader went away, as `head` does, the command ends there: `cli.main` sees why."""
    try:
        print(text, flush=True)
    except BrokenPipeError as error:
        raise SystemExit from error
