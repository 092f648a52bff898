"""Promise 3, of arrays: killed in a function, a part, a column or while files are moved, it ends in the same bytes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.memory import process_tree
from tests.promises import arrays_making, workshop
from tests.promises.killing import (
    Clean,
    assert_no_leftovers,
    clean_run,
    crash_with_workers,
    fail_once,
    failures,
    holds,
    kill_driver_when,
    points_of,
    shoot_workers,
    wait_for_the_end_of,
)

SMALL_SPLIT = [{"split": {"by": "game_id", "test": 0.4}}, arrays_making.NORMALIZE]
KILLS = 30 if workshop.THOROUGH else 2


def _clean(folder: Path, data: Path, **keys: Any) -> Clean:
    return clean_run(folder, partial(arrays_making.write_job, games=data, **keys))


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
    assert [each.pass_.kind for each in penstock.plan(folder / "job.yaml").passes] == ["map"]
    return clean


ALL_POINTS, ALL_DIRECT_POINTS = points_of("placed arrays"), points_of("direct arrays")
POINTS, DIRECT_POINTS = ALL_POINTS, ALL_DIRECT_POINTS
if not workshop.THOROUGH:  # those of arrays, and one of each kind that test_kill_it_any_time.py walks whole
    few = ("place.", "move.", "commit.before_rename", "run.before_clean_up", "task.after_shards")
    POINTS = [point for point in ALL_POINTS if point.startswith(few)]
    DIRECT_POINTS = ["task.after_shards", "task.after_ledger", "move.before_rename", "move.after_rename"]


def test_jobs_of_arrays_pass_their_crash_points_and_no_others(placed, direct):
    assert placed.points == set(ALL_POINTS)
    assert direct.points == set(ALL_DIRECT_POINTS)
    assert {"place.in_column", "place.before_ledger", "move.before_rename", "move.after_rename"} <= placed.points


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


@pytest.mark.parametrize("point", ALL_POINTS if workshop.THOROUGH else ["place.in_column"])
def test_a_worker_that_dies_at_a_named_point_changes_nothing(placed, tmp_path, point):
    crash_with_workers(placed.job(tmp_path / "job.yaml", workers=2), point, placed)


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(placed, tmp_path):
    """Each run goes on from where the one before was killed; one that ended before is followed by a new one."""
    chance = random.Random(5)
    job = placed.job(tmp_path / "job.yaml", workers=2)
    met = 0
    for _ in range(KILLS):
        met += kill_driver_when(job, lambda process: holds(process, tmp_path / "out"), chance.random() * 0.6)
        if (tmp_path / "out" / "manifest.json").exists():
            placed.assert_recovers(job)
            shutil.rmtree(tmp_path / "out")
    assert met or not workshop.THOROUGH, "no kill met a run that was at work"
    placed.assert_recovers(job)


def test_sigkill_of_workers_at_random_moments_changes_nothing(placed, tmp_path):
    job = placed.job(tmp_path / "job.yaml", workers=2)
    shoot_workers(job, KILLS, lambda _: (tmp_path / "out" / ".penstock" / "job.json").exists())
    placed.assert_recovers(job)


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
    wait_for_the_end_of(below)  # a function that sleeps ends with its driver
    assert process.returncode == (0 if who == "worker" else -signal.SIGKILL), output + errors
    penstock.run(job)
    arrays = [name for name in clean.written if name.endswith((".npy", ".npz"))]
    written = workshop.bytes_of(tmp_path / "out")
    assert {name: written[name] for name in arrays} == {name: clean.written[name] for name in arrays}
    assert_no_leftovers(tmp_path / "out")


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("few")
    data = arrays_making.write_games(folder / "games", {"count": 20}, {"do": "raises", "at": 9})
    return _clean(folder, data, stages=[arrays_making.NORMALIZE])


OF_ARRAYS = ("placing", "parts", "npz", "npy", "checksums", "announced")
OF_DIRECT = ("placing", "npz", "npy", "checksums", "announced")


@pytest.mark.parametrize(("name", "of"), [("few", OF_ARRAYS), ("direct", OF_DIRECT)], ids=["few", "direct"])
def test_every_operation_of_a_run_may_fail(request, tmp_path, name, of):
    """The first of each kind on each kind of file that only arrays have; all of them in a thorough run."""
    clean: Clean = request.getfixturevalue(name)
    plan = penstock.plan(clean.job(tmp_path / "job.yaml"))
    for failing, fault, where in failures(plan, tmp_path, _kind_of_file, of):
        fail_once(failing, fault, clean.written, where)


def _kind_of_file(path: str) -> str:
    known = (*OF_ARRAYS[:2], "tasks", "manifest", "artifacts", "rejected", *OF_ARRAYS[2:])
    return next((each for each in known if f"/{each}" in path or path.endswith(f".{each}") or f".{each}." in path), "")
