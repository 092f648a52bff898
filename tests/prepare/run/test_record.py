"""run.json tells of each pass, of memory over time and of the slowest tasks, in a bounded size."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.prepare.run.record import Slowest, Timeline


@pytest.fixture
def job(tmp_path):
    for number in range(3):
        table = pa.table({"x": list(range(100 * number, 100 * number + 100)), "key": [i % 7 for i in range(100)]})
        pq.write_table(table, tmp_path / f"in-{number}.parquet")
    return {
        "input": str(tmp_path / "in-*.parquet"),
        "output": str(tmp_path / "out"),
        "workers": 0,
        "slice_size": "1kB",
        "stages": [{"filter": {"where": ["x >= 50"]}}, {"normalize": {"columns": ["x"]}}],
    }


def _run_facts(tmp_path):
    return json.loads((tmp_path / "out" / ".penstock" / "run.json").read_text())


def test_each_pass_has_its_rows_bytes_tasks_and_memory(job, tmp_path):
    penstock.run(job)
    passes = _run_facts(tmp_path)["passes"]
    assert [(each["number"], each["kind"]) for each in passes] == [(0, "fit"), (1, "map")]
    read = sum((tmp_path / f"in-{number}.parquet").stat().st_size for number in range(3))
    for each in passes:
        assert (each["rows"], each["tasks"], each["tasks_done"], each["tasks_kept"]) == (300, 3, 3, 0)
        assert 0 < each["bytes"] <= read
        memory = each["memory"]
        assert memory["peak"] >= max(memory["start"], memory["end"]) > 0
        assert memory["increase"] == memory["peak"] - memory["start"]
    assert passes[1]["stages"] == ["filter", "normalize"]


def test_a_resumed_run_tells_its_own_work_and_what_it_kept(job, tmp_path):
    def stop(event):
        if event["event"] == "task" and event["task"] == "1-map-00001":
            raise KeyboardInterrupt

    with pytest.raises(penstock.Interrupted):
        penstock.run(job, observe=stop)
    penstock.run(job)
    facts = _run_facts(tmp_path)
    fit, last = facts["passes"]
    assert (fit["rows"], fit["tasks_kept"], fit["rows_kept"]) == (0, 3, 300)
    assert (last["rows"], last["tasks_done"], last["tasks_kept"], last["rows_kept"]) == (100, 1, 2, 200)
    assert [each["task"] for each in facts["slowest"]] == ["1-map-00002"]


def test_the_slowest_tasks_are_named_with_their_input(job, tmp_path):
    penstock.run(job)
    slowest = _run_facts(tmp_path)["slowest"]
    assert len(slowest) == 6
    assert [each["seconds"] for each in slowest] == sorted((each["seconds"] for each in slowest), reverse=True)
    assert {each["pass"] for each in slowest} == {0, 1}
    assert all(each["attempts"] == 1 and "in-" in each["slice"] for each in slowest)


def test_a_timeline_of_a_long_run_keeps_its_peaks_in_500_points():
    timeline = Timeline()
    for number in range(100_000):
        timeline.add(number * 0.25, 1_000 if number != 77_777 else 9_999, number // 50_000)
    points = timeline.facts()
    assert 250 <= len(points) <= 500
    [peak] = [point for point in points if point[1] == 9_999]
    assert peak[0] <= 77_777 * 0.25 < peak[0] + timeline.span
    assert peak[2] == 1
    assert [point[0] for point in points] == sorted({point[0] for point in points})


def test_only_the_twenty_slowest_tasks_are_kept():
    slowest = Slowest()
    for number in range(1000):
        facts = {"task": str(number), "pass_number": 0, "rows": 1, "bytes": 1, "attempts": 1, "slice": ""}
        slowest.add({**facts, "event": "task", "time": 0.0, "seconds": float(number % 500), "set_aside": {}})
    assert [each["seconds"] for each in slowest.facts()] == [float(s) for s in range(499, 489, -1) for _ in range(2)]
