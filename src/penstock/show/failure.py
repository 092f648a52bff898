"""Failure: an error -> one screen on stderr, or one JSON document on stdout; and the exit code."""

import re
import textwrap
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import takewhile

from rich.console import Console
from rich.text import Text

from penstock.base.errors import ConfigError, Interrupted, PenstockError, PlanError, TaskError
from penstock.show.console import as_json_text, make_console

_THREAD = re.compile(r"(?=^(?:Current thread|Thread) 0x)", re.MULTILINE)
# Threads of ours that only wait: for the driver to end, and between two looks at the memory.
_WATCHING = re.compile(r"penstock/(?:base|prepare)/.*line \d+ in (?:_die_with_the_parent|watch|_look)$", re.MULTILINE)
_ENGINE = re.compile(r'File ".*penstock/prepare/(?:passes|engines)/.*\.py"')  # from here outwards it is our own affair


def tell(error: BaseException, as_json: bool, debug: bool) -> int:
    known = known_error(error)
    with suppress(OSError):  # nobody listens any more; the exit code still tells
        _tell(known, error, as_json, debug)
    return known.exit_code


def _tell(known: PenstockError, error: BaseException, as_json: bool, debug: bool) -> None:
    if as_json:
        print(as_json_text(known.as_dict()), flush=True)
    console = make_console(stderr=True)
    if debug:
        console.print(Text("".join(traceback.format_exception(error))), soft_wrap=True)
    if not as_json:
        for line in message(known, debug):
            _print(console, line)


def known_error(error: BaseException) -> PenstockError:
    """The error as one of ours: what we did not foresee is a defect, and is called one."""
    if isinstance(error, PenstockError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return Interrupted("stopped", next_step="run the same command again: whatever was finished is kept")
    if isinstance(error, MemoryError):
        what = str(error).partition("\n")[0]
        return PlanError(
            "this process ran out of memory" + f": {what}" * bool(what),
            next_step="give it more: a limit of this shell or job (`ulimit -v`) may be below `memory:`",
        )
    return PenstockError(
        f"{type(error).__name__}: {str(error).partition(chr(10))[0]}",
        next_step="run the same command with --debug for the traceback, and report it with that",
    )


def message(error: PenstockError, debug: bool) -> Iterator[Text]:
    name = "Defect of penstock" if type(error) is PenstockError else error.name
    color = "yellow" if isinstance(error, Interrupted) else "bold red"
    yield Text.assemble((f"{name}:", color), " ", error.what)
    if error.where:
        yield Text.assemble(("  where:", "bold"), " ", error.where)
    if error.next_step:
        yield Text.assemble(("  try:", "bold green"), " ", error.next_step)
    for note in error.notes:
        yield from _note(note, error, debug)


def _note(note: str, error: PenstockError, debug: bool) -> Iterator[Text]:
    """A line is shown; a traceback only on demand; the stack of a task that hung is the message itself."""
    if "\n" not in note:
        yield Text.assemble(("  note:", "bold"), " ", note)
    elif debug:
        yield Text(note)
    elif isinstance(error, TaskError) and not note.startswith("Traceback"):
        yield Text(working_stack(note))
    elif isinstance(error, ConfigError) and not note.startswith("Traceback"):
        yield Text(f"\n{note.rstrip()}")


def working_stack(dump: str) -> str:
    """Frames of a hung worker's dump that do the work: innermost first, down to penstock's own call."""
    threads = [part.strip() for part in _THREAD.split(dump) if part.strip() and not _WATCHING.search(part)]
    return "\n".join(line for thread in threads for line in _frames(thread.splitlines()))


def _frames(thread: list[str]) -> list[str]:
    frames = thread[1:] if _THREAD.match(thread[0]) else thread
    inner = list(takewhile(lambda line: not _ENGINE.search(line), frames))
    return inner or frames


def _print(console: Console, text: Text) -> None:
    """Wrapped with an indent where a person reads; in a log a message stays on its line."""
    if not console.is_terminal or "\n" in text.plain:
        console.print(text, soft_wrap=True)
        return
    wrapped = textwrap.fill(
        text.plain, console.width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    label, styled = text.spans[0], Text(wrapped)
    styled.stylize(label.style, label.start, label.end)
    console.print(styled, soft_wrap=True)
