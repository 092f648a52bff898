"""An array on a real Slurm, with elements requeued and cancelled in the middle, makes the bytes of a local run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.promises import workshop
from tests.promises.killing import assert_no_leftovers
from tests.promises.slurm import Cluster, slurm_cluster

pytestmark = pytest.mark.thorough

# Each batch takes a while, so that there is a middle.
SLOW_STAGE = """
import time

def slow(batch):
    time.sleep(0.4)
    return batch
"""
STAGES = ["slow_stage:slow", *workshop.EVENT_STAGES]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with slurm_cluster() as cluster:
        yield cluster


def deployed(folder: Path, *options: str, **keys: object) -> Path:
    """The script of a job with an exchange, in a folder whose name a shell must not read."""
    folder = folder / "it's a $folder"
    job = workshop.write_events_job(folder / "job.yaml", folder / "data", stages=STAGES, **keys)
    workshop.make_event_input(folder / "data")
    (folder / "slow_stage.py").write_text(SLOW_STAGE)
    script = folder / "array.sbatch"
    given = ["--nodes", "4", "--cores", "1", "--memory-per-node", "1GB", "-o", str(script)]
    workshop.on_screen(Path("slurm"), "deploy", str(job), *given, *options)
    return script


def expected(script: Path, **keys: object) -> dict[str, str]:
    """The bytes of a local run of the same job."""
    folder = script.parent
    job = workshop.write_events_job(folder / "local.yaml", folder / "data", stages=STAGES, output="local", **keys)
    workshop.run_well(job)
    return workshop.bytes_of(folder / "local")


def output_of(script: Path) -> Path:
    return script.parent / "out"


def logs_of(script: Path) -> str:
    return "\n".join(f"--- {path.name}\n{path.read_text()}" for path in sorted(script.parent.glob("*.out")))


def wait_for_the_middle(cluster: Cluster, job: str, script: Path, *elements: str) -> None:
    """Wait until there are some tasks, and these elements have joined."""
    logs = [script.parent / f"penstock-job-{job}_{element}.out" for element in elements]

    def is_there() -> bool:
        assert "FAILED" not in cluster.states(job).values(), logs_of(script)
        have_joined = all(log.exists() and " joins: " in log.read_text() for log in logs)
        return have_joined and workshop.ledger_rows(output_of(script)) >= 2

    workshop.wait_for(is_there, 120)
    assert not (output_of(script) / "manifest.json").exists()


def test_an_array_with_a_requeue_in_the_middle_makes_the_bytes_of_a_local_run(cluster, tmp_path):
    script = deployed(tmp_path)
    job = cluster.submit(script)
    wait_for_the_middle(cluster, job, script, "1", "2")
    cluster.command("scontrol", "requeue", f"{job}_1")  # by an operator, or a preemption: Slurm requeues it
    cluster.command("scancel", "--batch", "--signal=TERM", f"{job}_2")  # what --signal sends before the time limit
    cluster.wait_until(job, "COMPLETED")
    logs = logs_of(script)
    assert "given back its tasks" in logs
    assert cluster.restarts(job, "1") == cluster.restarts(job, "2") == 1, logs
    assert workshop.bytes_of(output_of(script)) == expected(script), logs
    assert_no_leftovers(output_of(script))


def test_a_cancelled_element_stays_cancelled_and_the_others_finish(cluster, tmp_path):
    script = deployed(tmp_path)
    job = cluster.submit(script)
    wait_for_the_middle(cluster, job, script)
    cluster.command("scancel", f"{job}_0")
    cluster.wait_until(job, "CANCELLED", element="0")
    cluster.wait_until(job, "COMPLETED", "CANCELLED")
    assert cluster.states(job) == {"0": "CANCELLED", "1": "COMPLETED", "2": "COMPLETED", "3": "COMPLETED"}
    assert workshop.bytes_of(output_of(script)) == expected(script), logs_of(script)


def test_elements_that_start_one_after_the_other_do_the_job_too(cluster, tmp_path):
    """No element is special: with room for one at a time, the first does all, and the others find it done."""
    script = deployed(tmp_path, export="hf")
    job = cluster.submit(script, "--array=0-2%1")
    cluster.wait_until(job, "COMPLETED")
    assert workshop.bytes_of(output_of(script)) == expected(script, export="hf"), logs_of(script)
    assert (script.parent / "out-hf" / "dataset_dict.json").exists()


def test_a_job_that_cannot_be_done_fails_with_its_exit_code_and_is_not_requeued(cluster, tmp_path):
    script = deployed(tmp_path)
    for path in (script.parent / "data").iterdir():
        path.write_bytes(b"no Parquet")
    job = cluster.submit(script)
    cluster.wait_until(job, "FAILED")
    assert {cluster.restarts(job, index) for index in "0123"} == {0}
    assert "InputError" in logs_of(script)


def test_an_array_that_was_cancelled_is_continued_by_submitting_it_again(cluster, tmp_path):
    script = deployed(tmp_path)
    job = cluster.submit(script)
    wait_for_the_middle(cluster, job, script)
    cluster.command("scancel", job)
    cluster.wait_until(job, "CANCELLED")
    done = workshop.ledger_rows(output_of(script))
    began = time.time()
    again = cluster.submit(script)
    cluster.wait_until(again, "COMPLETED")
    kept = [path for path in (output_of(script) / ".penstock" / "tasks").iterdir() if path.stat().st_mtime < began]
    assert len(kept) >= done
    assert workshop.bytes_of(output_of(script)) == expected(script), logs_of(script)
