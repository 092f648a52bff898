"""Spread: time and network of a plan on several machines follow from what was measured on this one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.base.errors import PlanError
from penstock.base.memory import Budget
from penstock.prepare.budget.costs import SLICES, Growth, Measured, Measurement
from penstock.prepare.budget.means import Means
from penstock.prepare.job.config import Config
from penstock.prepare.passes.cutting import cut_passes
from penstock.prepare.plan.nodes import Nodes
from penstock.prepare.plan.plan import Plan, make_plan
from penstock.prepare.plan.spread import (
    COMPARED_NODES,
    PIECE_SECONDS,
    TASK_SECONDS,
    Spread,
    extrapolated,
    makespan,
    one_node,
    spread,
    task_seconds,
    together,
)
from penstock.prepare.survey.scouting import scout
from penstock.prepare.survey.taking import take_survey

MB, FILES = 1 << 20, 12
COST = Measurement(50 * MB, 10 * MB, 3.0, row_seconds=0.02, output_row_bytes=100.0)
GROWTH = Growth(rows=10, records=5, step=2.0, exponents=(1.0, 1.0), row_bytes=8.0, record_bytes=20.0)
MEANS = Means(
    Budget(2000 * MB, "a test"),
    4,
    1 << 40,
    60 * MB,
    Measured({SLICES: COST}, spilled_row_bytes=16.0, growth=GROWTH, parts_per_output_byte=2.0),
)
FAST = 10**18  # bytes per second: the network takes no time
ROWS = 10  # of a file, which is a slice
SECONDS = FILES * ROWS * 0.02 * 5  # of all rows: one is read, and one is given, which costs as much as four


@pytest.fixture
def plan(tmp_path: Path) -> Any:
    (tmp_path / "in").mkdir()
    for file in range(FILES):
        lines = [json.dumps({"key": f"k{row}", "time": row, "size": row + 0.5}) for row in range(ROWS)]
        (tmp_path / "in" / f"{file:02d}.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def made(means: Means = MEANS, **keys: Any) -> Plan:
        job = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out"), "slice_size": "380B", **keys}
        config = Config(job, folder=str(tmp_path))
        return make_plan(*cut_passes(config, take_survey(config, scout), means.budget.allowed), means)

    return made


def on(plan: Plan, count: int, cores: float = 1, rate: int = FAST, memory: int = 2000 * MB) -> Spread:
    return spread(plan, Nodes(count, cores, Budget(memory, "--memory-per-node"), rate), planning_seconds=1.0)


def test_tasks_take_their_share_and_what_every_task_takes():
    assert task_seconds(6.0, 0.5, 3, (1, 1, 4)) == [1.5, 1.5, 4.5]
    assert task_seconds(6.0, 0.5, 3, ()) == [2.5, 2.5, 2.5]
    assert task_seconds(0.0, 0.5, 2, (0, 0)) == [0.5, 0.5]


def test_the_last_round_of_tasks_leaves_workers_idle():
    assert makespan([1.0] * 8, 4) == 2.0
    assert makespan([1.0] * 9, 4) == 3.0
    assert makespan([1.0] * 3, 100) == 1.0
    assert makespan([1.0, 1.0, 1.0, 5.0], 2) == 6.0  # the large one comes last, and the other worker waits
    assert makespan([], 4) == 0.0


def test_one_worker_moves_bytes_and_computes_by_turns_and_many_do_both_at_once():
    assert together(10.0, 4.0, workers=1) == 14.0
    assert together(10.0, 4.0, workers=4) == 11.0
    assert together(4.0, 10.0, workers=1) == 14.0


def test_work_is_shared_by_nodes_as_far_as_there_are_tasks(plan):
    seconds = {count: on(plan(), count).passes[0].compute_seconds for count in (1, 2, 4, 12, 100)}
    each = SECONDS / FILES + TASK_SECONDS
    assert seconds[1] == pytest.approx(FILES * each)
    assert seconds[2] == pytest.approx(FILES / 2 * each)
    assert seconds[4] == pytest.approx(FILES / 4 * each)
    assert seconds[100] == seconds[12] == pytest.approx(each)


def test_a_node_runs_as_many_tasks_as_it_has_cores_and_memory_for(plan):
    assert on(plan(), 2, cores=3).passes[0].workers == 3
    assert on(plan(), 2, cores=3).passes[0].at_once == 6
    little = on(plan(), 2, cores=3, memory=240 * MB).passes[0]
    assert little.workers < 3
    assert on(plan(workers=2), 2, cores=3).passes[0].workers == 2


def test_a_quota_of_a_core_makes_everything_as_much_slower(plan):
    whole, half = on(plan(), 1), on(plan(), 1, cores=0.5)
    assert half.passes[0].compute_seconds == pytest.approx(2 * whole.passes[0].compute_seconds)
    assert half.finish_seconds == 2 * whole.finish_seconds


def test_a_pass_takes_as_long_as_its_bytes_where_the_network_is_slow(plan):
    slow = on(plan(), 2, rate=100).passes[0]
    moved = slow.moved
    assert moved.output_bytes == FILES * ROWS * 100
    assert moved.input_bytes == plan().survey.file_bytes
    assert slow.network_seconds == pytest.approx(moved.all_bytes / 2 / 100)
    assert slow.seconds > slow.network_seconds > slow.compute_seconds


def test_what_a_scatter_spills_is_written_once_and_read_once(plan):
    scatter, gather = on(plan(stages=[{"group": {"by": "key", "order": "time"}}]), 4).passes
    spill = FILES * ROWS * 100
    assert (scatter.moved.spill_written_bytes, scatter.moved.spill_read_bytes) == (spill, 0)
    assert (gather.moved.spill_written_bytes, gather.moved.spill_read_bytes) == (0, spill)
    assert (gather.moved.input_bytes, gather.moved.output_bytes > 0) == (0, True)
    assert scatter.work_seconds == pytest.approx(SECONDS + FILES * (TASK_SECONDS + gather.tasks * PIECE_SECONDS))


def test_to_start_is_to_plan_twice(plan):
    assert on(plan(), 4).start_seconds == pytest.approx(2.1)


def test_one_task_does_not_get_faster_with_nodes(plan):
    single = plan(slice_size="1GB")
    assert single.task_count == 1
    assert on(single, 4).seconds == on(single, 1).seconds == one_node(on(single, 4), single, 1.0).seconds


def test_a_node_that_is_smaller_than_a_task_is_refused_with_the_numbers(plan):
    with pytest.raises(PlanError) as caught:
        on(plan(), 4, memory=100 * MB)
    assert "a node with 105 MB (--memory-per-node) is too small for a task: the job needs" in caught.value.what
    assert str(caught.value.next_step).startswith("use larger nodes; for each, memory: ")


def test_what_was_never_compared_with_a_run_is_said_to_be_extrapolated(plan):
    assert extrapolated(on(plan(), COMPARED_NODES), plan()) == []
    assert extrapolated(on(plan(), 1000, cores=4), plan()) == ["1,000 nodes", "4 workers per node"]


def test_far_more_data_than_was_compared_is_extrapolated(plan, monkeypatch):
    monkeypatch.setattr("penstock.prepare.plan.spread.COMPARED_BYTES", 10)
    assert extrapolated(on(plan(), 1), plan()) == ["4.56 kB of input"]


def test_what_is_left_out_is_said(plan):
    _, pair, _, verify, *_ = on(plan(stages=[{"near_dedup": {"column": "key"}}]), 2).passes
    assert pair.left_out.startswith("pair also reads a block of every file")
    assert pair.moved.spill_read_bytes == 12000  # what sign leaves
    assert verify.moved.spill_read_bytes == 12000 + pair.moved.spill_written_bytes  # of shingle, and of pair
