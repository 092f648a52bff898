"""Nursery: a process that has imported what its children need, and forks them when asked. A child starts in
milliseconds, and shares with it what was imported.

It has one thread, so that it may fork. It ends with its parent, because the socket between them closes; its children
end with it.
Where forking is not safe (macOS, whose libraries start threads of their own), each child is a fresh Python instead.
"""

from __future__ import annotations

import array
import ctypes
import importlib
import os
import signal
import socket
import struct
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import IO

from penstock.base.errors import TaskError
from penstock.base.memory import process_memory, resident_memory
from penstock.base.processes.child import (
    Child,
    Descendant,
    how_it_ended,
    keep_from_others,
    kill_group,
    lifeline_and_stacks,
    live,
    python_path,
)
from penstock.base.processes.imports import imported_for_good

_REQUEST, _ANSWER = struct.Struct("<cqd"), struct.Struct("<q")  # what, a child's number, seconds | a number
_FORK, _SIGNAL, _WAIT, _END = b"f", b"s", b"w", b"e"
_ALIVE = 1 << 20  # the answer for a child that has not ended: no exit code
_MOST_DESCRIPTORS = 64
_SECONDS = 120.0  # for a busy machine to import what children need
_LAST_SECONDS = 5.0  # for the process to end by itself
_SIGNAL_OF_PARENTS_DEATH = 1  # prctl's PR_SET_PDEATHSIG

# In the parent.


class Nursery:
    """`module` has a `main`, which a child calls with the numbers of the descriptors that it was given.

    The process is started when it is first needed, and another if it died.
    """

    def __init__(self, module: str, environment: Mapping[str, str], forks: bool = sys.platform == "linux") -> None:
        self._module, self._environment, self._forks = module, environment, forks
        self._line: _Line | None = None

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def begin(self) -> None:
        """Start the process, if there is none. It imports while the parent goes on."""
        self._line = self._line or _Line(self._module, self._environment, self._forks)

    def fork(self, gives: Sequence[int]) -> Forked:
        """A new child, which gets copies of these descriptors."""
        with ExitStack() as stack:
            reading, stacks = lifeline_and_stacks(stack)
            try:
                line, pid = self._forked((reading, stacks.fileno(), *gives))
            finally:
                os.close(reading)
            return Forked(line, pid, stacks, stack)

    def _forked(self, descriptors: Sequence[int]) -> tuple[_Line, int]:
        for _ in range(2):  # one that the kernel killed is followed by another
            self.begin()
            assert self._line
            with suppress(OSError):
                return self._line, self._line.ask(_FORK, descriptors=descriptors)
            death, self._line = self._line.close(), None
        raise TaskError(
            f"the process that starts workers ended by {death}",
            next_step="its own words, if it had any, are above; it only imports penstock, numpy and pyarrow, so look "
            "for a damaged installation or for too little memory",
        )

    def held_bytes(self) -> int:
        """Bytes that the process holds, with what its children share with it."""
        return resident_memory(self._line.child.pid).counted if self._line else 0

    def share_bytes(self) -> int:
        """Bytes that the process adds to the tree. Its children count their own shares of common memory."""
        return process_memory(self._line.child.pid).counted if self._line else 0

    def close(self) -> None:
        """End the process. Its children were ended before."""
        if self._line:
            self._line.close()
            self._line = None


class _Line:
    """One process, and our end of the socket: a request, an answer."""

    def __init__(self, module: str, environment: Mapping[str, str], forks: bool) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_SECONDS)
        with theirs:
            self.child = Child(
                ["-m", "penstock.base.processes.nursery"],
                [theirs.fileno(), module, "forks" if forks else "starts"],
                inherits=(theirs.fileno(),),
                environment={**environment, **python_path()},
                stdout=2,  # what a user's function prints must not mix with --json
            )

    def ask(self, what: bytes, pid: int = 0, seconds: float = 0.0, descriptors: Sequence[int] = ()) -> int:
        """The answer. An OSError says that the process is gone."""
        given = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
        try:
            self._socket.sendmsg([_REQUEST.pack(what, pid, seconds)], given)
            answer = self._socket.recv(_ANSWER.size, socket.MSG_WAITALL)
        except BaseException:
            self._socket.close()  # otherwise the next request would read this answer
            raise
        if len(answer) < _ANSWER.size:
            raise ConnectionError("the nursery has ended")
        return int(_ANSWER.unpack(answer)[0])

    def close(self) -> str:
        """End the process. Returns how it ended."""
        self._socket.close()  # then it ends by itself, and the time of its children is counted
        self.child.wait(_LAST_SECONDS)
        return how_it_ended(self.child.end())


class Forked(Descendant):
    """A child of the nursery. Its process id is not used again before `end`, because the child is reaped only there."""

    def __init__(self, line: _Line, pid: int, stacks: IO[bytes], opened: ExitStack) -> None:
        self._line = line
        super().__init__(pid, stacks, opened.pop_all())

    def send_signal(self, number: int) -> None:
        with suppress(OSError):
            self._line.ask(_SIGNAL, self.pid, number)

    def wait(self, seconds: float) -> int | None:
        with suppress(OSError):
            return None if (code := self._line.ask(_WAIT, self.pid, seconds)) == _ALIVE else code
        return None

    def _killed(self) -> int:
        with suppress(OSError):
            return self._line.ask(_END, self.pid)
        return -signal.SIGKILL  # with the nursery


# In the nursery.


def main() -> None:
    lifeline, stacks, number, module, how = sys.argv[1:]
    for descriptor in (lifeline, stacks):  # of a child of the usual kind
        os.close(int(descriptor))
    with imported_for_good():  # children would copy the pages of what they look through
        work: Callable[..., None] | None = importlib.import_module(module).main if how == "forks" else None
    with socket.socket(fileno=int(number)) as line:
        given = _serve(line, _fork if work else partial(_start, module))
    if not work or not given:
        os._exit(0)  # at once: there is nothing to flush, and the parent waits
    _live(work, given)


def _live(work: Callable[..., None], given: Sequence[int]) -> None:
    lifeline, stacks, *others = given
    live(lifeline, stacks)
    keep_from_others(others)
    work(*others)


def _serve(line: socket.socket, start: Callable[[Sequence[int]], int]) -> list[int]:
    """Answer until the parent is gone. Returns the descriptors of a child in that child, and none in the nursery."""
    while True:
        request, given = _received(line)
        if not request:
            return []
        what, pid, seconds = _REQUEST.unpack(request)
        if what == _FORK:
            if not (answer := start(given)):
                return given
            for descriptor in given:
                os.close(descriptor)
        elif what == _SIGNAL:
            os.kill(pid, int(seconds))
            answer = 0
        elif what == _WAIT:
            answer = _code_within(seconds, pid)
        else:
            answer = _killed(pid)
        with suppress(BrokenPipeError, ConnectionResetError):  # the parent was interrupted; its last requests are there
            line.sendall(_ANSWER.pack(answer))


def _received(line: socket.socket) -> tuple[bytes, list[int]]:
    """A request and its descriptors; b"" when the parent is gone."""
    try:
        request, given, *_ = socket.recv_fds(line, _REQUEST.size, _MOST_DESCRIPTORS)
    except ConnectionResetError:  # it did not read the last answer
        return b"", []
    return request, given


def _fork(given: Sequence[int]) -> int:  # noqa: ARG001
    """Process id of the child, which has inherited the descriptors; 0 in the child."""
    nursery = os.getpid()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads, which a library may have in C
        pid = os.fork()
    if not pid:
        os.setsid()
        _die_with(nursery)
        if "numpy.random" in sys.modules:  # Python's own generator is seeded anew by Python
            sys.modules["numpy.random"].seed()
    return pid


def _die_with(parent: int) -> None:
    ctypes.CDLL(None).prctl(_SIGNAL_OF_PARENTS_DEATH, signal.SIGKILL)
    if os.getppid() != parent:  # it was too late
        os._exit(1)


def _start(module: str, given: Sequence[int]) -> int:
    """Number of a fresh Python."""
    import subprocess

    code = (
        f"import {module} as work; from penstock.base.processes.nursery import _live; _live(work.main, {list(given)})"
    )
    return subprocess.Popen([sys.executable, "-P", "-c", code], pass_fds=given, start_new_session=True).pid


def _code_within(seconds: float, pid: int) -> int:
    """Exit code of a child, or _ALIVE. One that has ended is a zombie, and keeps its process id, until `_killed`."""
    deadline = time.monotonic() + seconds
    while True:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if found:
            return found.si_status if found.si_code == os.CLD_EXITED else -found.si_status
        if time.monotonic() >= deadline:
            return _ALIVE
        time.sleep(0.005)


def _killed(pid: int) -> int:
    """Kill a child and its group. Returns its exit code: its own, if it was dead already."""
    kill_group(pid)
    os.kill(pid, signal.SIGKILL)  # it may not lead its group yet; it is not reaped, so the number is its own
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    main()
