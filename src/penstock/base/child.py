"""Child: a fresh Python in a process of its own, which never outlives the one that started it.

It leads a process group, so that whatever it starts ends with it. Of the descriptors that it inherits, two are for this
module: the lifeline, a pipe whose other end only the parent holds, and a file for its stacks.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess

_STACK_SECONDS = 3.0  # for a busy machine to run the signal handler

# In the parent.


def python_path(ours_first: bool = True) -> dict[str, str]:
    """Variable with which a child finds this penstock: before what the user has set there, or after it."""
    ours = os.path.dirname(os.path.dirname(sys.modules["penstock"].__file__ or ""))
    path = [ours, os.environ.get("PYTHONPATH")]
    return {"PYTHONPATH": os.pathsep.join(filter(None, path if ours_first else reversed(path)))}


class Child:
    """A running child. `command` follows `python`; its code calls `live_as_child` first, which returns `arguments`."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[object] = (),
        inherits: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        **streams: int | IO[bytes] | None,
    ) -> None:
        import subprocess  # here, because a child starts quicker without them
        import tempfile

        with ExitStack() as stack:
            reading, lifeline = os.pipe()
            stack.callback(os.close, lifeline)
            self._stacks: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            ours = (reading, self._stacks.fileno())
            try:
                self.process: subprocess.Popen[bytes] = subprocess.Popen(
                    # -P: a queue.py in the working directory must not stand in for Python's own.
                    [sys.executable, "-P", *command, *map(str, (*ours, *arguments))],
                    env={**os.environ, **(environment or {})},
                    pass_fds=(*ours, *inherits),
                    start_new_session=True,
                    **{"stdin": subprocess.DEVNULL, **streams},  # type: ignore[call-overload]
                )
            finally:
                os.close(reading)
            self._open = stack.pop_all()
        for stream in filter(None, (self.process.stdin, self.process.stdout, self.process.stderr)):
            self._open.enter_context(stream)
        self.pid = self.process.pid
        self.last_words = ""

    def stack(self) -> str:
        """Return the Python stacks of all its threads, even in the middle of C code.

        Only after it has called `live_as_child`: before, the signal would kill it.
        """
        before = self._stacks.seek(0, 2)
        self.process.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_SECONDS
        while self._stacks.seek(0, 2) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)  # the rest of the threads
        return self._written(before)

    def end(self) -> int:
        """Kill it, with whatever it has started. Returns its exit code; one that was dead already keeps its own."""
        if not self._stacks.closed:  # else its number may be another's by now
            with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a group that is all dead
                os.killpg(self.pid, signal.SIGKILL)
            self.process.wait()
            self.last_words = self._written(0)
            self._open.close()
        return self.process.returncode

    def _written(self, start: int) -> str:
        """Text in the file for its stacks, from `start` on."""
        self._stacks.seek(start)
        return self._stacks.read().decode(errors="replace").strip()


def how_it_ended(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


# In the child.


def live_as_child() -> tuple[int, list[str]]:
    """From now on end when the parent does, and write stacks when it asks. Returns (file for stacks, arguments)."""
    lifeline, stacks = map(int, sys.argv[1:3])
    for number in (lifeline, stacks):
        os.set_inheritable(number, False)
    threading.Thread(target=_die_with_the_parent, args=(lifeline,), daemon=True).start()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)
    return stacks, sys.argv[3:]


def _die_with_the_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the parent's end is closed, however it ended
    os.killpg(0, signal.SIGKILL)
