"""Promise 2, of arrays: the same bytes for any number of workers, any budget, any placement, and in two steps."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.shards.origins import ORIGIN
from tests.promises import arrays_making, workshop
from tests.promises.killing import assert_no_leftovers

Expected = tuple[Path, dict[str, str]]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """Games of which one raises and one has no sample, and the bytes that a run inside the driver writes."""
    folder = tmp_path_factory.mktemp("same")
    data = arrays_making.many_games(folder / "games")
    arrays_making.write_games(folder / "more", {"count": 0}, {"count": 90, "do": "raises", "at": 70})
    for name in ("0", "1"):
        shutil.move(folder / "more" / f"{name}.game", data / f"more-{name}.game")
    written = _written(arrays_making.write_job(folder / "first" / "job.yaml", data))
    assert (folder / "first" / "out" / "X_train.npy").stat().st_size > 2 * (64 << 10), "no block is shared by two tasks"
    assert len(list((folder / "first" / "out" / ".penstock" / "tasks").glob("0-map-*"))) > 2
    assert any(name.startswith("rejected/") for name in written)
    return data, written


def _written(job: Path, **environment: str) -> dict[str, str]:
    workshop.run_well(job, environment=environment) if environment else penstock.run(job)
    assert_no_leftovers(job.parent / "out")
    return workshop.bytes_of(job.parent / "out")


@pytest.mark.parametrize(
    ("keys", "environment"),
    [
        ({"workers": 1, "memory": "200MB"}, {"TZ": "America/St_Johns"}),
        ({"workers": 2, "merge_strategy": "accumulative"}, {"PYTHONHASHSEED": "1", "TZ": "Pacific/Chatham"}),
        ({"workers": 3, "memory": "1GB"}, {"PYTHONHASHSEED": "2", "LC_ALL": "C", "PYTHONUTF8": "0"}),
        ({"workers": 0, "merge_strategy": "accumulative"}, {}),
        ({"workers": 2, "strategy": "streaming"}, {}),
        ({"workers": 2, "memory": "200MB"}, {"LC_ALL": "C"}),
    ][: None if workshop.THOROUGH else 4],
    ids=str,
)
def test_workers_memory_strategies_hash_seed_and_time_zone_do_not_show(expected, tmp_path, keys, environment):
    data, first = expected
    assert _written(arrays_making.write_job(tmp_path / "job.yaml", data, **keys), **environment) == first


def test_the_order_of_files_on_disk_and_where_they_lie_do_not_show(expected, tmp_path):
    data, first = expected
    (tmp_path / "elsewhere").mkdir()
    for path in sorted(data.iterdir(), reverse=True):  # another directory, filled in another order
        shutil.copyfile(path, tmp_path / "elsewhere" / path.name)
    job = arrays_making.write_job(tmp_path / "job.yaml", tmp_path / "elsewhere")
    assert _written(job) == first


@pytest.mark.parametrize("batch_bytes", [300, 8_000_000])
def test_how_much_is_read_at_once_does_not_show(expected, tmp_path, batch_bytes):
    """From a sample at a time to all of them; the game that raises has gone on to the sink, or has not."""
    data, first = expected
    plan = penstock.plan(arrays_making.write_job(tmp_path / "job.yaml", data))
    penstock.run(workshop.with_batches(plan, batch_bytes))
    assert workshop.bytes_of(tmp_path / "out") == first


# Rows whose places are known before they are read, and the same rows put down in parts first.


def _columns(count: int, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(2, 9, (count, 40)).astype("f4"),
        "labels_action": rng.integers(-1, 4, count).astype("i2"),
        "masks_action": rng.integers(0, 2, (count, 4)).astype("i1"),
    }


@pytest.fixture(scope="module", params=["npz", "parquet"])
def table(request, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The `input:` of a job over files that tell how many rows they have."""
    folder = tmp_path_factory.mktemp(request.param)
    for number, count in enumerate((700, 0, 1, 901)):
        columns = _columns(count, number)
        if request.param == "npz":
            np.savez(folder / f"{number}.npz", **columns)
        else:
            lists = {name: pa.FixedSizeListArray.from_arrays(pa.array(each.ravel()), each.shape[1]) if each.ndim > 1
                     else pa.array(each) for name, each in columns.items()}  # fmt: skip
            pq.write_table(pa.table(lists), folder / f"{number}.parquet", row_group_size=250)
    return {"npz": f"{folder}/*.npz"} if request.param == "npz" else {"path": str(folder)}


def _table_job(path: Path, source: dict[str, Any], **keys: Any) -> Path:
    stages = [{"split": {"val": 0.1, "test": 0.1}}]
    keys = {"stages": stages, "format": "arrays", "slice_size": "50kB", **keys, "input": source}
    return arrays_making.write_job(path, path, **keys)


def _kinds(job: Path) -> list[str]:
    return [each.pass_.kind for each in penstock.plan(job).passes]


def test_arrays_are_the_same_placed_directly_or_in_parts(table, tmp_path):
    direct = _table_job(tmp_path / "direct" / "job.yaml", table)
    assert _kinds(direct) == (["map", "place"] if "npz" in table else ["map"])  # rows of npz bring their positions
    penstock.run(direct)
    expected = arrays_making.arrays_of(direct.parent / "out")
    assert np.load(direct.parent / "out" / "X_train.npy").nbytes > 2 * (64 << 10)
    assert arrays_making.records_of(direct.parent / "out") == 1602
    for name, keys in {"parts": {"on_bad_input": "set_aside"}, "held": {"merge_strategy": "accumulative"}}.items():
        job = _table_job(tmp_path / name / "job.yaml", table, **keys)
        assert _kinds(job) == ["map", "place"]
        penstock.run(job)
        assert arrays_making.arrays_of(job.parent / "out") == expected
        assert not penstock.verify(job.parent / "out").problems
    assert workshop.bytes_of(tmp_path / "held" / "out") == workshop.bytes_of(direct.parent / "out")


def test_workers_and_memory_do_not_show_in_direct_placement(table, tmp_path):
    inside = _table_job(tmp_path / "inside" / "job.yaml", table)
    penstock.run(inside)
    job = _table_job(tmp_path / "job.yaml", table, workers=2, memory="200MB")
    assert _written(job, LC_ALL="C") == workshop.bytes_of(
        inside.parent / "out"
    )  # by command: a test's own process is large


# Batch files between: made in one command and merged in another.


@pytest.mark.thorough
def test_arrays_are_the_same_in_one_step_and_in_two(expected, tmp_path):
    data, first = expected
    keys = {"intermediate_dir": "between", "batch_size": 100}
    job = arrays_making.write_job(tmp_path / "two" / "job.yaml", data, **keys)
    workshop.run_well(job, "--skip-merge")
    assert not (job.parent / "out").exists()
    between = job.parent / "between"
    batches = workshop.bytes_of(between)
    assert len([name for name in batches if name.startswith("batch_")]) > 6
    merge = workshop.command(between, "--config", str(job), do="merge")
    done = subprocess.run(merge, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    two_steps = workshop.bytes_of(job.parent / "out")
    assert _arrays(two_steps) == _arrays(first)  # origins aside: batch files keep none
    assert_no_leftovers(between)

    job = arrays_making.write_job(tmp_path / "one" / "job.yaml", data, workers=2, **keys)
    penstock.run(job)  # both steps in one command
    assert workshop.bytes_of(job.parent / "out") == two_steps
    assert workshop.bytes_of(job.parent / "between") == batches


@pytest.mark.thorough
def test_a_split_by_position_is_the_same_in_one_step_and_in_two(expected, tmp_path):
    """Batch files tell where their samples came from, and that decides the split."""
    data, _ = expected
    stages = [{"split": {"val": 0.2, "test": 0.2}}]
    for name, keys in {"one": {}, "two": {"intermediate_dir": "between", "batch_size": 100}}.items():
        penstock.run(arrays_making.write_job(tmp_path / name / "job.yaml", data, stages=stages, **keys))
    one, two = (arrays_making.arrays_of(tmp_path / name / "out") for name in ("one", "two"))
    assert one == two


def _arrays(written: dict[str, str]) -> dict[str, str]:
    return {
        name: digest
        for name, digest in written.items()
        if name.endswith((".npy", ".npz")) and not name.startswith(ORIGIN)
    }
