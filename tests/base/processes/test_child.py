"""Child: a process that ends with its parent, shows its stack, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.base.processes.child import Child, how_it_ended, python_path

BEGIN = "from penstock.base.processes.child import live_as_child; import os, subprocess, sys, time; "
BEGIN += "_, given = live_as_child(); "
WAITS = "print('ready', flush=True); time.sleep(600)"
STARTS_ANOTHER = "print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)"


def child_of(code: str, *arguments: object, **keys: object) -> Child:
    return Child(["-c", BEGIN + code], arguments, environment=python_path(), stdout=subprocess.PIPE, **keys)


def line_of(child: Child) -> str:
    assert child.process.stdout
    return child.process.stdout.readline().decode().strip()


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_child_gets_its_arguments_and_the_descriptors_that_it_inherits():
    reading, writing = os.pipe()
    child = child_of("os.write(int(given[0]), given[1].encode())", writing, "a b", inherits=(writing,))
    assert child.process.wait() == 0
    assert os.read(reading, 10) == b"a b"
    child.end()
    os.close(reading)
    os.close(writing)


def test_a_child_shows_where_it_is_and_goes_on():
    child = child_of(f"exec({'def hangs(): ' + WAITS!r}); hangs()")
    line_of(child)
    assert "in hangs" in child.stack()
    assert child.process.poll() is None
    assert child.end() == -signal.SIGKILL
    assert "in hangs" in child.last_words


def test_a_child_that_ended_by_itself_keeps_its_exit_code():
    child = child_of("sys.exit(3)")
    child.process.wait()
    assert how_it_ended(child.end()) == "exit code 3"
    assert child.end() == 3
    assert how_it_ended(-signal.SIGKILL) == "signal 9 (SIGKILL)"


def test_what_a_child_has_started_ends_with_it():
    child = child_of(STARTS_ANOTHER)
    started = int(line_of(child))
    child.end()
    wait_for(lambda: not is_running(started))


def test_neither_a_child_nor_what_it_has_started_survives_a_parent_that_is_killed():
    code = f"""
import subprocess, sys
from penstock.base.processes.child import Child, python_path
child = Child(["-c", {BEGIN + STARTS_ANOTHER!r}], environment=python_path(), stdout=subprocess.PIPE)
print(child.pid, child.process.stdout.readline().decode(), flush=True)
child.process.wait()
"""
    environment = {**os.environ, **python_path()}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE)
    assert parent.stdout
    pids = [int(word) for word in parent.stdout.readline().split()]
    assert len(pids) == 2
    parent.kill()
    parent.communicate()
    wait_for(lambda: not any(map(is_running, pids)))


def test_a_child_leaves_no_descriptor_whether_it_ran_or_could_not_be_started(monkeypatch):
    before = set(os.listdir("/proc/self/fd"))
    child = child_of(WAITS, stdin=subprocess.PIPE)
    line_of(child)
    child.end()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(FileNotFoundError):
        child_of(WAITS)
    assert set(os.listdir("/proc/self/fd")) == before
