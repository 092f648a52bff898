"""The plan: pure, printable, and right about what it projects."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.prepare.budget.means import Means
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.plan.plan import Plan, make_plan
from tests.promises import text_making, workshop


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("plan")
    return penstock.plan(workshop.write_job(folder / "job.yaml", workshop.make_input(folder / "data"), workers=2))


def planned(plan: Plan, means: Means) -> Plan:
    return make_plan(*cut_passes(plan.config, plan.survey, means.budget.allowed), means)


def _with_memory(plan, allowed: int):
    return planned(plan, replace(plan.means, budget=Budget(allowed, "a test")))


@pytest.mark.proof
def test_planning_twice_gives_the_same_plan(plan):
    again = planned(plan, plan.means)
    assert again.passes == plan.passes
    assert again.job == plan.job


def test_less_memory_gives_smaller_batches_then_fewer_workers_then_a_refusal(plan):
    seen = []
    most = plan.means.driver_bytes + 300_000_000  # the process of the tests is the driver, and holds what they hold
    for allowed in range(most, 50_000_000, -5_000_000):
        try:
            smaller = _with_memory(plan, allowed)
        except PlanError as error:
            seen.append((0, 0))
            assert error.next_step
            assert error.next_step.startswith("memory: ")
            continue
        assert smaller.projected_memory <= allowed
        settings = smaller.passes[0].settings
        seen.append((settings.workers, settings.batch_bytes))
    assert seen[0][0] == 2
    assert seen[-1] == (0, 0)
    assert [workers for workers, _ in seen] == sorted((workers for workers, _ in seen), reverse=True)


def test_what_is_physical_changes_no_fingerprint(plan):
    smaller = _with_memory(plan, plan.projected_memory - 5_000_000)
    assert smaller.job == plan.job
    assert smaller.passes[0].tasks == plan.passes[0].tasks


def test_a_disk_without_room_is_refused_with_the_numbers(plan):
    with pytest.raises(PlanError, match="is free"):
        planned(plan, replace(plan.means, free_disk=1000))


@pytest.mark.proof
def test_a_stage_that_needs_its_artifact_gets_a_pass_of_its_own(tmp_path):
    stages = [{"statistics": ["size"]}, {"normalize": ["rtt"]}, {"normalize": ["size"]}]
    data = workshop.make_input(tmp_path / "data", files=1)
    plan = penstock.plan(workshop.write_job(tmp_path / "job.yaml", data, stages=stages))
    assert [(each.pass_.kind, each.pass_.first, each.pass_.last, each.pass_.fits) for each in plan.passes] == [
        ("fit", 0, 2, (1,)),
        ("fit", 0, 3, (2,)),
        ("map", 0, 3, (0,)),
    ]


@pytest.mark.proof
def test_columns_that_nobody_needs_are_not_read(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    stages = [{"filter": "size > 5"}, {"select": {"latency": "rtt"}}]
    assert penstock.plan(workshop.write_job(tmp_path / "job.yaml", data, stages=stages)).survey.columns == (
        "rtt",
        "size",
    )


@pytest.mark.proof
@pytest.mark.parametrize("stages", [[], workshop.STAGES, [{"select": ["src"]}]])
def test_the_projected_output_is_near_what_is_written(tmp_path, stages):
    data = workshop.make_input(tmp_path / "data", files=4, rows=30_000, group=10_000)
    plan = penstock.plan(workshop.write_job(tmp_path / "job.yaml", data, stages=stages, slice_size="500kB"))
    manifest = penstock.run(plan)
    written = sum(file.bytes for shards in manifest.splits.values() for shard in shards for file in shard.files)
    assert 0.75 * written <= plan.passes[-1].projected.output_bytes <= 1.25 * written


@pytest.mark.proof
def test_an_output_inside_the_input_folder_does_not_feed_itself(tmp_path):
    data = workshop.make_input(tmp_path / "data", files=1)
    job = workshop.write_job(data / "job.yaml", data, stages=[{"filter": {"where": "size > 5", "keep": True}}])
    penstock.run(job)
    assert json.loads((data / "out" / "manifest.json").read_text())["input"]["files"] == 1
    penstock.run(job)


@pytest.mark.proof
def test_input_with_no_rows_at_all_is_a_dataset_of_none(tmp_path):
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    pq.write_table(workshop.make_rows(0, 0), tmp_path / "data" / "none.parquet")
    for stages in ([], [{"normalize": ["rtt"]}], workshop.STAGES):
        job = workshop.write_job(Path(tmp_path / str(len(stages)) / "job.yaml"), tmp_path / "data", stages=stages)
        penstock.run(job)
        assert len(penstock.open(job.parent / "out")) == 0


@pytest.mark.proof
def test_an_exchange_cuts_the_job_into_a_scatter_and_a_gather(tmp_path):
    data = workshop.make_event_input(tmp_path / "data", files=1)
    plan = penstock.plan(workshop.write_events_job(tmp_path / "job.yaml", data))
    assert [
        (each.pass_.kind, each.pass_.first, each.pass_.last, each.pass_.fits, getattr(each.pass_.reader, "scatter", -1))
        for each in plan.passes
    ] == [
        ("scatter", 0, 2, (), -1),
        ("gather", 2, 3, (1,), 0),
    ]
    assert [len(each.tasks) for each in plan.passes] == [len(plan.survey.slices), 8 * plan.survey.bytes // 40_000 + 1]


@pytest.mark.proof
@pytest.mark.parametrize("rows", [0, 1, 60, 2000])
@pytest.mark.parametrize("format_name", ["safetensors", "arrayrecord"])
def test_few_rows_are_not_taken_to_need_much_memory(tmp_path, rows, format_name):
    """What a library takes when it is first used is no sign of what a larger batch would take."""
    import pyarrow.parquet as pq

    pq.write_table(workshop.make_events(rows, 1), tmp_path / "few.parquet")
    for workers in (0, 1):
        job = workshop.write_events_job(
            tmp_path / "job.yaml", tmp_path / "few.parquet", workers=workers, format=format_name, memory="1GB"
        )
        plan = penstock.plan(job)
        assert plan.projected_memory - plan.means.driver_bytes < 200_000_000


@pytest.mark.proof
def test_what_is_physical_changes_no_fingerprint_of_an_exchange(tmp_path):
    data = workshop.make_event_input(tmp_path / "data", files=2)
    seen = []
    for keys in ({"workers": 2}, {"workers": 0}, {"strategy": "streaming", "memory": "1GB"}):
        plan = penstock.plan(workshop.write_events_job(tmp_path / "job.yaml", data, **keys))
        seen.append((plan.job, [each.tasks for each in plan.passes]))
    assert seen[0] == seen[1] == seen[2]


@pytest.mark.proof
@pytest.mark.parametrize("format_name", ["safetensors", "arrayrecord"])
def test_the_projected_spill_and_output_of_an_exchange_are_near_what_is_written(tmp_path, format_name):
    """A heavy tail: records grow more slowly than events, so what is written is not in proportion to what is read."""
    import pyarrow.parquet as pq

    (tmp_path / "data").mkdir()
    for number in range(3):
        table = workshop.make_events(100_000, number, keys=12_500)
        pq.write_table(table, tmp_path / "data" / f"{number}.parquet", row_group_size=25_000)
    stages = [{"group": {"by": "src", "order": "time"}}, {"split": {"test": 0.1}}]
    job = workshop.write_job(
        tmp_path / "job.yaml", tmp_path / "data", stages=stages, slice_size="2MB", memory="2GB", format=format_name
    )
    plan = penstock.plan(job)
    manifest = penstock.run(plan)
    written = sum(file.bytes for shards in manifest.splits.values() for shard in shards for file in shard.files)
    spilled = json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())["spill_bytes"]
    told = {
        "spill": plan.passes[0].projected.spill_bytes / spilled,
        "output": plan.passes[1].projected.output_bytes / written,
    }
    print(told)
    assert all(0.75 <= ratio <= 1.25 for ratio in told.values()), told


@pytest.mark.proof
@pytest.mark.parametrize(("columns", "kinds"), [(100, ["map"]), (101, ["map", "place"])])
def test_more_files_than_a_task_may_hold_open_go_over_parts(tmp_path, columns, kinds):
    pq.write_table(pa.table({f"c{number}": [1, 2] for number in range(columns)}), tmp_path / "wide.parquet")
    stages = [{"split": {"test": 0.5}}]
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "wide.parquet", stages=stages, format="arrays")
    assert [each.pass_.kind for each in penstock.plan(job).passes] == kinds


def test_rows_of_batch_files_have_places_only_where_no_split_asks_for_their_positions(tmp_path):
    np.savez(tmp_path / "batch_0000.npz", features=np.zeros((5, 2)))
    for stages, kinds in (([], ["map"]), ([{"split": {"test": 0.5}}], ["map", "place"])):
        keys = {"input": {"npz": "batch_*.npz"}, "stages": stages, "format": "arrays", "workers": 0}
        job = workshop.write_job(tmp_path / "job.yaml", tmp_path, **keys)
        assert [each.pass_.kind for each in penstock.plan(job).passes] == kinds


@pytest.mark.proof
def test_a_giant_first_document_is_measured_by_its_beginning(tmp_path):
    """Of 17 MB, the driver holds a little and 1 MB is tokenized; what that costs is taken for the whole."""
    giant = "water flows through pipes " * 660_000
    data = text_making.write_documents(tmp_path / "data", [giant, "a river"])
    stages = [{"tokenize": {"tokenizer": "tokenizer"}}, {"pack": 64}]
    plan = penstock.plan(text_making.write_job(tmp_path / "job.yaml", data, stages=stages))
    assert plan.survey.sample.nbytes < 1_000_000
    shards = penstock.run(plan).splits["train"]
    written = sum(file.bytes for shard in shards for file in shard.files)
    assert plan.passes[-1].projected.output_bytes == pytest.approx(written, rel=0.3)


def test_a_first_batch_without_a_good_row_does_not_refuse_what_needs_statistics(tmp_path):
    lines = ["not JSON"] * 6000 + [f'{{"x": {number}.5}}' for number in range(4000)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    source = {"path": str(tmp_path / "rows.jsonl"), "types": {"x": "float64"}}
    job = {"input": source, "output": str(tmp_path / "out"), "workers": 0, "on_bad_input": "set_aside"}
    plan = penstock.plan({**job, "stages": [{"normalize": ["x"]}]})
    assert len(plan.passes) == 2
