"""Members: `penstock work` as on several machines: each in a PID namespace of its own, where a process has a number
that another member has too. A member can be killed, stopped and continued with all its processes, as a machine can.

Run as a program, this is such a machine: it takes orders from stdin. It has imported what a member needs, so that one
starts in milliseconds.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Config
from penstock.base.errors import PenstockError
from penstock.base.faults import CRASH_VARIABLE
from penstock.show.running.joined import work
from tests.promises import workshop

LEASE = 1.0  # seconds: a dead member's tasks are done by others soon


class Machine:
    """One that is there from the beginning of a test to its end."""

    def __init__(self, stack: ExitStack) -> None:
        alone = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
        called = [*alone, sys.executable, "-m", "tests.promises.members"]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._process = stack.enter_context(subprocess.Popen(called, text=True, **pipes))
        stack.callback(self._process.kill)
        self._answers = threading.Lock()
        self.is_at_work = False

    def _ask(self, **order: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        with self._answers:
            print(json.dumps(order), file=self._process.stdin, flush=True)
            return json.loads(self._process.stdout.readline())

    def begin(self, output: Path, crash: str = "", **options: Any) -> None:
        """Join the run in that output."""
        assert not self.is_at_work
        self._ask(do="begin", output=str(output), crash=crash, options={"workers": 0, "lease": LEASE, **options})
        self.is_at_work = True

    def signal(self, number: int, whole: bool = True) -> None:
        """To all of its processes, or to the one that was begun."""
        self._ask(do="signal", number=number, whole=whole)

    def end(self) -> tuple[int, str]:
        """(exit code, the error in words), when it has ended."""
        code, said = self._ask(do="end")
        self.is_at_work = False
        return code, said

    def has_ended(self) -> bool:
        return bool(self._ask(do="look"))


@contextmanager
def machines(count: int) -> Iterator[list[Machine]]:
    if os.geteuid() or not shutil.which("unshare"):
        pytest.skip("a PID namespace of its own needs root, and unshare")
    with ExitStack() as stack:
        yield [Machine(stack) for _ in range(count)]


class Watcher:
    """`penstock run` with engine: workers, in a thread of this process."""

    def __init__(self, job: Config, redo: bool = False) -> None:
        self.job, self.error, self.output = job, None, Path(job.output_path)
        self.events: list[Any] = []
        self._error: BaseException | None = None
        before = self.token()
        self._thread = threading.Thread(target=self._run, args=(redo,), daemon=True)
        self._thread.start()
        workshop.wait_for(lambda: self.token() not in ("", before) or not self._thread.is_alive())

    def _run(self, redo: bool) -> None:
        try:
            penstock.run(self.job, observe=self.events.append, redo=redo, progress=False)
        except BaseException as error:
            self._error = error

    def token(self) -> str:
        file = self.output / ".penstock" / "plan.json"
        try:
            return str(json.loads(file.read_text())["token"])
        except (FileNotFoundError, ValueError):
            return ""

    def end(self, seconds: float = 120) -> None:
        self._thread.join(seconds)
        assert not self._thread.is_alive(), "the run has not ended"
        if self._error:
            raise self._error


def watched(job: Any, folder: Path, output: Path, **keys: Any) -> Config:
    """The job, for workers."""
    given = {**job, "output": str(output), "workers": "auto", "engine": {"workers": {"lease": LEASE}}, **keys}
    return Config(given, folder=str(folder))


# Inside.


def _serve() -> None:
    assert os.getpid() == 1, "a machine has processes of its own"
    orders = {"begin": _begin, "signal": _signal, "end": _end, "look": _look}
    state: dict[str, Any] = {}
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps(orders[order.pop("do")](state, **order)), file=sys.__stdout__, flush=True)


def _begin(state: dict[str, Any], output: str, crash: str, options: dict[str, Any]) -> None:
    state["said"], into = os.pipe()
    pid = os.fork()
    if pid:
        os.close(into)
        state.update(pid=pid, code=None)
        return
    os.environ.pop(CRASH_VARIABLE, None)
    if crash:
        os.environ[CRASH_VARIABLE] = crash
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    os.dup2(2, 1)
    code, words = 0, ""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        work(output, **options)
    except PenstockError as error:
        code, words = error.exit_code, str(error)
    except BaseException as error:
        code, words = 1, f"{type(error).__name__}: {error}"
    os.write(into, words.encode()[:60_000])
    os._exit(code)


def _interrupt(number: int, frame: Any) -> None:  # noqa: ARG001
    raise KeyboardInterrupt


def _signal(state: dict[str, Any], number: int, whole: bool) -> None:
    with suppress(ProcessLookupError):
        os.kill(-1 if whole else state["pid"], number)  # of this namespace; not to ourselves, who are its first


def _look(state: dict[str, Any]) -> bool:
    while state["code"] is None:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return False
        _note(state, pid, status)
    return True


def _end(state: dict[str, Any]) -> tuple[int, str]:
    while state["code"] is None:
        _note(state, *os.waitpid(-1, 0))
    with open(state["said"], errors="replace") as said:
        return state["code"], said.read()


def _note(state: dict[str, Any], pid: int, status: int) -> None:
    if pid == state["pid"]:
        state["code"] = os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    _serve()
