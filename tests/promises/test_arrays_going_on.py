"""Promise 3, of arrays: what a run that goes on keeps is what it would write, and what is replaced leaves nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import IntegrityError
from penstock.base.memory import own_memory
from tests.promises import arrays_making, workshop
from tests.promises.killing import assert_no_leftovers


def _write_table(path: Path, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    features = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(0, 1, rows * 40).astype("f4")), 40)
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"features": features, "labels_a": rng.integers(0, 9, rows)}), path)


def _tables(folder: Path, *counts: int) -> Path:
    """A job of a file a task, whose rows have their places before they are read."""
    for number, count in enumerate(counts):
        _write_table(folder / "tables" / f"{number}.parquet", count, number)
    return _table_job(folder)


def _table_job(folder: Path, **keys: Any) -> Path:
    stages = [{"split": {"test": 0.2}}]
    source = {"path": str(folder / "tables")}
    return arrays_making.write_job(
        folder / "job.yaml", folder, input=source, format="arrays", **{"stages": stages, "slice_size": "40kB", **keys}
    )


def _kinds(job: Path) -> list[str]:
    return [each.pass_.kind for each in penstock.plan(job).passes]


@pytest.mark.parametrize(("before", "after"), [("sequential", "accumulative"), ("accumulative", "sequential")])
def test_another_merge_strategy_in_the_middle_of_a_job_places_every_row(tmp_path, die, before, after):
    _tables(tmp_path / "clean", 300, 250, 200)
    penstock.run(_table_job(tmp_path / "clean", merge_strategy=after))
    _tables(tmp_path / "out", 300, 250, 200)
    job = _table_job(tmp_path / "out", merge_strategy=before)
    for _ in range(2):
        die(job, "task.after_ledger")
    penstock.run(_table_job(tmp_path / "out", merge_strategy=after))
    assert workshop.bytes_of(tmp_path / "out" / "out") == workshop.bytes_of(tmp_path / "clean" / "out")
    assert_no_leftovers(tmp_path / "out" / "out")


def test_the_memory_of_a_driver_that_does_the_tasks_itself_counts_once(tmp_path):
    """A notebook that holds 300 MB of its own leaves the rest of the budget to `merge_strategy: accumulative`."""
    ballast = np.ones(300_000_000, np.uint8)
    _tables(tmp_path, 300, 250, 200)
    job = _table_job(tmp_path, merge_strategy="accumulative", memory=own_memory().counted + 200_000_000)
    assert penstock.run(job).facts()["records"] == "599 in train, 151 in test"
    assert len(ballast) == 300_000_000


@pytest.mark.parametrize("rows", [290, 340])
def test_rows_behind_a_file_that_has_another_length_now_are_placed_anew(tmp_path, die, rows):
    job = _tables(tmp_path, 300, 250, 200)
    assert _kinds(job) == ["map"]
    for _ in range(2):
        die(job, "task.after_ledger")
    assert len(list((tmp_path / "out/.penstock/tasks").iterdir())) == 2
    _write_table(tmp_path / "tables" / "0.parquet", rows, 7)
    penstock.run(job)
    clean = _tables(tmp_path / "clean", 300, 250, 200)
    _write_table(tmp_path / "clean" / "tables" / "0.parquet", rows, 7)
    penstock.run(clean)
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(tmp_path / "clean" / "out")


def test_what_was_placed_is_kept_through_one_kill_after_the_other(tmp_path, die):
    """Files of splits that have no row yet are there from the start, or tasks would count as lost with them."""
    data = arrays_making.write_games(tmp_path / "games", *({"count": 20, "seed": 3} for _ in range(6)))
    job = arrays_making.write_job(tmp_path / "job.yaml", data, stages=[arrays_making.SPLIT])
    maps = len(penstock.plan(job).passes[0].tasks)
    assert maps > 1
    tasks = tmp_path / "out/.penstock/tasks"
    for _ in range(maps):
        die(job, "task.after_ledger")
    for placed in (1, 2):
        die(job, "task.after_ledger")
        assert len(list(tasks.glob("1-place-*"))) == placed
    penstock.run(job)
    assert arrays_making.records_of(tmp_path / "out") == 120


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_byte_that_changed_after_it_was_placed_is_named_and_mended_as_told(tmp_path, die):
    job = _tables(tmp_path, 300, 250, 200)
    die(job, "move.before_rename")
    placing = tmp_path / "out/.penstock/placing/labels_a_train.npy"
    _flip(placing)
    with pytest.raises(IntegrityError, match=r"of labels_a_train.npy differ from the bytes that were placed") as caught:
        penstock.run(job)
    assert "delete that file" in caught.value.next_step
    assert not (tmp_path / "out" / "manifest.json").exists()
    placing.unlink()
    penstock.run(job)
    penstock.run(_tables(tmp_path / "clean", 300, 250, 200))
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(tmp_path / "clean" / "out")


def test_a_byte_that_changed_in_a_column_of_its_own_is_named_by_the_run_or_by_verify(tmp_path, die):
    job = _tables(tmp_path, 300, 250, 200)
    die(job, "move.before_rename")
    _flip(tmp_path / "out/.penstock/placing/X_train.npy")
    try:
        penstock.run(job)
    except IntegrityError as error:
        assert "X_train.npy" in error.what
    else:
        assert any("X_train.npy" in str(problem) for problem in penstock.verify(tmp_path / "out").problems)


# What is set aside for time is tried again by a run that goes on.


def test_a_file_that_hung_is_tried_again_when_the_run_goes_on(tmp_path):
    data = arrays_making.write_games(tmp_path / "games", {}, {"do": "waits", "at": 5, "later": True}, {})
    keys = {"workers": 1, "task_timeout": 1.0, "on_bad_input": "set_aside"}
    job = arrays_making.write_job(tmp_path / "job.yaml", data, **keys)
    (tmp_path / "wait").touch()
    penstock.run(job)
    output = tmp_path / "out"
    assert [line["reason"] for line in arrays_making.rejected_of(output)] == ["function hung"]
    assert arrays_making.records_of(output) == 60
    (tmp_path / "wait").unlink()
    (output / "manifest.json").unlink()
    penstock.run(job)
    assert arrays_making.rejected_of(output) == []
    assert arrays_making.records_of(output) == 90


# What is replaced.


@pytest.mark.parametrize("manifest", ["whole", "damaged", "deleted"])
def test_arrays_that_are_replaced_are_gone_whatever_became_of_their_manifest(tmp_path, manifest):
    job = _tables(tmp_path, 30, 20)
    penstock.run(job)
    path = tmp_path / "out" / "manifest.json"
    if manifest == "damaged":
        _flip(path)
    if manifest == "deleted":
        path.unlink()
    (tmp_path / "out" / "notes.npy").write_text("a person's own")
    penstock.run(_table_job(tmp_path, stages=[{"select": ["features"]}]), redo=True)
    found = sorted(each.name for each in (tmp_path / "out").iterdir() if each.suffix in (".npy", ".npz"))
    assert found == ["X_train.npy", "notes.npy"]
    (tmp_path / "out" / "notes.npy").unlink()
    assert not penstock.verify(tmp_path / "out").problems


def test_batch_files_of_any_number_are_gone_when_they_are_made_anew(tmp_path):
    """`batch_0000__1000.npz` is the one after `batch_0000_999.npz`."""
    data = arrays_making.write_games(tmp_path / "games", {"count": 12}, {"count": 12})
    keys = {"format": "npz", "stages": [], "slice_size": "1MB"}
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, batch_size=5, **keys))
    assert len(list((tmp_path / "out").glob("batch_*"))) == 6
    np.savez(tmp_path / "out" / "batch_0000__1000.npz", features=np.zeros(3))
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, batch_size=50, **keys), redo=True)
    left = sorted(path.name for path in (tmp_path / "out").glob("batch_*"))
    assert left == ["batch_0000.npz", "batch_0001.npz"]


def test_batch_files_that_arrays_replace_are_gone(tmp_path):
    data = arrays_making.write_games(tmp_path / "games", {"count": 12})
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, format="npz", stages=[]))
    assert (tmp_path / "out" / "batch_0000.npz").exists()
    penstock.run(arrays_making.write_job(tmp_path / "job.yaml", data, stages=[]), redo=True)
    assert not list((tmp_path / "out").glob("batch_*"))
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["config"]["format"] == "arrays"
    assert not penstock.verify(tmp_path / "out").problems
