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
from abc import ABC, abstractmethod
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


class Descendant(ABC):
    """A running process with a lifeline and a file for its stacks. `opened` has our ends of both."""

    def __init__(self, pid: int, stacks: IO[bytes], opened: ExitStack) -> None:
        self.pid, self._stacks, self._open = pid, stacks, opened
        self._code = 0
        self.last_words = ""

    @abstractmethod
    def send_signal(self, number: int) -> None: ...

    @abstractmethod
    def wait(self, seconds: float) -> int | None:
        """Its exit code when it has ended; None if it has not after so many seconds."""
        ...

    @abstractmethod
    def _killed(self) -> int:
        """Kill its group, and return its exit code: its own, if it was dead already."""
        ...

    def stack(self) -> str:
        """Return the Python stacks of all its threads, even in the middle of C code.

        Only after it has called `live`: before, the signal would kill it.
        """
        before = self._stacks.seek(0, 2)
        self.send_signal(signal.SIGUSR1)
        deadline = time.monotonic() + _STACK_SECONDS
        while self._stacks.seek(0, 2) == before and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.1)  # the rest of the threads
        return self._written(before)

    def end(self) -> int:
        """Kill it, with whatever it has started. Returns its exit code; one that was dead already keeps its own."""
        if not self._stacks.closed:  # else its number may be another's by now
            self._code = self._killed()
            self.last_words = self._written(0)
            self._open.close()
        return self._code

    def _written(self, start: int) -> str:
        """Text in the file for its stacks, from `start` on."""
        self._stacks.seek(start)
        return self._stacks.read().decode(errors="replace").strip()


class Child(Descendant):
    """A child of this process. `command` follows `python`; its code first calls `live_as_child`, which returns
    `arguments`."""

    def __init__(
        self,
        command: Sequence[str],
        arguments: Sequence[object] = (),
        inherits: Sequence[int] = (),
        environment: Mapping[str, str] | None = None,
        **streams: int | IO[bytes] | None,
    ) -> None:
        import subprocess  # here, because a child starts quicker without it

        with ExitStack() as stack:
            reading, stacks = lifeline_and_stacks(stack)
            ours = (reading, stacks.fileno())
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
            for stream in filter(None, (self.process.stdin, self.process.stdout, self.process.stderr)):
                stack.enter_context(stream)
            super().__init__(self.process.pid, stacks, stack.pop_all())

    def send_signal(self, number: int) -> None:
        self.process.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        import subprocess

        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=seconds)
        return self.process.returncode

    def _killed(self) -> int:
        kill_group(self.pid)
        return self.process.wait()


def lifeline_and_stacks(stack: ExitStack) -> tuple[int, IO[bytes]]:
    """A lifeline and a file for stacks. The child gets both, and the caller closes the lifeline's reading end then; the
    rest is closed with `stack`."""
    import tempfile  # here, because a child starts quicker without it

    reading, lifeline = os.pipe()
    stack.callback(os.close, lifeline)
    try:
        return reading, stack.enter_context(tempfile.TemporaryFile())
    except BaseException:
        os.close(reading)
        raise


def kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # PermissionError: macOS, of a group that is all dead
        os.killpg(pid, signal.SIGKILL)


def how_it_ended(code: int) -> str:
    return f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"


# In the child.


def live_as_child() -> tuple[int, list[str]]:
    """From now on end when the parent does, and write stacks when it asks. Returns (file for stacks, arguments)."""
    lifeline, stacks = map(int, sys.argv[1:3])
    live(lifeline, stacks)
    return stacks, sys.argv[3:]


def live(lifeline: int, stacks: int) -> None:
    for number in (lifeline, stacks):
        os.set_inheritable(number, False)
    threading.Thread(target=_die_with_the_parent, args=(lifeline,), daemon=True).start()
    faulthandler.register(signal.SIGUSR1, file=stacks, all_threads=True)


def keep_from_others(descriptors: Sequence[int]) -> None:
    """Let no process that this one starts have them: it may outlive this one, and would hold the other end open."""
    for number in descriptors:
        os.set_inheritable(number, False)
    os.register_at_fork(after_in_child=lambda: _let_go(descriptors))


def _let_go(descriptors: Sequence[int]) -> None:
    """The numbers stay taken: objects of the parent would close files of others."""
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in descriptors:
        os.dup2(nothing, number, inheritable=False)
    os.close(nothing)


def _die_with_the_parent(lifeline: int) -> None:
    os.read(lifeline, 1)  # returns when the parent's end is closed, however it ended
    os.killpg(0, signal.SIGKILL)
