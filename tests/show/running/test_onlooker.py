"""`penstock watch` shows a run that another process does, and says what there is where none is at work."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

import penstock
from penstock.base.stores import open_store
from penstock.cli import main
from penstock.show.running.following import follow
from penstock.show.running.onlooker import watch_run


def _penstock(folder, *arguments, **options):
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def _until(is_so, seconds=60):
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def at_work(slow_job):
    """A run with one task done and one at work."""
    run = _penstock(slow_job.parent, "run", slow_job, start_new_session=True)
    _until(lambda: len(list((slow_job.parent / "out" / ".penstock" / "tasks").glob("*.json"))) == 1)
    _until((slow_job.parent / "out" / ".penstock" / "live.json").exists)
    yield run
    run.kill()
    run.communicate()


def test_a_watcher_hears_the_run_from_its_start_to_its_end(at_work, slow_job):
    watcher = _penstock(slow_job.parent, "watch", "out", "--json")
    first = json.loads(watcher.stdout.readline())
    assert first["event"] == "start"
    heard = []
    while not any("in-1.jsonl" in worker["slice"] for event in heard[-1:] for worker in event.get("workers", [])):
        heard.append(json.loads(watcher.stdout.readline()))
    assert {event["event"] for event in heard} >= {"pass", "task", "sample"}
    (slow_job.parent / "go").touch()
    output, errors = watcher.communicate()
    assert (watcher.returncode, errors) == (0, "")
    assert json.loads(output.splitlines()[-1])["event"] == "done"
    assert at_work.wait() == 0
    assert not (slow_job.parent / "out" / ".penstock" / "live.json").exists()


@pytest.mark.proof
def test_a_watcher_in_a_terminal_shows_the_screen_of_the_run(at_work, slow_job):
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "watch", "out"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    watcher = subprocess.Popen(command, cwd=slow_job.parent, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 4096):
            seen += data
            if b"in-1.jsonl" in seen and not (slow_job.parent / "go").exists():
                (slow_job.parent / "go").touch()
    except OSError:  # what Linux says of a terminal whose other end is closed
        pass
    finally:
        os.close(ours)
    assert watcher.wait() == 0
    text = seen.decode()
    assert f"a run is at work: process {at_work.pid} on " in text
    assert "10 of about" in text
    assert "set aside: 1 filter" in text or "set aside: 1 x != 3" in text
    assert "The run is done: dataset" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")


@pytest.mark.proof
def test_a_driver_that_dies_is_noticed_and_the_output_resumes(at_work, slow_job):
    watcher = _penstock(slow_job.parent, "watch", "out")
    assert "a run is at work" in watcher.stderr.readline()
    told = _penstock(slow_job.parent, "inspect", "out").communicate()[0]
    assert f"A run is at work: process {at_work.pid} on " in told
    os.killpg(at_work.pid, signal.SIGKILL)
    _, errors = watcher.communicate()
    assert watcher.returncode == 7
    assert f"the run ended without an error message: process {at_work.pid} on " in errors
    assert "No run is at work." in _penstock(slow_job.parent, "inspect", "out").communicate()[0]
    idle = _penstock(slow_job.parent, "watch", "out")
    assert "this output is not finished, and no run is at work" in idle.communicate()[1]
    assert idle.returncode == 5
    (slow_job.parent / "go").touch()
    assert _penstock(slow_job.parent, "run", slow_job).wait() == 0
    assert not (slow_job.parent / "out" / ".penstock" / "live.json").exists()
    assert penstock.verify(slow_job.parent / "out").ok


@pytest.mark.proof
def test_a_run_that_is_stopped_ends_the_watching_with_its_words(at_work, slow_job):
    watcher = _penstock(slow_job.parent, "watch", "out")
    assert "a run is at work" in watcher.stderr.readline()
    at_work.send_signal(signal.SIGINT)
    output, _ = watcher.communicate()
    assert watcher.returncode == 0
    assert "The run has ended without a dataset: Interrupted: stopped with 1 of 3 tasks done" in output


@pytest.mark.proof
def test_a_finished_dataset_and_an_empty_folder_get_a_sentence(slow_job, tmp_path):
    (tmp_path / "go").touch()
    assert _penstock(tmp_path, "run", slow_job).wait() == 0
    done = _penstock(tmp_path, "watch", "out")
    assert "out is finished, and no run is at work: dataset " in done.communicate()[0]
    assert done.returncode == 0
    (tmp_path / "empty").mkdir()
    nothing = _penstock(tmp_path, "watch", "empty")
    assert "no run has written to this folder" in nothing.communicate()[1]
    assert nothing.returncode == 5


@pytest.mark.proof
def test_a_run_that_ended_before_its_log_was_read_is_heard_to_its_end(at_work, slow_job):
    at_work.send_signal(signal.SIGINT)
    at_work.wait()
    heard = [event["event"] for event in follow(open_store(str(slow_job.parent / "out")))]
    assert (heard[0], heard[-1]) == ("start", "failed")


@pytest.mark.proof
def test_a_run_is_not_taken_for_the_one_before_it(at_work, slow_job):
    """The log of a resumed output begins with the runs before."""
    log = slow_job.parent / "out" / ".penstock" / "events.jsonl"
    now = log.read_text()
    ended = '{"event": "failed", "time": 1.0, "error": "Interrupted", "what": "stopped", "seconds": 1.0}\n'
    before = now.replace(f'"process": {at_work.pid}', '"process": 1')
    log.write_text(before + ended + now.replace('"tasks_kept": 0', '"tasks_kept": 1'))
    first = next(iter(follow(open_store(str(slow_job.parent / "out")))))
    assert (first["event"], first["tasks_kept"]) == ("start", 1)


def test_a_dataset_that_another_machine_finished_is_not_waited_for(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    penstock.run({"input": str(tmp_path / "a.jsonl"), "output": str(tmp_path / "out"), "workers": 0}, progress=False)
    lock = tmp_path / "out" / ".penstock" / "lock"
    lock.write_text(lock.read_text().replace(" on ", " on another-"))
    assert watch_run(str(tmp_path / "out"), as_json=False)["ended"] is None


def test_json_of_a_finished_output_is_one_event_per_line(tmp_path, capfd):
    (tmp_path / "a.jsonl").write_text('{"x": 1}\n')
    job = {"input": str(tmp_path / "a.jsonl"), "output": str(tmp_path / "out"), "workers": 0}
    penstock.run(job, progress=False)
    penstock.run({**job, "stages": [{"filter": "x > 0"}]}, redo=True, progress=False)
    assert main(["watch", str(tmp_path / "out"), "--json"]) == 0
    events = [json.loads(line)["event"] for line in capfd.readouterr().out.splitlines()]
    assert events == ["start", "pass", "task", "pass_done", "done"]


def test_a_watcher_waits_for_a_run_that_still_plans(slow_job):
    (slow_job.parent / "go").touch()
    watcher = _penstock(slow_job.parent, "watch", "out", "--wait", "--json")
    assert _penstock(slow_job.parent, "run", slow_job).wait() == 0
    output, errors = watcher.communicate(timeout=60)
    assert (watcher.returncode, errors) == (0, "")
    events = [json.loads(line)["event"] for line in output.splitlines()]
    assert (events[0], events[-1]) == ("start", "done")
