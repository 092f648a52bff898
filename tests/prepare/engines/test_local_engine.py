"""The local engine: dead, hung, greedy and failing workers, through the public door with real processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import penstock
from penstock.base.errors import TaskError
from penstock.base.memory import own_memory
from penstock.prepare.engines.attempts import TASKS_PER_WORKER
from penstock.show.failure import working_stack
from tests.promises import workshop

PREAMBLE = """
import os, time, pathlib
import numpy as np, pyarrow as pa
HERE = pathlib.Path(__file__).parent

def once(name):
    \"\"\"True for the first caller among all processes.\"\"\"
    try:
        os.close(os.open(HERE / name, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False

def working():
    \"\"\"Not while the job is being measured or checked: only in a task.\"\"\"
    return (HERE / "out" / ".penstock" / "job.json").exists()
"""


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    workshop.make_input(tmp_path / "data", files=2)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("mine", None)


def _run(workplace: Path, code: str, **keys: Any) -> list[dict[str, Any]]:
    """Run a job whose one stage is `mine:stage`; the answer is what it said on the way."""
    (workplace / "mine.py").write_text(PREAMBLE + code)
    events: list[dict[str, Any]] = []
    job = workshop.write_job(workplace / "job.yaml", workplace / "data", stages=["mine:stage"], **keys)
    try:
        penstock.run(job, observe=events.append)
    finally:
        (workplace / "events.json").write_text(json.dumps(events))
    return events


def _said(events: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in events if event["event"] == name]


@pytest.mark.proof
def test_a_dead_workers_task_is_tried_again_with_half_the_batch(workplace):
    events = _run(
        workplace, "def stage(batch):\n    if working() and once('a'): os.kill(os.getpid(), 9)\n    return batch\n"
    )
    (retry,) = _said(events, "retry")
    assert "SIGKILL" in retry["reason"]
    assert "part-" in retry["slice"]
    assert penstock.verify(workplace / "out").ok


@pytest.mark.proof
def test_a_task_whose_worker_always_dies_is_reported_with_its_slice(workplace):
    with pytest.raises(TaskError) as caught:
        _run(workplace, "def stage(batch):\n    if working(): os._exit(3)\n    return batch\n")
    assert "exit code 3" in caught.value.what
    assert "part-" in (caught.value.where or "")
    assert not (workplace / "out" / "manifest.json").exists()
    assert not (workplace / "out" / ".penstock" / "tmp").exists()


@pytest.mark.proof
def test_an_exception_in_user_code_is_told_with_its_line_and_not_retried(workplace):
    code = "def stage(batch):\n    if working():\n        raise ValueError('no such luck')\n    return batch\n"
    with pytest.raises(TaskError) as caught:
        _run(workplace, code)
    assert "no such luck" in caught.value.what
    assert "mine.py, line" in (caught.value.where or "")
    assert any("slice" in note for note in caught.value.notes)


@pytest.mark.proof
def test_a_hung_task_is_named_with_its_stack_killed_and_tried_once_more(workplace):
    events = _run(
        workplace,
        "def stage(batch):\n    if working() and once('a'): time.sleep(600)\n    return batch\n",
        stall_notice=0.5,
        task_timeout=2,
    )
    stalls = [event for event in _said(events, "stall") if "in stage" in event["stack"]]
    assert "part-" in stalls[0]["slice"]
    shown = working_stack(stalls[0]["stack"])
    assert "in stage" in shown
    assert "child.py" not in shown  # the thread that waits for the driver's end does no work
    assert any("no row for" in event["reason"] for event in _said(events, "retry"))
    assert penstock.verify(workplace / "out").ok


@pytest.mark.proof
def test_a_task_that_always_hangs_is_reported_with_its_stack(workplace):
    with pytest.raises(TaskError) as caught:
        _run(
            workplace,
            "def stage(batch):\n    if working(): time.sleep(600)\n    return batch\n",
            stall_notice=0.2,
            task_timeout=1,
        )
    assert "task_timeout" in caught.value.what
    assert any("in stage" in note for note in caught.value.notes)


@pytest.mark.proof
def test_a_function_that_hangs_while_it_is_measured_is_told_with_its_stack(workplace):
    code = "def stage(batch):\n    if len(batch) > 100: time.sleep(600)\n    return batch\n"
    with pytest.raises(TaskError) as caught:
        _run(workplace, code, task_timeout=1)
    assert "measured" in caught.value.what
    assert any("in stage" in note for note in caught.value.notes)


@pytest.mark.proof
def test_a_worker_that_outgrows_the_budget_is_stopped_and_its_task_tried_again(workplace):
    code = (
        "def stage(batch):\n"
        "    if working() and once('a'):\n"
        "        hog = np.ones(60_000_000)\n"
        "        time.sleep(5)\n"
        "    return batch\n"
    )
    events = _run(workplace, code, memory=str(own_memory().counted + 250_000_000))  # the driver is this very process
    assert any("more than" in retry["reason"] for retry in _said(events, "retry"))
    assert penstock.verify(workplace / "out").ok


@pytest.mark.proof
def test_a_task_that_asks_to_be_alone_again_and_again_is_reported_with_its_slice(workplace):
    code = """
        from dataclasses import dataclass
        from penstock.prepare.budget.room import MustBeAlone
        from penstock.prepare.stages.stage import Stage

        @dataclass(frozen=True, kw_only=True)
        class stage(Stage):
            def __call__(self, rows):
                if working():
                    raise MustBeAlone
                return rows
    """
    with pytest.raises(TaskError, match="more memory than") as failure:
        _run(workplace, dedent(code))
    assert "part-" in str(failure.value.where)
    events = json.loads((workplace / "events.json").read_text())
    assert len(_said(events, "alone")) <= 2  # the two workers' tasks, once each


@pytest.mark.proof
def test_what_user_code_prints_does_not_reach_standard_output(workplace):
    (workplace / "mine.py").write_text(PREAMBLE + "def stage(batch):\n    print('chatter')\n    return batch\n")
    job = workshop.write_job(workplace / "job.yaml", workplace / "data", stages=["mine:stage"])
    workshop.run_well(job)


@pytest.mark.proof
def test_a_script_without_a_main_guard_can_run_a_job(workplace):
    """Workers are started as modules, so the user's script is not run again in each of them."""
    job = workshop.write_job(workplace / "job.yaml", workplace / "data", stages=[])
    script = workplace / "script.py"
    script.write_text(f"import penstock\nprint('once')\npenstock.run({str(job)!r})\n")
    import subprocess

    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stdout) == (0, "once\n"), done.stderr


HARMED_ONCE = """
def samples(path):
    if working() and path.stem in ("000", "001", "002") and once(f"{{path.stem}}.harmed"):
        {harm}
    for number in range(2):
        yield {{"features": np.full(3, number, "f4")}}
"""


@pytest.mark.proof
@pytest.mark.parametrize(("harm", "keys"), [("os._exit(3)", {}), ("time.sleep(60)", {"task_timeout": 1.0})])
def test_failures_are_counted_by_file_and_not_by_task(workplace, harm, keys):
    """Each of the three files of a task ends or holds up its worker once: none did so often enough to be given up."""
    (workplace / "mine.py").write_text(PREAMBLE + HARMED_ONCE.format(harm=harm))
    for number in range(130):  # three a task
        (workplace / f"{number:03d}.game").write_text("a game")
    source = {"files": "*.game", "function": "mine:samples"}
    job = workshop.write_job(workplace / "job.yaml", "", input=source, stages=[], slice_size="1MB", **keys)
    events: list[dict[str, Any]] = []
    penstock.run(job, observe=events.append)
    assert [event["task"] for event in _said(events, "retry")] == ["0-map-00000"] * 3
    assert not _said(events, "lost_file")
    assert len(penstock.open(workplace / "out")) == 260


@pytest.mark.proof
def test_a_worker_is_replaced_after_many_tasks_so_that_no_leak_outlives_them(workplace):
    many = workshop.make_input(workplace / "many", files=1, rows=TASKS_PER_WORKER + 5, group=1)
    code = "def stage(batch):\n    if working(): (HERE / f'pid-{os.getpid()}').touch()\n    return batch\n"
    (workplace / "mine.py").write_text(PREAMBLE + code)
    job = workshop.write_job(workplace / "job.yaml", many, stages=["mine:stage"], slice_size="1B", workers=1)
    penstock.run(job)
    assert len(list(workplace.glob("pid-*"))) == 2
    assert len(penstock.open(workplace / "out")) == TASKS_PER_WORKER + 5


@pytest.mark.proof
def test_a_task_timeout_that_is_shorter_than_a_worker_takes_to_start_is_no_defect(tmp_path):
    """Its time starts when the worker has, in planning as in a run. On a busy machine a row may take longer."""
    (tmp_path / "in.jsonl").write_text('{"x": 1}\n' * 100)
    job = {"input": str(tmp_path / "in.jsonl"), "output": str(tmp_path / "out"), "workers": 1, "task_timeout": 0.4}
    try:
        assert penstock.run(job).records("train") == 100
    except TaskError as error:
        assert "task_timeout" in error.what
