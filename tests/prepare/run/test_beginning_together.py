"""`penstock work OUTPUT --job JOB`: machines that start the same command need no first one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.promises import workshop

STAGES = [{"split": {"by": "user", "test": 0.3}}]


def make_job(folder: Path, **keys: object) -> Path:
    data = folder / "rows.jsonl"
    data.write_text("".join(f'{{"user": "u{number % 9}", "x": {number}}}\n' for number in range(900)))
    return workshop.write_job(folder / "job.yaml", data, stages=STAGES, slice_size="4kB", workers=1, **keys)


def join(job: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "penstock", "work", str(job.parent / "out"), "--job", str(job), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.proof
def test_three_that_start_at_once_make_the_dataset_of_a_local_run(tmp_path):
    job = make_job(tmp_path)
    workers = [join(job) for _ in range(3)]
    told = [worker.communicate(timeout=200)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0, 0], told
    late = join(job)
    assert "The run is done" in late.communicate(timeout=100)[0]
    assert late.returncode == 0
    workshop.run_well(make_job(tmp_path), "--output", str(tmp_path / "local"))
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(tmp_path / "local")


@pytest.mark.proof
def test_one_that_watches_and_has_begun_the_run_is_no_obstacle(tmp_path):
    job = make_job(tmp_path)
    watching = subprocess.Popen(
        [*workshop.command(job), "--engine", "workers"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    workshop.wait_for(lambda: (tmp_path / "out" / ".penstock" / "plan.json").exists(), 100)
    worker = join(job)
    assert worker.wait(200) == 0
    watching.communicate(timeout=60)
    assert watching.returncode == 0


@pytest.mark.proof
def test_the_output_of_another_job_is_refused(tmp_path):
    job = make_job(tmp_path)
    workshop.run_well(job)
    before = workshop.bytes_of(tmp_path / "out")
    refused = join(make_job(tmp_path, format="npy"))
    told, _ = refused.communicate(timeout=100)
    assert refused.returncode == 5
    assert "made from something else" in told
    assert workshop.bytes_of(tmp_path / "out") == before
