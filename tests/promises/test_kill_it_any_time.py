"""Promise 3: kill it any time; the same command goes on and ends in identical bytes, with no leftovers."""

from __future__ import annotations

import ast
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE
from penstock.base.memory import process_tree
from tests.promises import workshop
from tests.promises.arrays_making import Die, dying_drivers

KILLS = 40 if workshop.THOROUGH else 4


def crash_points() -> list[str]:
    """Every name that the source passes to crash_point: a new one is walked from the day it is written."""
    found = set()
    for path in Path(penstock.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "crash_point":
                assert isinstance(node.args[0], ast.Constant), f"{path}: a crash point's name must be a literal"
                found.add(node.args[0].value)
    return sorted(found)


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], set[str]]:
    """The input, and what an undisturbed run writes and leaves."""
    folder = tmp_path_factory.mktemp("clean")
    data = workshop.make_input(folder / "data", files=6)
    penstock.run(workshop.write_job(folder / "job.yaml", data))
    return data, workshop.bytes_of(folder / "out"), workshop.names_in(folder / "out")


def _assert_recovers(job: Path, clean: tuple[Path, dict[str, str], set[str]]) -> None:
    """The same job goes on, inside this process, which is quicker and decides nothing."""
    penstock.run(job)
    assert workshop.bytes_of(job.parent / "out") == clean[1]
    assert workshop.names_in(job.parent / "out") == clean[2]


def points_of_rows() -> list[str]:
    """Those that a job without arrays passes; test_arrays_kill.py walks the others."""
    return [
        point for point in crash_points() if not point.startswith(("place.", "move.", "arrays.", "match.", "pack."))
    ]


def test_there_are_crash_points_around_every_lasting_effect():
    assert len(crash_points()) >= 10


# With workers: points that a worker passes, that the driver passes, and that both do. The driver alone passes them all.
POINTS_WITH_WORKERS = (
    points_of_rows() if workshop.THOROUGH else ["commit.before_rename", "run.before_manifest", "task.after_shards"]
)


@pytest.fixture(scope="module")
def die() -> Iterator[Die]:
    with dying_drivers() as die:
        yield die


@pytest.mark.parametrize("point", points_of_rows())
def test_a_crash_at_every_named_point_is_recovered_from(clean, die, tmp_path, point):
    job = workshop.write_job(tmp_path / "job.yaml", clean[0], workers=0)
    die(job, point)
    _assert_recovers(job, clean)


@pytest.mark.parametrize("point", POINTS_WITH_WORKERS)
def test_a_crash_at_every_named_point_of_a_run_with_workers_is_recovered_from(clean, tmp_path, point):
    _crash_with_workers(workshop.write_job(tmp_path / "job.yaml", clean[0], workers=2), point, clean)


def _crash_with_workers(job: Path, point: str, clean: tuple[Path, dict[str, str], set[str]]) -> None:
    """In the driver the run dies; in a worker the driver tries the task again, and what it ends in is whole."""
    token = job.parent / "token"
    token.touch()
    done = workshop.run(job, environment={CRASH_VARIABLE: f"{point}:{token}"})
    assert not token.exists(), "the point was never reached"
    if done.returncode == 0:
        assert workshop.bytes_of(job.parent / "out") == clean[1]
        assert workshop.names_in(job.parent / "out") == clean[2]
    else:
        assert done.returncode == CRASH_EXIT_CODE, done.stderr
    _assert_recovers(job, clean)


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(clean, tmp_path):
    chance = random.Random(5)
    job = workshop.write_job(tmp_path / "job.yaml", clean[0])
    tasks = len([name for name in clean[2] if "/tasks/" in name])
    met = 0
    for kill in range(KILLS):
        process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        target = kill * tasks // KILLS
        workshop.wait_for(
            lambda target=target, process=process: (
                workshop.ledger_rows(tmp_path / "out") >= target or process.poll() is not None
            )
        )
        time.sleep(chance.random() * 0.03)  # the whole run takes but half a second
        below = process_tree(process.pid)[1:]
        process.send_signal(signal.SIGKILL)
        met += _was_at_work(process, tmp_path / "out")
        workshop.wait_for(lambda below=below: not any(map(_runs, below)), 20)
    assert met > 0, "no kill met a run that was at work"
    _assert_recovers(job, clean)


def _was_at_work(process: subprocess.Popen[bytes], output: Path) -> bool:
    """Whether the kill met a run that held the output and was not done, rather than one that planned or had ended."""
    killed = process.wait() == -signal.SIGKILL
    lock = output / ".penstock" / "lock"
    holds = lock.exists() and f"process {process.pid} " in lock.read_text()
    return killed and holds and not (output / "manifest.json").exists()


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sigkill_of_workers_at_random_moments_changes_nothing(clean, tmp_path):
    chance = random.Random(6)
    job = workshop.write_job(tmp_path / "job.yaml", clean[0])
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed = 0
    while process.poll() is None and killed < KILLS:
        below = process_tree(process.pid)[1:]
        if below and workshop.ledger_rows(tmp_path / "out") >= killed:
            os.kill(chance.choice(below), signal.SIGKILL)
            killed += 1
        time.sleep(0.05 + chance.random() * 0.1)
    _, errors = process.communicate(timeout=120)
    assert killed > 0
    # A task whose worker was shot three times is reported, and the same command goes on.
    assert process.returncode in (0, 7), errors
    _assert_recovers(job, clean)


def test_two_runs_on_one_output_do_not_mix(clean, tmp_path):
    job = workshop.write_job(tmp_path / "job.yaml", clean[0])
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
    _assert_recovers(job, clean)


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_polite_stop_says_how_to_resume_and_leaves_no_process(clean, tmp_path, stop):
    job = workshop.write_job(tmp_path / "job.yaml", clean[0])
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workshop.wait_for(lambda: workshop.ledger_rows(tmp_path / "out") >= 1)
    below = process_tree(process.pid)[1:]
    process.send_signal(stop)
    output, errors = process.communicate(timeout=60)
    if process.returncode == 0:
        pytest.skip("the run was over before the signal came")
    assert process.returncode == 130, errors
    assert "run the same command" in output + errors
    assert not any(map(_runs, below))
    assert not (tmp_path / "out" / "manifest.json").exists()
    _assert_recovers(job, clean)


# The same of a job with an exchange: a spill half written, a bucket half sorted, a file half merged.


def _clean_events(folder: Path, format_name: str) -> tuple[Path, dict[str, str], set[str]]:
    """The input, and what an undisturbed run writes and leaves."""
    data = workshop.make_event_input(folder / "data", files=2, rows=1500)
    penstock.run(workshop.write_events_job(folder / "job.yaml", data, format=format_name))
    names = workshop.names_in(folder / "out")
    assert not [name for name in names if "/spill/" in name or "/parts/" in name or "/tmp/" in name]
    return data, workshop.bytes_of(folder / "out"), names


@pytest.fixture(scope="module")
def safetensors(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], set[str]]:
    return _clean_events(tmp_path_factory.mktemp("safetensors"), "safetensors")


@pytest.fixture(scope="module")
def arrayrecord(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str], set[str]]:
    return _clean_events(tmp_path_factory.mktemp("arrayrecord"), "arrayrecord")


@pytest.mark.parametrize("point", points_of_rows())
def test_a_crash_at_every_named_point_of_an_exchange_is_recovered_from(arrayrecord, die, tmp_path, point):
    job = workshop.write_events_job(tmp_path / "job.yaml", arrayrecord[0], workers=0, format="arrayrecord")
    die(job, point)
    _assert_recovers(job, arrayrecord)


@pytest.mark.parametrize("point", POINTS_WITH_WORKERS)
def test_a_crash_at_every_named_point_of_an_exchange_with_workers_is_recovered_from(safetensors, tmp_path, point):
    _crash_with_workers(workshop.write_events_job(tmp_path / "job.yaml", safetensors[0]), point, safetensors)


@pytest.mark.parametrize("format_name", ["safetensors", "arrayrecord"])
def test_sigkill_of_the_driver_at_random_moments_of_an_exchange_is_recovered_from(request, tmp_path, format_name):
    chance = random.Random(7)
    events = request.getfixturevalue(format_name)
    job = workshop.write_events_job(tmp_path / "job.yaml", events[0], format=format_name)
    tasks = len([name for name in events[2] if "/tasks/" in name])
    met = 0
    for kill in range(KILLS):
        process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        target = kill * tasks // KILLS
        workshop.wait_for(
            lambda target=target, process=process: (
                workshop.ledger_rows(tmp_path / "out") >= target or process.poll() is not None
            )
        )
        time.sleep(chance.random() * 0.1)
        below = process_tree(process.pid)[1:]
        process.send_signal(signal.SIGKILL)
        met += _was_at_work(process, tmp_path / "out")
        workshop.wait_for(lambda below=below: not any(map(_runs, below)), 20)
    assert met > 0, "no kill met a run that was at work"
    _assert_recovers(job, events)


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


@pytest.mark.parametrize("moment", ["spilling", "writing"])
@pytest.mark.parametrize("who", ["driver", "worker"])
def test_sigkill_in_the_middle_of_a_spill_or_of_a_bucket_is_recovered_from(tmp_path, moment, who):
    """A stage of the user's own holds a task still: before the exchange with a spill open, behind it with a bucket."""
    data = workshop.make_event_input(tmp_path / "data", files=2, rows=1000)
    stages = ["hanging:spilling", *workshop.EVENT_STAGES[1:2], "hanging:writing", *workshop.EVENT_STAGES[2:]]
    job = workshop.write_events_job(tmp_path / "job.yaml", data, stages=stages)
    (tmp_path / "hanging.py").write_text(HANGING)
    workshop.run_well(job)
    clean = data, workshop.bytes_of(tmp_path / "out"), workshop.names_in(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")

    (tmp_path / f"{moment}.stop").touch()
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    here = tmp_path / f"{moment}.here"
    workshop.wait_for(here.exists)
    temporary = list((tmp_path / "out" / ".penstock" / "tmp").iterdir())
    spills = list((tmp_path / "out" / ".penstock").glob("spill/*"))
    assert temporary if moment == "spilling" else spills, "nothing was under way"
    (tmp_path / f"{moment}.stop").unlink()
    below = process_tree(process.pid)[1:]
    os.kill(process.pid if who == "driver" else int(here.read_text()), signal.SIGKILL)
    if who == "worker":
        assert process.wait(timeout=120) == 0  # the driver tries the task again
        assert workshop.bytes_of(tmp_path / "out") == clean[1]
    else:
        process.wait()
        for pid in filter(_runs, below):  # one that sleeps in the user's code notices nothing until it wakes
            os.kill(pid, signal.SIGKILL)
        workshop.wait_for(lambda: not any(map(_runs, below)), 20)
    _assert_recovers(job, clean)
