"""Promise 4, of text: a document that two jobs remember in one folder is in one of their datasets, however they run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import penstock
from penstock.base.errors import InputError, OutputError
from tests.promises import workshop

# Waits in a task, and not when the plan tries the first rows, while the file `slow` lies beside it.
SLOW = """
import os, time
HERE = os.path.dirname(__file__)
def slow(batch):
    while os.path.exists(HERE + "/slow") and os.path.exists(HERE + "/a/.penstock/job.json"):
        time.sleep(0.01)
    return batch
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Two jobs, a and b, over the same documents."""
    (tmp_path / "in.jsonl").write_text("".join(json.dumps({"text": f"document {n}"}) + "\n" for n in range(50)))
    (tmp_path / "slowly.py").write_text(SLOW)
    return tmp_path


def _job(place: Path, name: str, *stages: Any) -> Path:
    job = {"input": "in.jsonl", "output": name, "stages": [{"dedup": {"remember": "seen"}}, *stages], "workers": 0}
    path = place / f"{name}.yaml"
    path.write_text(yaml.safe_dump(job))
    return path


def _holding(place: Path) -> subprocess.Popen[bytes]:
    """Job a, in a process of its own, in the middle of its work."""
    (place / "slow").touch()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(workshop.command(_job(place, "a", "slowly:slow")), **quiet)
    lock = place / "seen" / ".penstock" / "lock"
    workshop.wait_for(
        lambda: process.poll() is not None or (lock.exists() and f"process {process.pid} " in lock.read_text())
    )
    return process


def test_a_second_job_with_one_folder_is_refused_by_the_name_of_its_holder(place):
    process = _holding(place)
    try:
        with pytest.raises(OutputError, match="another run holds this folder of remembered keys") as refused:
            penstock.run(_job(place, "b"))
        assert f"process {process.pid} on {os.uname().nodename}, since " in refused.value.what
        assert refused.value.what.endswith(f", which writes {place}/a")
        assert refused.value.where == str(place / "seen")
    finally:
        (place / "slow").unlink()
        assert process.wait(timeout=60) == 0
    assert len(penstock.open(place / "a")) == 50
    assert penstock.run(_job(place, "b")).records("train") == 0


if workshop.THOROUGH:  # the lock is the output's, whose kills are walked

    def test_a_kill_frees_the_folder(place):
        process = _holding(place)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert penstock.run(_job(place, "b")).records("train") == 50
        (place / "slow").unlink()
        assert penstock.run(_job(place, "a", "slowly:slow")).records("train") == 0


def test_a_plan_that_another_job_made_old_is_refused(place):
    planned = penstock.plan(_job(place, "b"))
    penstock.run(_job(place, "a"))
    with pytest.raises(InputError, match="another job has changed what is remembered here since this one was planned"):
        penstock.run(planned)
    assert not (place / "b" / "manifest.json").exists()
    assert penstock.run(_job(place, "b")).records("train") == 0


def test_a_job_that_is_done_again_holds_its_own_keys_only(place):
    for name in ("a", "b", "a", "b"):
        assert penstock.run(_job(place, name), redo=True).records("train") == (50 if name == "a" else 0)
