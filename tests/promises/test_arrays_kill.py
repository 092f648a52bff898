"""Promise 3, of arrays: killed in a function, a part, a column or while files are moved, it ends in the same bytes."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import FileError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, sweeping
from penstock.base.memory import process_tree
from penstock.prepare.plan import Plan
from tests.promises import arrays_making, workshop
from tests.promises.arrays_making import Die, dying_drivers
from tests.promises.test_kill_it_any_time import crash_points

SMALL_SPLIT = [{"split": {"by": "game_id", "test": 0.4}}, arrays_making.NORMALIZE]
KILLS = 30 if workshop.THOROUGH else 2


@dataclass(frozen=True)
class Clean:
    """The keys of a job, and what an undisturbed run of it writes and leaves."""

    data: Path
    keys: dict[str, Any]
    written: dict[str, str]
    names: set[str]

    def job(self, path: Path, **keys: Any) -> Path:
        return arrays_making.write_job(path, self.data, **{**self.keys, **keys})

    def assert_recovers(self, job: Path) -> None:
        """The same job goes on, inside this process, which is quicker and decides nothing."""
        penstock.run(job)
        self.assert_is_there(job)

    def assert_is_there(self, job: Path) -> None:
        assert workshop.bytes_of(job.parent / "out") == self.written
        assert workshop.names_in(job.parent / "out") == self.names
        arrays_making.assert_no_leftovers(job.parent / "out")


def _clean(folder: Path, data: Path, **keys: Any) -> Clean:
    job = arrays_making.write_job(folder / "job.yaml", data, **keys)
    penstock.run(job)
    arrays_making.assert_no_leftovers(folder / "out")
    return Clean(data, keys, workshop.bytes_of(folder / "out"), workshop.names_in(folder / "out"))


@pytest.fixture(scope="module")
def placed(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """Samples of a function, with one that raises: put down in parts, normalised when they are placed."""
    folder = tmp_path_factory.mktemp("placed")
    games = [{"count": 300}, {"count": 350}, {"count": 90, "do": "raises", "at": 70}]
    return _clean(folder, arrays_making.write_games(folder / "games", *games), stages=SMALL_SPLIT)


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """Rows of tables that go straight to their places."""
    folder = tmp_path_factory.mktemp("direct")
    (folder / "tables").mkdir()
    rng = np.random.default_rng(1)
    for number in range(3):
        features = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(0, 1, 400 * 60).astype("f4")), 60)
        columns = pa.table({"features": features, "labels_a": rng.integers(0, 9, 400)})
        pq.write_table(columns, folder / "tables" / f"{number}.parquet")
    keys = {"input": {"path": f"{folder}/tables"}, "format": "arrays", "stages": [{"split": {"test": 0.2}}]}
    clean = _clean(folder, folder / "tables", slice_size="50kB", **keys)
    assert [each.cut.kind for each in penstock.plan(folder / "job.yaml").passes] == ["map"]
    return clean


POINTS = crash_points()
DIRECT_POINTS = [point for point in crash_points() if not point.startswith("place.")]
if not workshop.THOROUGH:  # those of arrays, and one of each kind that test_kill_it_any_time.py walks whole
    few = ("place.", "move.", "arrays.", "commit.before_rename", "run.before_clean_up", "task.")
    POINTS = [point for point in crash_points() if point.startswith(few)]
    DIRECT_POINTS = ["task.after_shards", "task.after_ledger", "move.before_rename", "move.after_rename"]


def test_arrays_have_crash_points_of_their_own():
    assert {"place.in_column", "place.before_ledger", "move.before_rename", "move.after_rename"} <= set(crash_points())


@pytest.fixture(scope="module")
def die() -> Iterator[Die]:
    with dying_drivers() as die:
        yield die


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_every_named_point_is_recovered_from(placed, die, tmp_path, point):
    job = placed.job(tmp_path / "job.yaml")
    die(job, point)
    placed.assert_recovers(job)


@pytest.mark.parametrize("point", DIRECT_POINTS)
def test_a_crash_at_every_named_point_of_direct_placement_is_recovered_from(direct, die, tmp_path, point):
    job = direct.job(tmp_path / "job.yaml")
    die(job, point)
    direct.assert_recovers(job)


@pytest.mark.parametrize("point", ["place.in_column", "move.after_rename"])
def test_one_crash_after_the_other_is_recovered_from(placed, die, tmp_path, point):
    """Each run comes as far as the one before, or a little further."""
    job = placed.job(tmp_path / "job.yaml")
    for _ in range(30 if workshop.THOROUGH else 2):
        die(job, point)
    placed.assert_recovers(job)


@pytest.mark.parametrize("point", crash_points() if workshop.THOROUGH else ["place.in_column"])
def test_a_worker_that_dies_at_a_named_point_changes_nothing(placed, tmp_path, point):
    job = placed.job(tmp_path / "job.yaml", workers=2)
    token = tmp_path / "token"
    token.touch()
    done = workshop.run(job, environment={CRASH_VARIABLE: f"{point}:{token}"})
    assert not token.exists(), "the point was never reached"
    if done.returncode == 0:
        placed.assert_is_there(job)
    else:  # a point that the driver passes
        assert done.returncode == CRASH_EXIT_CODE, done.stdout + done.stderr
    placed.assert_recovers(job)


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(placed, tmp_path):
    """Each run goes on from where the one before was killed; one that ended before is followed by a new one."""
    chance = random.Random(5)
    job = placed.job(tmp_path / "job.yaml", workers=2)
    met = 0
    for _ in range(KILLS):
        process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        workshop.wait_for(lambda process=process: _holds(process, tmp_path / "out") or process.poll() is not None)
        time.sleep(chance.random() * 0.6)
        below = process_tree(process.pid)[1:]
        process.send_signal(signal.SIGKILL)
        process.wait()
        workshop.wait_for(lambda below=below: not any(map(_runs, below)), 20)
        if (tmp_path / "out" / "manifest.json").exists():
            placed.assert_recovers(job)
            shutil.rmtree(tmp_path / "out")
        else:
            met += 1
    assert met or not workshop.THOROUGH, "no kill met a run that was at work"
    placed.assert_recovers(job)


def _holds(process: subprocess.Popen[bytes], output: Path) -> bool:
    lock = output / ".penstock" / "lock"
    return lock.exists() and f"process {process.pid} " in lock.read_text()


def test_sigkill_of_workers_at_random_moments_changes_nothing(placed, tmp_path):
    chance = random.Random(6)
    job = placed.job(tmp_path / "job.yaml", workers=2)
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed = 0
    while process.poll() is None and killed < KILLS:
        below = process_tree(process.pid)[1:]
        if below and (tmp_path / "out" / ".penstock" / "job.json").exists():
            os.kill(chance.choice(below), signal.SIGKILL)
            killed += 1
        time.sleep(0.05 + chance.random() * 0.1)
    output, errors = process.communicate(timeout=120)
    # A task whose worker was shot three times is reported, and the same command goes on.
    assert process.returncode in (0, 7), output + errors
    placed.assert_recovers(job)


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("who", ["driver", "worker"])
def test_sigkill_in_the_middle_of_a_function_is_recovered_from(tmp_path, who):
    """The function holds still after some samples; the second time it goes on."""
    games = [{"count": 60} for _ in range(4)]
    data = arrays_making.write_games(tmp_path / "games", *games)
    clean = _clean(tmp_path / "clean", data)
    arrays_making.write_games(data, *games[:2], {"count": 60, "do": "waits", "at": 40, "later": True}, games[3])
    job = clean.job(tmp_path / "job.yaml", workers=2)
    (tmp_path / "wait").touch()
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    here = tmp_path / "here"
    workshop.wait_for(lambda: here.exists() and here.read_text())
    (tmp_path / "wait").unlink()
    below = process_tree(process.pid)[1:]
    os.kill(process.pid if who == "driver" else int(here.read_text()), signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    workshop.wait_for(lambda: not any(map(_runs, below)), 20)  # a function that sleeps ends with its driver
    assert process.returncode == (0 if who == "worker" else -signal.SIGKILL), output + errors
    penstock.run(job)
    arrays = [name for name in clean.written if name.endswith((".npy", ".npz"))]
    written = workshop.bytes_of(tmp_path / "out")
    assert {name: written[name] for name in arrays} == {name: clean.written[name] for name in arrays}
    arrays_making.assert_no_leftovers(tmp_path / "out")


# The n-th file operation fails: see test_a_failing_disk.py.

FAULTS = {
    "write": [Sweep(error=errno.ENOSPC), Sweep(short=True)],
    "sync": [Sweep(error=errno.EIO)],
    "rename": [Sweep(error=errno.EIO)],
    "open": [Sweep(error=errno.EMFILE)],
    "read": [Sweep(error=errno.EIO)],
    "mkdir": [Sweep(error=errno.ENOSPC)],
    "list": [Sweep(error=errno.EIO)],
    "remove": [Sweep(error=errno.EIO)],
}


OF_ARRAYS = ("placing", "parts", "npz", "npy", "checksums", "announced")


@pytest.mark.parametrize("name", ["few", "direct"])
def test_every_operation_of_a_run_may_fail(request, tmp_path, name):
    """The first of each kind on each kind of file that only arrays have; all of them in a thorough run."""
    clean: Clean = request.getfixturevalue(name)
    plan = penstock.plan(clean.job(tmp_path / "job.yaml"))
    with sweeping(Sweep()) as sweep:
        penstock.run(_at(plan, tmp_path / "first"))
    kinds = [(kind, _kind_of_file(path)) for kind, path in sweep.operations]
    chosen = {kinds.index(each) for each in set(kinds) if each[1] in OF_ARRAYS}
    chosen |= set(range(len(kinds))) if workshop.THOROUGH else set()
    assert {"placing", "npz", "manifest", "tasks"} <= {kind for _, kind in kinds}
    for number in sorted(chosen):
        kind, path = sweep.operations[number]
        for fault in FAULTS[kind] if workshop.THOROUGH else FAULTS[kind][:1]:
            where = f"operation {number}: {kind} {path}, {fault}"
            _fail_once(_at(plan, tmp_path / f"{number}-{fault.short}"), replace(fault, fail_at=number), clean, where)
    print(f"{len(chosen)} operations swept, {len(kinds)} in a clean run")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("few")
    data = arrays_making.write_games(folder / "games", {"count": 20}, {"do": "raises", "at": 9})
    return _clean(folder, data, stages=[arrays_making.NORMALIZE])


def _at(plan: Plan, output: Path) -> Plan:
    return replace(plan, config=plan.config.model_copy(update={"output": str(output)}))


def _fail_once(plan: Plan, fault: Sweep, clean: Clean, where: str) -> None:
    output = Path(plan.config.output_path)
    try:
        with sweeping(replace(fault, operations=[])):
            penstock.run(plan)
        assert fault.short, f"{where}: the fault went unnoticed"
    except FileError as error:
        assert os.strerror(fault.error) in error.what, where
        assert error.where, where
        if (output / "manifest.json").exists():
            assert workshop.bytes_of(output) == clean.written, where
    penstock.run(plan)
    assert workshop.bytes_of(output) == clean.written, where
    arrays_making.assert_no_leftovers(output)


def _kind_of_file(path: str) -> str:
    known = (*OF_ARRAYS[:2], "tasks", "manifest", "artifacts", "rejected", *OF_ARRAYS[2:])
    return next((each for each in known if f"/{each}" in path or path.endswith(f".{each}") or f".{each}." in path), "")
