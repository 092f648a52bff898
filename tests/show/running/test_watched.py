"""Jobs run from Python show progress where somebody looks on, and nowhere else."""

import json
import os
import pty
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock


@pytest.fixture
def job(tmp_path):
    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "in.parquet")
    return {"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0}


def _seen_in_a_terminal(job, options=""):
    ours, theirs = pty.openpty()
    script = f"import penstock\npenstock.run({json.dumps(job)}{options})"
    environment = {**os.environ, "TERM": "xterm"}
    done = subprocess.Popen([sys.executable, "-c", script], stderr=theirs, stdout=subprocess.PIPE, env=environment)
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


def test_without_a_terminal_nothing_is_shown_and_an_observer_hears_every_event(job, capfd):
    heard = []
    penstock.run(job, observe=heard.append)
    assert {"start", "done"} <= {event["event"] for event in heard}
    assert capfd.readouterr() == ("", "")
