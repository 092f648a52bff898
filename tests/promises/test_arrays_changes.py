"""Promise 3, of arrays: what changed since the last run is noticed and done again, never mixed; nothing old stays."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import OutputError
from tests.promises import arrays_making, workshop
from tests.promises.killing import assert_no_leftovers

GAMES = [{"count": 40}, {"count": 50}, {"count": 60}]


def _change_a_game(folder: Path) -> dict[str, Any]:
    (folder / "games" / "1.game").write_text(json.dumps({"seed": 1, "count": 75}))
    return {}


def _add_and_remove_games(folder: Path) -> dict[str, Any]:
    (folder / "games" / "0.game").unlink()
    (folder / "games" / "9.game").write_text(json.dumps({"seed": 9, "count": 31}))
    return {}


def _change_the_function(folder: Path) -> dict[str, Any]:
    changed = (folder / "games.py").read_text().replace("rng.normal(5, 3", "rng.normal(6, 3")
    (folder / "games.py").write_text(changed)
    return {}


def _change_the_split(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": [{"split": {"by": "game_id", "test": 0.6}}, arrays_making.NORMALIZE]}


def _normalise_other_elements(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": [arrays_making.SPLIT, {"normalize": {"columns": ["features"], "skip": ["9:30"]}}]}


def _leave_columns_out(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"stages": [{"select": ["features", "game_id", "labels_action"]}]}


def _write_shards(folder: Path) -> dict[str, Any]:  # noqa: ARG001
    return {"format": "safetensors"}


CHANGES = [
    _change_a_game,
    _change_the_split,
    _leave_columns_out,
    _write_shards,
]
if workshop.THOROUGH:
    CHANGES += [_add_and_remove_games, _change_the_function, _normalise_other_elements]
POINTS = ["place.before_ledger", "move.after_rename", ""]
POINTS += ["task.after_ledger", "place.in_column", "run.before_manifest"] if workshop.THOROUGH else []


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__.strip("_"))
def test_a_change_after_any_end_of_a_run_gives_what_a_fresh_run_gives(tmp_path, die, change):
    """The run before had died in its map tasks, in its placing, in the moving of files, or had ended well."""
    _make(tmp_path / "fresh")
    fresh = _job(tmp_path / "fresh", **change(tmp_path / "fresh"))
    penstock.run(fresh)
    for point in POINTS:
        folder = tmp_path / (point or "whole")
        _make(folder)
        die(folder / "job.yaml", point) if point else penstock.run(folder / "job.yaml")
        job = _job(folder, **change(folder))
        if not point:
            with pytest.raises(OutputError, match="made from something else"):
                penstock.run(job)
        penstock.run(job, redo=not point)
        assert workshop.bytes_of(folder / "out") == workshop.bytes_of(tmp_path / "fresh" / "out"), point
        assert_no_leftovers(folder / "out")


def _make(folder: Path) -> None:
    arrays_making.write_games(folder / "games", *GAMES)
    arrays_making.write_job(folder / "job.yaml", folder / "games")


def _job(folder: Path, **keys: Any) -> Path:
    function = (folder / "games.py").read_text()
    job = arrays_making.write_job(folder / "job.yaml", folder / "games", **keys)
    (folder / "games.py").write_text(function)
    return job


@pytest.mark.parametrize("point", ["commit.after_rename", *(["task.after_ledger"] if workshop.THOROUGH else [])])
def test_batch_files_that_are_half_made_are_made_whole_and_merged(tmp_path, die, point):
    data = arrays_making.write_games(tmp_path / "games", *GAMES)
    keys = {"intermediate_dir": "between", "batch_size": 25}
    clean = arrays_making.write_job(tmp_path / "clean" / "job.yaml", data, **keys)
    penstock.run(clean)
    job = arrays_making.write_job(tmp_path / "job.yaml", data, **keys)
    for _ in range(3):
        die(job, point)
    penstock.run(job)
    for folder in ("between", "out"):
        assert workshop.bytes_of(tmp_path / folder) == workshop.bytes_of(clean.parent / folder)
        assert workshop.names_in(tmp_path / folder) == workshop.names_in(clean.parent / folder)
        assert_no_leftovers(tmp_path / folder)


def test_a_merge_of_batch_files_of_which_one_is_damaged_names_it(tmp_path):
    data = arrays_making.write_games(tmp_path / "games", *GAMES)
    job = arrays_making.write_job(tmp_path / "job.yaml", data, intermediate_dir="between", batch_size=25)
    workshop.run_well(job, "--skip-merge")
    damaged = sorted((tmp_path / "between").glob("batch_*.npz"))[1]
    content = bytearray(damaged.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    merge = workshop.command(tmp_path / "between", "--config", str(job), do="merge")
    done = subprocess.run(merge, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (4, 6), done.stdout + done.stderr
    assert damaged.name in done.stdout
    assert not (tmp_path / "out" / "manifest.json").exists()


def _number_or_nothing(number: int) -> dict[str, float]:
    return {} if number else {"x": 1.0}


@pytest.mark.parametrize("other", [float("inf"), None])
def test_another_value_for_a_missing_key_is_noticed_where_json_has_none_of_both(tmp_path, other):
    def run(value: Any) -> penstock.Manifest:
        source = {"items": 3, "function": _number_or_nothing, "schema": {"x": "float64"}, "missing": {"x": value}}
        return penstock.run({"input": source, "output": str(tmp_path / "out"), "workers": 0}, progress=False)

    run(float("nan"))
    run(np.float32("nan"))
    with pytest.raises(OutputError, match=r'input\[0\]\.missing\.x: "nan" -> '):
        run(other)
