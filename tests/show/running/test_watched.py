"""Jobs run from Python show progress where somebody looks on, and nowhere else."""

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock

_SECONDS = 60  # after which something that does not come is a failure
_SIZES = ("COLUMNS", "LINES")  # they would fix the size of a terminal
_ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in _SIZES} | {"TERM": "xterm"}


@pytest.fixture
def job(tmp_path):
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "in.parquet")
    return {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0}


def _seen_in_a_terminal(job, options=""):
    ours, theirs = pty.openpty()
    script = f"import penstock\npenstock.run({json.dumps(job)}{options})"
    done = subprocess.Popen([sys.executable, "-c", script], stderr=theirs, stdout=subprocess.PIPE, env=_ENVIRONMENT)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:  # what Linux says of a terminal whose other end is closed
        pass
    finally:
        os.close(ours)
    assert done.communicate()[0] == b""
    assert done.returncode == 0
    return seen.decode()


def test_in_a_terminal_progress_is_shown(job):
    seen = _seen_in_a_terminal(job)
    assert "planning" in seen
    assert "1 task to do, 3 rows in all" in seen


def test_in_a_terminal_nothing_is_shown_where_that_is_asked_for(job):
    assert _seen_in_a_terminal(job, ", progress=False") == ""


@pytest.mark.proof  # it waits for ten seconds
def test_without_a_terminal_a_run_that_waits_for_workers_warns(job):
    script = f"import penstock\npenstock.run({json.dumps({**job, 'workers': 1, 'engine': 'workers'})})"
    run = subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE, text=True)
    try:
        assert run.stderr
        said = run.stderr.readline()
        assert f"no worker is at work, and the run waits. Start one: penstock work {job['output']}" in said
        subprocess.run([sys.executable, "-m", "penstock", "work", job["output"]], check=True, capture_output=True)
        run.communicate(timeout=_SECONDS)
        assert run.returncode == 0
    finally:
        run.kill()


def test_without_a_terminal_nothing_is_shown_and_an_observer_hears_every_event(job, capfd):
    heard = []
    penstock.run(job, observe=heard.append)
    assert {"start", "done"} <= {event["event"] for event in heard}
    assert capfd.readouterr() == ("", "")


@pytest.mark.proof
def test_what_is_no_job_and_no_observer_is_refused_by_name(job):
    for wrong in (None, 3, ["job.yaml"]):
        with pytest.raises(penstock.ConfigError, match="a job cannot be a"):
            penstock.run(wrong)
    with pytest.raises(penstock.ConfigError, match="observe=3 cannot be called"):
        penstock.run(job, observe=3)


def test_a_terminal_that_is_resized_and_a_run_that_is_stopped_leave_a_clean_screen(slow_job):
    ours, theirs = pty.openpty()
    _resize(ours, 100)
    command = [sys.executable, "-m", "penstock", "run", str(slow_job)]
    run = subprocess.Popen(command, stdout=theirs, stderr=theirs, env=_ENVIRONMENT)
    os.close(theirs)
    seen = _read_until(ours, lambda seen: b"worker 0" in seen and b"in-1.jsonl" in seen)
    _resize(ours, 60)
    seen += _read_until(ours, lambda seen: b"pass 0 map" in seen.partition(b"\x1b[2J")[2])
    after = seen.rpartition(b"\x1b[2J")[2].decode()
    assert "3 tasks to do" in after  # said again, because it was cleared
    run.send_signal(signal.SIGINT)
    try:
        while data := os.read(ours, 4096):
            seen += data
    except OSError:  # what Linux says of a terminal whose other end is closed
        pass
    os.close(ours)
    assert run.wait() == 130
    text = seen.decode()
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")
    assert "stopped with 1 of 3 tasks done" in text.rpartition("\x1b[?25h")[2]


def _read_until(terminal, is_there):
    """Bytes that the terminal was sent from now on, as soon as they are what is waited for."""
    seen, end = b"", time.monotonic() + _SECONDS
    while not is_there(seen):
        assert time.monotonic() < end, seen[-2000:]
        seen += os.read(terminal, 4096) if select.select([terminal], [], [], 1)[0] else b""
    return seen


def _resize(terminal, columns):
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
