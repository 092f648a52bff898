"""Promises 3 and 7, on a bad day: the n-th file operation fails, for every n in a thorough run, else for a spread.

Each run ends in a clear error or a complete dataset; nothing that was committed changes; the next run succeeds.
"""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import FileError
from penstock.base.faults import Sweep, sweeping
from penstock.prepare.plan.plan import Plan
from tests.promises import workshop
from tests.promises.killing import FAULTS, assert_clear, fail_once, plan_at


@dataclass(frozen=True)
class Case:
    """A job, what an undisturbed run of it writes, and the file operations that planning and running take."""

    data: Path
    plan: Plan
    expected: dict[str, str]
    planning: list[tuple[str, str]]
    running: list[tuple[str, str]]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("sweep")
    data = workshop.make_input(folder / "data", files=2, rows=1000, group=1000)
    plan, planning = _counted(lambda: penstock.plan(_job(data, folder / "out")))
    _, running = _counted(lambda: penstock.run(plan))
    return Case(data, plan, workshop.bytes_of(folder / "out"), planning, running)


def _job(data: Path, output: Path) -> dict[str, Any]:
    """Inside one process, so that operations come in one order; two tasks are enough to meet every kind."""
    return {"input": str(data), "output": str(output), "stages": workshop.STAGES, "slice_size": "10kB", "workers": 0}


def _counted(work: Any) -> tuple[Any, list[tuple[str, str]]]:
    with sweeping(Sweep()) as sweep:
        return work(), sweep.operations


def test_a_clean_run_takes_the_same_operations_every_time(case, tmp_path):
    _, operations = _counted(lambda: penstock.run(plan_at(case.plan, tmp_path / "out")))
    assert [kind for kind, _ in operations] == [kind for kind, _ in case.running]
    assert {kind for kind, _ in operations} == set(FAULTS)


def test_every_operation_of_a_run_may_fail_in_every_way(case, tmp_path):
    chosen = _chosen(case.running, 10)
    for number in chosen:
        kind, path = case.running[number]
        for fault in FAULTS[kind]:
            plan = plan_at(case.plan, tmp_path / f"{number}-{fault.error}")
            where = f"operation {number}: {kind} {Path(path).name}, {fault}"
            fail_once(plan, replace(fault, fail_at=number), case.expected, where)
    print(f"{len(chosen)} operations swept, {len(case.running)} in a clean run")


def _chosen(operations: list[tuple[str, str]], step: int) -> list[int]:
    """The first of each kind on each kind of file, then every `step`-th; all of them in a thorough run."""
    kinds = [(kind, _kind_of_file(path)) for kind, path in operations]
    return sorted({kinds.index(each) for each in kinds} | set(range(0, len(kinds), 1 if workshop.THOROUGH else step)))


@pytest.mark.thorough
def test_every_operation_of_planning_may_fail_and_touches_no_output(case, tmp_path):
    chosen = _chosen(case.planning, 10)
    for number in chosen:
        kind, path = case.planning[number]
        fault = replace(FAULTS[kind][0], fail_at=number, operations=[])
        with sweeping(fault), pytest.raises(FileError) as caught:
            penstock.plan(_job(case.data, tmp_path / "out"))
        assert_clear(caught.value, fault, f"operation {number}: {kind} {path}")
        assert not (tmp_path / "out").exists()
    print(f"{len(chosen)} operations swept, {len(case.planning)} in a clean plan")


# The same of a job with an exchange, in both formats. Its buckets are cut, so that scratch files are met too.


@pytest.fixture(scope="module", params=["safetensors", "arrayrecord"] if workshop.THOROUGH else ["arrayrecord"])
def events(request, tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("sweep-events")
    data = workshop.make_event_input(folder / "data", files=2, rows=150, group=150)
    job = {**_job(data, folder / "out"), "stages": workshop.EVENT_STAGES, "slice_size": "12kB", "format": request.param}
    plan, planning = _counted(lambda: penstock.plan(job))
    plan = workshop.with_batches(plan, 6000)
    _, running = _counted(lambda: penstock.run(plan))
    return Case(data, plan, workshop.bytes_of(folder / "out"), planning, running)


def test_every_operation_of_an_exchange_may_fail_in_every_way(events, tmp_path):
    """Of an ArrayRecord file, those on files that it alone has; all of them in a thorough run."""
    kinds = [_kind_of_file(path) for _, path in events.running]
    assert {"spill", "manifest", "tasks"} <= set(kinds)
    chosen = _chosen(events.running, 40)
    if events.plan.config.format == "arrayrecord" and not workshop.THOROUGH:
        chosen = [number for number in chosen if kinds[number] in ("arrayrecord", "parts", "other")]
    for number in chosen:
        kind, path = events.running[number]
        for fault in FAULTS[kind] if workshop.THOROUGH else FAULTS[kind][:1]:
            plan = plan_at(events.plan, tmp_path / f"{number}-{fault.error}")
            where = f"operation {number}: {kind} {path}, {fault}"
            fail_once(plan, replace(fault, fail_at=number), events.expected, where)
    print(f"{len(chosen)} operations swept, {len(kinds)} in a clean run")


def _kind_of_file(path: str) -> str:
    known = ("spill", "parts", "tasks", "manifest", "scratch", "artifacts", "rejected", "arrayrecord", "train", "test")
    return next((each for each in known if each in Path(path).name or f"/{each}/" in path), "other")


FILLER = """
import os
from pathlib import Path

HERE = Path(__file__).parent

def fill(batch):
    \"\"\"Someone else's file takes the last bytes of the disk while a worker is in the middle of a task.\"\"\"
    if (HERE / "small" / "out" / ".penstock" / "job.json").exists() and not (HERE / "filled").exists():
        (HERE / "filled").touch()
        with open(HERE / "small" / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
    return batch
"""


def test_a_disk_that_fills_up_is_a_clear_error_and_the_next_run_goes_on(tmp_path):
    """A real file system without a byte left, met by worker processes; then the same one with room."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system takes root")
    data = workshop.make_input(tmp_path / "data", files=2)
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(small)]
    if (mounted := subprocess.run(mount, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        (tmp_path / "mine.py").write_text(FILLER)
        job = workshop.write_job(tmp_path / "job.yaml", data, output=str(small / "out"), stages=["mine:fill"])
        done = workshop.run(job)
        assert done.returncode == 8, done.stderr
        assert "No space left on device" in done.stdout
        assert not (small / "out" / "manifest.json").exists()
        (small / "filler").unlink()
        workshop.run_well(job)
        assert penstock.verify(small / "out").ok
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)
