"""Projection: memory, disk and time of each kind of pass follow from the means it is given."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from penstock.base.memory import Budget
from penstock.prepare.budget.costs import SLICES, Growth, Measured, Measurement
from penstock.prepare.budget.means import Means, Projection, Settings, memory_of, memory_with
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Pass
from penstock.prepare.passes.arrays.place import Place
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.passes.text.pack import Packing
from penstock.prepare.stages.text.pack import Pack
from penstock.prepare.survey.scouting import scout
from penstock.prepare.survey.taking import take_survey

MB, ROWS = 1 << 20, 40
GIVEN = pa.schema({"tokens": pa.list_(pa.int32())})
COST = Measurement(50 * MB, 10 * MB, 3.0, rows_per_second=10.0, output_row_bytes=100.0, given_per_row=0.5)
GROWTH = Growth(rows=10, records=5, step=2.0, exponents=(1.0, 1.0), row_bytes=8.0, record_bytes=20.0)
MEASURED = Measured({SLICES: COST}, spilled_row_bytes=16.0, growth=GROWTH, parts_per_output_byte=2.0)
MEANS = Means(Budget(2000 * MB, "a test"), 4, 1 << 40, 60 * MB, MEASURED)
SETTINGS = Settings(workers=2, batch_bytes=4 * MB, hold_bytes=MB, row_bytes=16.0, stored_row_bytes=16.0)
MEMORY = memory_of(2, 4 * MB, MB, COST, MEANS)


@pytest.fixture
def cut(tmp_path: Path) -> Any:
    """The passes of a job over four files of ten rows, by their kind."""
    (tmp_path / "in").mkdir()
    for file in range(4):
        lines = [json.dumps({"key": f"k{row}", "time": row, "size": row * 1.5}) for row in range(10)]
        (tmp_path / "in" / f"{file}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def passes(**keys: Any) -> dict[str, Pass]:
        job = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "slice_size": "100B", **keys}
        config = Config(job, folder=str(tmp_path))
        _, found = cut_passes(config, take_survey(config, scout), MEANS.budget.allowed)
        return {each.kind: each for each in found}

    return passes


def rows_of(each: Any) -> list[int]:
    return [each.job.survey.rows_of(piece) for piece in each.job.survey.slices]


def test_a_map_writes_the_output_and_has_as_much_on_disk_as_its_largest_tasks_at_once(cut):
    each = cut()["map"]
    rows, largest = sum(rows_of(each)), sorted(rows_of(each))[-2:]
    expected = Projection(MEMORY, sum(largest) * 100, rows * 100, seconds=rows / 20.0, rows=rows)
    assert each.project(SETTINGS, MEANS) == expected


def test_a_fit_writes_nothing_and_takes_as_long_as_the_map_behind_it(cut):
    passes = cut(stages=[{"normalize": ["size"]}])
    fit, behind = (passes[kind].project(SETTINGS, MEANS) for kind in ("fit", "map"))
    assert (fit.spill_bytes, fit.output_bytes) == (0, 0)
    assert (fit.memory_bytes, fit.seconds) == (behind.memory_bytes, behind.seconds)


def test_a_scatter_spills_what_a_gather_makes_records_of(cut):
    passes = cut(stages=[{"group": {"by": "key", "order": "time"}}])
    scatter, gather = passes["scatter"].project(SETTINGS, MEANS), passes["gather"].project(SETTINGS, MEANS)
    rows, buckets = scatter.rows, passes["gather"].task_count
    assert (scatter.spill_bytes, scatter.output_bytes) == (rows * 100, 0)
    output = MEASURED.output_bytes(rows, buckets)
    assert gather.output_bytes == output == int(rows * 0.5 * 8 + rows * 0.25 * 20)
    assert gather.spill_bytes == output // buckets * 2 + 2 * output


def test_keys_are_hashed_and_matched_beside_the_dataset(cut):
    passes = cut(stages=[{"dedup": {"column": "key"}}])
    hashed, matched = passes["hash"].project(SETTINGS, MEANS), passes["match"].project(SETTINGS, MEANS)
    assert (hashed.spill_bytes, hashed.output_bytes) == (hashed.rows * 100, 0)
    assert (matched.spill_bytes, matched.output_bytes) == (5 * matched.rows, 0)
    files_of_keys = len(passes["match"].job.survey.slices) * (8 << 10)
    assert matched.memory_bytes == memory_with(2, 64 * MB + files_of_keys, MEANS)


def test_threads_are_measured_as_they_will_be_used_and_more_workers_than_cores_are_no_faster(cut):
    each = cut()["map"]
    alone = Settings(1, 4 * MB, MB, 16.0, 16.0)
    many = Settings(8, 4 * MB, MB, 16.0, 16.0)
    threaded = Settings(2, 4 * MB, MB, 16.0, 16.0, threads=2)
    seconds = [each.project(settings, MEANS).seconds for settings in (alone, many, threaded)]
    assert seconds[0] == 4 * seconds[1] == seconds[2]


def job_of(slices: int, **more: Any) -> Any:
    return SimpleNamespace(rows=ROWS, survey=SimpleNamespace(slices=range(slices), output=(), given=(GIVEN,)), **more)


@pytest.mark.parametrize(
    ("strategy", "held"), [("sequential", 24 * MB), ("accumulative", 24 * MB + int(1.1 * ROWS * 100))]
)
def test_placing_holds_a_little_or_all_samples_and_writes_the_output_once(strategy, held):
    job = job_of(4, config=SimpleNamespace(merge_strategy=strategy), stages=())
    expected = Projection(memory_with(2, held, MEANS), 0, ROWS * 100, ROWS * 100 / 1e9, ROWS)
    assert Place(1, "place", job, 0).project(SETTINGS, MEANS) == expected


def test_packing_writes_the_output_with_a_slice_of_it_per_worker_on_the_way():
    job = job_of(4, stages=(Pack(length=1024),))
    found = Packing(1, "pack", job, 0).project(SETTINGS, MEANS)
    assert (found.spill_bytes, found.output_bytes, found.rows) == (2 * ROWS * 100 // 4, ROWS * 100, ROWS)
    assert found.memory_bytes == memory_with(2, (64 << 20) + 16 * 1024, MEANS)
