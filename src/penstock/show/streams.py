"""Streams: stdin, stdout, stderr and SIGTERM, as a command of any shell or scheduler needs them. For cli.py."""

import io
import os
import select
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TextIO


def make_streams_ready() -> None:
    """Open closed streams (`>&-`) as /dev/null, and escape characters that the encoding lacks."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it takes the lowest number that is free: this one
    sys.stdout = sys.stdout or open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = sys.stderr or open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def is_unread(error: BaseException) -> bool:
    """Whether a command ends because its reader closed the pipe, as `head` does. rich raises SystemExit then."""
    gone = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(gone, BrokenPipeError) and (gone is not error or any(map(drop_unread, (sys.stdout, sys.stderr))))


def drop_unread(stream: TextIO) -> bool:
    """Whether the reader of the stream is gone. The rest is dropped; otherwise Python would exit with 120."""
    try:
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return True
    return _has_no_reader(stream)  # what was too large for Python's buffer is dropped already


def _has_no_reader(stream: TextIO) -> bool:
    poll = select.poll()
    with suppress(io.UnsupportedOperation):  # it is no file: a test's, or a notebook's
        poll.register(stream.fileno(), 0)
    return any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0))  # HUP: macOS


@contextmanager
def sigterm_is_ctrl_c() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that a scheduler stops a run cleanly."""

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
