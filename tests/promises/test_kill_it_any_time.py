"""Promise 3: kill it any time; the same command goes on and ends in identical bytes, with no leftovers."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path

import pytest

from penstock.base.memory import process_tree
from tests.promises import workshop
from tests.promises.killing import (
    SHAPES,
    Clean,
    clean_run,
    crash_points,
    crash_with_workers,
    kill_drivers,
    points_of,
    runs,
    shoot_workers,
    wait_for_the_end_of,
)

KILLS = 40 if workshop.THOROUGH else 4


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("clean")
    data = workshop.make_input(folder / "data", files=6)
    return clean_run(folder, partial(workshop.write_job, data=data))


POINTS = points_of("rows")


def test_there_are_crash_points_around_every_lasting_effect():
    assert len(crash_points()) >= 10


def test_every_crash_point_is_passed_by_a_job_of_some_shape():
    """That it is, the tests of each shape prove by a run: here, in test_arrays_kill.py and in test_text_kill.py."""
    assert {point for shape in SHAPES for point in points_of(shape)} == set(crash_points())


@pytest.mark.parametrize("name", ["clean", "safetensors", "arrayrecord"])
def test_jobs_of_rows_pass_their_crash_points_and_no_others(request, name):
    assert request.getfixturevalue(name).points == set(POINTS)


# With workers: points that a worker passes, that the driver passes, and that both do. The driver alone passes them all.
POINTS_WITH_WORKERS = (
    POINTS if workshop.THOROUGH else ["commit.before_rename", "run.before_manifest", "task.after_shards"]
)


@pytest.mark.core
@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_every_named_point_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml", workers=0)
    die(job, point)
    clean.assert_recovers(job)


@pytest.mark.parametrize("point", POINTS_WITH_WORKERS)
def test_a_crash_at_every_named_point_of_a_run_with_workers_is_recovered_from(clean, tmp_path, point):
    crash_with_workers(clean.job(tmp_path / "job.yaml", workers=2), point, clean)


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml")
    kill_drivers(job, clean.tasks, KILLS, pause=0.03)  # the whole run takes but half a second
    clean.assert_recovers(job)


@pytest.mark.core
def test_sigkill_of_workers_at_random_moments_changes_nothing(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml")
    assert shoot_workers(job, KILLS, lambda killed: workshop.ledger_rows(tmp_path / "out") >= killed) > 0
    clean.assert_recovers(job)


def test_two_runs_on_one_output_do_not_mix(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml")
    first = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    lock = tmp_path / "out" / ".penstock" / "lock"
    workshop.wait_for(lambda: lock.exists() and lock.read_text())
    os.kill(first.pid, signal.SIGSTOP)  # so that the second surely meets it
    second = workshop.run(job)
    os.kill(first.pid, signal.SIGCONT)
    first.communicate(timeout=120)
    assert second.returncode == 5
    assert f"process {first.pid}" in second.stdout
    assert first.returncode == 0
    clean.assert_recovers(job)


# tests/test_cli.py stops runs with either.
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM] if workshop.THOROUGH else [signal.SIGTERM])
def test_a_polite_stop_says_how_to_resume_and_leaves_no_process(clean, tmp_path, stop):
    job = clean.job(tmp_path / "job.yaml")
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workshop.wait_for(lambda: workshop.ledger_rows(tmp_path / "out") >= 1)
    below = process_tree(process.pid)[1:]
    process.send_signal(stop)
    output, errors = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was over before the signal came")
    assert process.returncode == 130, errors
    assert "run the same command" in output + errors
    assert not any(map(runs, below))
    assert not (tmp_path / "out" / "manifest.json").exists()
    clean.assert_recovers(job)


POINTS_OF_EXCHANGE = POINTS
if not workshop.THOROUGH:  # around files; those around the run are the same as above
    POINTS_OF_EXCHANGE = [point for point in POINTS if point.startswith(("commit.", "task."))]


# The same of a job with an exchange: a spill half written, a bucket half sorted, a file half merged.


def _clean_events(folder: Path, format_name: str) -> Clean:
    data = workshop.make_event_input(folder / "data", files=2, rows=1500)
    return clean_run(folder, partial(workshop.write_events_job, data=data, format=format_name))


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return _clean_events(tmp_path_factory.mktemp("safetensors"), "safetensors")


@pytest.fixture(scope="module")
def arrayrecord(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    return _clean_events(tmp_path_factory.mktemp("arrayrecord"), "arrayrecord")


@pytest.mark.parametrize("point", POINTS_OF_EXCHANGE)
def test_a_crash_at_every_named_point_of_an_exchange_is_recovered_from(arrayrecord, die, tmp_path, point):
    job = arrayrecord.job(tmp_path / "job.yaml", workers=0)
    die(job, point)
    arrayrecord.assert_recovers(job)


@pytest.mark.thorough
@pytest.mark.parametrize("point", POINTS_WITH_WORKERS)
def test_a_crash_at_every_named_point_of_an_exchange_with_workers_is_recovered_from(safetensors, tmp_path, point):
    crash_with_workers(safetensors.job(tmp_path / "job.yaml"), point, safetensors)


@pytest.mark.thorough
@pytest.mark.parametrize("format_name", ["safetensors", "arrayrecord"])
def test_sigkill_of_the_driver_at_random_moments_of_an_exchange_is_recovered_from(request, tmp_path, format_name):
    events: Clean = request.getfixturevalue(format_name)
    job = events.job(tmp_path / "job.yaml")
    kill_drivers(job, events.tasks, KILLS, pause=0.1)
    events.assert_recovers(job)


HANGING = """
import os, time
from pathlib import Path

HERE = Path(__file__).parent

def pause(name):
    if (HERE / f"{name}.stop").exists() and (HERE / "out" / ".penstock" / "job.json").exists():
        (HERE / f"{name}.part").write_text(str(os.getpid()))
        os.replace(HERE / f"{name}.part", HERE / f"{name}.here")
        time.sleep(60)

def spilling(batch):
    pause("spilling")
    return batch

def writing(batch):
    pause("writing")
    return batch
"""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


# A driver that dies takes its workers with it at either moment, a worker that dies is replaced at either, and so is the
# nursery that workers are forked from.
MOMENTS = [("spilling", "worker"), ("writing", "driver"), ("writing", "nursery")]
MOMENTS += [("spilling", "driver"), ("writing", "worker")] if workshop.THOROUGH else []


@pytest.mark.parametrize(("moment", "who"), MOMENTS)
def test_sigkill_in_the_middle_of_a_spill_or_of_a_bucket_is_recovered_from(tmp_path, moment, who):
    """A stage of the user's own holds a task still: before the exchange with a spill open, behind it with a bucket."""
    data = workshop.make_event_input(tmp_path / "data", files=2, rows=1000)
    stages = ["hanging:spilling", *workshop.EVENT_STAGES[1:2], "hanging:writing", *workshop.EVENT_STAGES[2:]]
    (tmp_path / "hanging.py").write_text(HANGING)
    clean = clean_run(tmp_path, partial(workshop.write_events_job, data=data, stages=stages))
    shutil.rmtree(tmp_path / "out")
    job = clean.job(tmp_path / "job.yaml")

    (tmp_path / f"{moment}.stop").touch()
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    here = tmp_path / f"{moment}.here"
    workshop.wait_for(here.exists)
    temporary = list((tmp_path / "out" / ".penstock" / "tmp").iterdir())
    spills = list((tmp_path / "out" / ".penstock").glob("spill/*"))
    assert temporary if moment == "spilling" else spills, "nothing was under way"
    (tmp_path / f"{moment}.stop").unlink()
    below = process_tree(process.pid)[1:]
    worker = int(here.read_text())
    os.kill({"driver": process.pid, "worker": worker, "nursery": parent_of(worker)}[who], signal.SIGKILL)
    if who != "driver":
        assert process.wait(timeout=120) == 0  # the driver tries the task again
        clean.assert_is_there(job)
    else:
        process.wait()
        for pid in filter(runs, below):  # one that sleeps in the user's code notices nothing until it wakes
            os.kill(pid, signal.SIGKILL)
        wait_for_the_end_of(below)
    clean.assert_recovers(job)
