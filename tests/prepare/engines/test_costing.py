"""A job is measured once: to resume or repeat it, no worker tries a part of it. Anything else is measured again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base import machine
from penstock.prepare.budget import kept_costs
from penstock.prepare.budget.kept_costs import COSTS
from penstock.prepare.engines.trying.trial import Trial
from penstock.prepare.plan.plan import Plan

CODE = "def kept(batch):\n    return batch\n"


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Grows with each trial of a real worker."""
    trials: list[Any] = []
    real = Trial.measure

    def measure(self: Trial, *facts: Any) -> Any:
        trials.append(facts)
        return real(self, *facts)

    monkeypatch.setattr(Trial, "measure", measure)
    return trials


def job_in(folder: Path, **keys: Any) -> dict[str, Any]:
    if not (folder / "rows.parquet").exists():
        rows = pa.table({"key": [f"k{n % 7}" for n in range(4000)], "value": range(4000)})
        pq.write_table(rows, folder / "rows.parquet")
    stages = [{"group": {"by": "key", "order": "value"}}]
    job = {"input": str(folder / "rows.parquet"), "output": str(folder / "out"), "stages": stages}
    return {**job, "workers": 1, "memory": "1GB", **keys}


def costs_of(plan: Plan) -> Any:
    return plan.means.measured.costs


def test_a_plan_writes_nothing_and_a_run_remembers(tmp_path, measured):
    plan = penstock.plan(job_in(tmp_path))
    assert not (tmp_path / "out").exists()
    penstock.run(plan)
    assert len(measured) == 1
    again = penstock.plan(job_in(tmp_path))
    assert len(measured) == 1
    assert costs_of(again) == costs_of(plan)
    penstock.run(again)  # it is done already
    penstock.run(job_in(tmp_path), redo=True)
    penstock.run(job_in(tmp_path), redo=True)
    assert len(measured) == 1


def test_a_run_that_was_stopped_and_resumed_measures_once(tmp_path, measured):
    def stop(event):
        if event["event"] == "task":
            raise KeyboardInterrupt

    for _ in range(2):
        with pytest.raises(penstock.PenstockError, match="stopped with"):
            penstock.run(job_in(tmp_path), observe=stop)
    penstock.run(job_in(tmp_path))
    assert len(measured) == 1


@pytest.mark.proof
@pytest.mark.parametrize("change", ["memory", "workers", "machine", "boot", "version", "input", "file"])
def test_what_is_not_the_same_is_measured_again(tmp_path, measured, monkeypatch, change):
    penstock.run(job_in(tmp_path))
    keys: dict[str, Any] = {}
    match change:
        case "memory":
            keys = {"memory": "900MB"}
        case "workers":
            keys = {"workers": 2}
        case "machine":
            monkeypatch.setattr(machine, "processor", lambda: "another")
        case "boot":
            monkeypatch.setattr(machine, "boot_id", lambda: "another")
        case "version":
            monkeypatch.setattr(kept_costs.pa, "__version__", "0.1")
        case "input":
            pq.write_table(pa.table({"key": ["k"] * 500, "value": range(500)}), tmp_path / "rows.parquet")
        case "file":
            (tmp_path / "out" / COSTS).write_bytes(b"damaged")
    penstock.plan(job_in(tmp_path, **keys))
    assert len(measured) == 2


def test_other_code_of_the_user_is_measured_again(tmp_path, measured, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = f"stage_{tmp_path.name}"
    stages = [f"{module}:kept"]
    (tmp_path / f"{module}.py").write_text(CODE)
    penstock.run(job_in(tmp_path, stages=stages))
    penstock.plan(job_in(tmp_path, stages=stages))
    assert len(measured) == 1
    stages = [f"{module}_other:kept"]
    (tmp_path / f"{module}_other.py").write_text(CODE.replace("return batch", "return batch.slice(0)"))
    penstock.plan(job_in(tmp_path, stages=stages))
    assert len(measured) == 2


@pytest.mark.proof
def test_after_a_task_was_tried_again_it_is_measured_again(tmp_path, measured, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    module = f"dying_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "import os, pathlib\n"
        "def kept(batch):\n"
        f"    once = pathlib.Path({str(tmp_path / 'died')!r})\n"
        f"    if pathlib.Path({str(tmp_path / 'dies')!r}).exists() and not once.exists():\n"
        "        once.touch()\n"
        "        os._exit(1)\n"
        "    return batch\n"
    )
    job = job_in(tmp_path, stages=[f"{module}:kept"])
    plan = penstock.plan(job)
    (tmp_path / "dies").touch()
    penstock.run(plan)
    assert (tmp_path / "died").exists()
    assert json.loads((tmp_path / "out" / COSTS).read_text()) == {}
    penstock.plan(job)
    assert len(measured) == 2
