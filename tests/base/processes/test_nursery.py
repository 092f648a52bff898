"""Nursery: children that are there at once, that end with their parent, and that it signals, ends and waits for."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from penstock.base.errors import TaskError
from penstock.base.memory import private_memory, process_tree
from penstock.base.processes.child import python_path
from penstock.base.processes.nursery import _REQUEST, _WAIT, Forked, Nursery
from tests.base.processes.test_child import is_running, wait_for

_MODULE = """
import os, random, signal, socket, subprocess, sys, time
import numpy.random

LARGE = bytearray(os.urandom(1 << 20)) * 30  # what children share

def main(number, *held):
    line = socket.socket(fileno=number)
    while word := line.recv(100).decode():
        line.sendall(str(eval(word)).encode())

def hangs():
    os.write(2, b"")
    time.sleep(600)
"""


class Talk:
    """A child that answers what it is asked."""

    def __init__(self, nursery: Nursery, *holds: int) -> None:
        self.line, theirs = socket.socketpair()
        with theirs:
            self.child: Forked = nursery.fork([theirs.fileno(), *holds])

    def ask(self, code: str) -> str:
        self.line.sendall(code.encode())
        return self.line.recv(1000).decode()

    def end(self) -> int:
        self.line.close()
        return self.child.end()


@pytest.fixture(params=["forks", "starts"])
def nursery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Nursery]:
    (tmp_path / "raised_there.py").write_text(_MODULE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Nursery("raised_there", {"SET_FOR": "children"}, forks=request.param == "forks") as nursery:
        yield nursery


def test_a_child_has_the_environment_a_group_of_its_own_and_the_descriptors_that_it_was_given(nursery, tmp_path):
    with (tmp_path / "held").open("w") as held:
        talk = Talk(nursery, held.fileno())
    assert talk.ask("os.environ['SET_FOR']") == "children"
    assert talk.ask("os.getpgrp() == os.getpid() == os.getsid(0)") == "True"
    assert talk.ask("os.fstat(held[0]).st_ino") == str((tmp_path / "held").stat().st_ino)
    assert talk.ask("os.getpid()") == str(talk.child.pid)
    talk.end()


def test_a_child_that_ends_by_itself_keeps_its_exit_code(nursery):
    talk = Talk(nursery)
    assert talk.child.wait(0.01) is None
    talk.line.sendall(b"sys.exit(3)")
    assert talk.child.wait(60) == 3
    assert talk.child.wait(0) == 3
    assert talk.end() == 3
    assert talk.end() == 3


def test_a_child_that_is_ended_takes_with_it_what_it_has_started(nursery):
    talk = Talk(nursery)
    started = int(talk.ask("subprocess.Popen(['sleep', '600']).pid"))
    assert talk.end() == -signal.SIGKILL
    wait_for(lambda: not is_running(started))


def _can_lock(path: Path) -> bool:
    with path.open("w") as file, suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


@pytest.mark.parametrize(
    "start", ["os.fork() or time.sleep(600)", "subprocess.Popen(['sleep', '600'], close_fds=False).pid"]
)
def test_the_end_of_a_child_is_seen_while_what_it_has_started_goes_on(nursery, tmp_path, start):
    with (tmp_path / "held").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        talk = Talk(nursery, held.fileno())
    started = int(talk.ask(start))
    os.kill(talk.child.pid, signal.SIGKILL)
    talk.line.settimeout(20)
    assert talk.line.recv(1) == b""
    wait_for(lambda: _can_lock(tmp_path / "held"))  # nor is a lock held that it had
    assert is_running(started)
    talk.end()
    wait_for(lambda: not is_running(started))


def test_a_parent_that_is_interrupted_in_a_request_still_has_children_ended_in_silence(nursery, capfd):
    talk = Talk(nursery)
    started = int(talk.ask("subprocess.Popen(['sleep', '600']).pid"))
    assert nursery._line
    nursery._line._socket.sendall(_REQUEST.pack(_WAIT, talk.child.pid, 0.5))  # nobody reads the answer
    talk.line.close()
    talk.child.end()
    nursery.close()
    wait_for(lambda: not is_running(started))
    assert capfd.readouterr().err == ""


def test_the_answer_of_a_request_that_was_interrupted_is_not_that_of_the_next(nursery):
    talk = Talk(nursery)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            talk.child.wait(0.5)
    finally:
        signal.signal(signal.SIGALRM, before)
    other = Talk(nursery)  # of another process, if need be
    assert int(other.ask("os.getpid()")) == other.child.pid
    talk.end()
    other.end()


def test_a_child_shows_its_stack_and_goes_on(nursery):
    talk = Talk(nursery)
    assert talk.ask("1") == "1"
    talk.line.sendall(b"hangs()")
    wait_for(lambda: "in hangs" in talk.child.stack())
    assert talk.child.wait(0) is None
    assert talk.end() == -signal.SIGKILL
    assert "in hangs" in talk.child.last_words


def test_children_draw_different_random_numbers(nursery):
    talks = [Talk(nursery) for _ in range(3)]
    for draw in ("random.random()", "numpy.random.random()", "os.urandom(8)"):
        assert len({talk.ask(draw) for talk in talks}) == 3
    for talk in talks:
        talk.end()


def test_an_interrupt_of_the_parent_is_not_one_of_its_children(nursery):
    talk = Talk(nursery)
    assert talk.ask("os.getsid(0)") != str(os.getsid(0))
    talk.end()


def test_closing_leaves_no_process_and_no_descriptor(nursery):
    talk = Talk(nursery)
    assert talk.ask("1") == "1"
    talk.end()
    below = process_tree(os.getpid())[1:]
    nursery.close()
    wait_for(lambda: not any(map(is_running, below)))
    before = set(os.listdir("/proc/self/fd"))
    Talk(nursery).end()  # it begins again
    nursery.close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_one_that_was_killed_is_followed_by_another_and_leaves_no_child(nursery):
    old = Talk(nursery)
    parent = int(old.ask("os.getppid()"))
    os.kill(parent, signal.SIGKILL)
    wait_for(lambda: not is_running(parent))
    if nursery._forks:
        wait_for(lambda: not is_running(old.child.pid))
    assert old.child.wait(0) is None
    assert old.end() == -signal.SIGKILL
    wait_for(lambda: not is_running(old.child.pid))
    new = Talk(nursery)
    assert new.ask("os.getppid()") != str(parent)
    new.end()


def test_what_children_share_is_held_once(nursery):
    if not nursery._forks:
        return
    talk = Talk(nursery)
    alone = int(talk.ask("__import__('penstock.base.memory').base.memory.private_memory()"))
    assert nursery.held_bytes() > 30 << 20
    assert alone < 15 << 20
    assert private_memory() > alone
    talk.end()


def test_a_module_that_cannot_be_imported_is_reported(capfd):
    with Nursery("no_such_module_anywhere", {}) as nursery, pytest.raises(TaskError, match="ended by exit code 1"):
        nursery.fork([])
    assert "no_such_module_anywhere" in capfd.readouterr().err


def test_children_end_when_the_parent_is_killed(tmp_path):
    (tmp_path / "raised_there.py").write_text(_MODULE)
    code = """
import os, socket, sys, time
from penstock.base.processes.nursery import Nursery
nursery = Nursery("raised_there", {})
ours, theirs = socket.socketpair()
child = nursery.fork([theirs.fileno()])
print(child.pid, nursery._line.child.pid, flush=True)
time.sleep(600)
"""
    environment = {**os.environ, **python_path(), "PYTHONPATH": f"{python_path()['PYTHONPATH']}:{tmp_path}"}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    assert all(map(is_running, pids))
    time.sleep(0.1)
    parent.kill()
    parent.communicate()
    wait_for(lambda: not any(map(is_running, pids)))
