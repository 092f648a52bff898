"""What people read of `penstock plan --nodes`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import main


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: Any) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "150")
    for file in range(3):
        lines = [json.dumps({"key": f"k{row % 7}", "time": row}) for row in range(100)]
        (tmp_path / f"in-{file}.jsonl").write_text("\n".join(lines) + "\n")
    (tmp_path / "job.yaml").write_text(
        "input: in-*.jsonl\noutput: out\nmemory: 1GB\nslice_size: 1kB\nworkers: 0\n"
        "stages: [{group: {by: key, order: time}}]\n"
    )
    return tmp_path


@pytest.fixture
def shown(desk: Path, capfd: Any) -> Any:  # noqa: ARG001
    def said(*arguments: str, code: int = 0) -> str:
        assert main(["plan", "job.yaml", *arguments]) == code
        told = capfd.readouterr()
        return " ".join(str(told.err if code else told.out).split())

    return said


def test_without_nodes_nothing_is_said_about_them(shown):
    assert "penstock work" not in shown()
    assert json.loads(shown("--json"))["projection"] is None


def test_time_spill_and_network_are_told_with_what_is_assumed(desk, shown):
    out = shown("--nodes", "2", "--cores", "8", "--memory-per-node", "32GB", "--network", "25Gbit")
    assert "On 2 nodes with `penstock work`, each with 8 cores, 1 GB (memory: 1GB):" in out
    assert "to start: the run plans, then every node" in out
    assert "in the shared folder, gone when the job is done" in out
    assert "25 Gbit/s per node, from storage that serves all nodes at that speed (--network)" in out
    assert "nodes as fast as this machine" in out
    assert not (desk / "out").exists()


def test_a_network_that_nobody_names_is_named(shown):
    assert "10 Gbit/s per node" in shown("--nodes", "4")


def test_json_has_the_same(shown):
    facts = json.loads(shown("--nodes", "2", "--cores", "1", "--json"))["projection"]
    assert (facts["nodes"], facts["cores"], facts["network_bytes_per_second"]) == (2, 1, 1_250_000_000)
    assert [each["kind"] for each in facts["passes"]] == ["scatter", "gather"]
    told = facts["start_seconds"] + facts["finish_seconds"] + sum(each["seconds"] for each in facts["passes"])
    assert facts["seconds"] == pytest.approx(told, abs=0.01)
    assert facts["network_bytes"] == sum(sum(each["moved"].values()) for each in facts["passes"])


def test_a_job_of_one_task_is_said_not_to_get_faster(shown):
    out = shown("--nodes", "4", "--set", "slice_size=1GB", "--set", "stages=[]")
    assert "no faster than 1 such node, because map is one task" in out
    assert "1, 3 idle" in out


def test_more_than_was_ever_compared_is_extrapolated(shown):
    assert "extrapolated to 64 nodes: the model was compared with up to 4 nodes" in shown("--nodes", "64")


def test_a_node_smaller_than_a_task_is_refused(shown):
    out = shown("--nodes", "4", "--memory-per-node", "20MB", code=3)
    assert "a node with 20 MB (--memory-per-node 20MB, less than memory: 1GB) is too small for a task" in out


def test_no_node_at_all_is_refused_before_anything_is_read(desk, shown):
    (desk / "in-0.jsonl").write_bytes(b"\xff{{{")
    assert "--nodes is 0, and must be at least 1" in shown("--nodes", "0", code=2)
