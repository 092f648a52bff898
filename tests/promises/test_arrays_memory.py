"""Promise 1, of arrays: samples many times the budget stay within it; what cannot fit is refused with numbers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.promises import arrays_making, workshop
from tests.promises.test_memory_is_a_contract import cgroup, watching

WIDE = {"count": 1000, "width": 2000}  # 8 MB of features a game
GAMES = 13


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return arrays_making.write_games(tmp_path_factory.mktemp("wide") / "games", *([WIDE] * GAMES))


@pytest.mark.core
@pytest.mark.parametrize("budget_mb", [220, 400] if workshop.THOROUGH else [220])
def test_100_mb_of_samples_survive_a_cgroup_that_kills_at_the_budget(wide, tmp_path, budget_mb):
    job = arrays_making.write_job(tmp_path / "job.yaml", wide, workers=2, memory=f"{budget_mb}MB")
    with cgroup(budget_mb * 10**6) as (enter, kills):
        process = subprocess.Popen(
            workshop.command(job), preexec_fn=enter, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with watching(process) as peak:
            output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, output + errors
        assert kills() == 0
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert max(peak[0], run["peak_memory_bytes"]) <= run["projected_memory_bytes"] <= budget_mb * 10**6
    assert not workshop.events_named(tmp_path / "out", "retry")
    written = [np.load(path, mmap_mode="r") for path in (tmp_path / "out").glob("X_*.npy")]
    assert sum(each.nbytes for each in written) == GAMES * 8_000_000


@pytest.mark.thorough
def test_a_budget_that_cannot_hold_the_job_is_refused_with_one_that_can(tmp_path):
    wide = arrays_making.write_games(tmp_path / "games", WIDE, WIDE)
    job = arrays_making.write_job(tmp_path / "job.yaml", wide, workers=1, memory="60MB", stages=[])
    done = workshop.run(job)
    assert done.returncode == 3, done.stdout + done.stderr
    error = json.loads(done.stdout)
    assert "MB for the driver" in error["what"]
    assert "60 MB" in error["what"]
    assert not (tmp_path / "out").exists()
    suggested = error["next_step"].split(",")[0].removeprefix("memory: ")
    workshop.run_well(arrays_making.write_job(tmp_path / "job.yaml", wide, workers=1, memory=suggested, stages=[]))
    run = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())
    assert run["peak_memory_bytes"] <= run["projected_memory_bytes"] <= run["allowed_memory_bytes"]


def test_merging_in_memory_is_refused_with_numbers_where_it_cannot_fit(wide, tmp_path):
    keys = {"workers": 1, "memory": "160MB", "stages": [], "merge_strategy": "accumulative"}
    done = workshop.run(arrays_making.write_job(tmp_path / "job.yaml", wide, **keys))
    assert done.returncode == 3, done.stdout + done.stderr
    error = json.loads(done.stdout)
    assert "160 MB" in error["what"]
    assert "merge_strategy: sequential" in error["next_step"]
