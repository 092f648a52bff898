"""Workers are killed, stopped and taken for dead at any time: the run ends, and writes the bytes of one machine."""

from __future__ import annotations

import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

import penstock
from penstock.base.faults import CRASH_EXIT_CODE
from tests.promises import members, workshop
from tests.promises.killing import assert_no_leftovers, crash_points

KILLS = 100 if workshop.THOROUGH else 8
STOPS = 20 if workshop.THOROUGH else 3
LEASE = members.LEASE
EVENTS: dict[str, Any] = {"stages": workshop.EVENT_STAGES, "slice_size": "40kB"}
ARRAYS: dict[str, Any] = {
    "stages": [{"split": {"test": 0.3}}, {"normalize": ["features"]}],
    "format": "arrays",
    "slice_size": "15kB",
}


class Job:
    """A job in a folder of its own, and the bytes that a run on one machine writes."""

    def __init__(self, folder: Path, data: Path, **keys: Any) -> None:
        self.file = folder / "job.yaml"
        self.output = folder / "out"
        folder.mkdir()
        common = {"input": str(data), "memory": "1GB", **keys}
        self.file.write_text(yaml.safe_dump({**common, "output": str(folder / "plain"), "workers": 0}))
        penstock.run(self.file, progress=False)
        self.written = workshop.bytes_of(folder / "plain")
        engine = {"workers": {"lease": LEASE}}
        self.file.write_text(yaml.safe_dump({**common, "output": "out", "workers": 2, "engine": engine}))

    def assert_is_there(self) -> None:
        assert workshop.bytes_of(self.output) == self.written
        assert_no_leftovers(self.output)
        assert not (self.output / ".penstock" / "plan.json").exists()

    def begin(self, *options: str) -> subprocess.Popen[bytes]:
        """`penstock run`, which watches, once workers can join."""
        plan = self.output / ".penstock" / "plan.json"
        before = plan.read_bytes() if plan.exists() else b""
        process = subprocess.Popen(workshop.command(self.file, *options), stdout=subprocess.DEVNULL)
        workshop.wait_for(lambda: process.poll() is not None or (plan.exists() and plan.read_bytes() != before))
        return process


def _events(folder: Path) -> Path:
    return workshop.make_event_input(folder, files=4, rows=1500)


def _samples(folder: Path) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(1)
    for number in range(4):
        values = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(3, 1, 400 * 20).astype("f4")), 20)
        table = pa.table({"features": values, "label": rng.integers(0, 9, 400)})
        pq.write_table(table, folder / f"{number}.parquet", row_group_size=100)
    return folder


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("events")
    return Job(folder / "job", _events(folder / "data"), **EVENTS)


@pytest.fixture(scope="module")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("arrays")
    return Job(folder / "job", _samples(folder / "data"), **ARRAYS)


@pytest.mark.proof
@pytest.mark.parametrize("name", ["events", "arrays"])
def test_workers_killed_at_random_cost_no_byte(request, name):
    """Whole machines, and processes that leave others behind. One that has lost its claims is replaced at once."""
    job, chance = request.getfixturevalue(name), random.Random(7)
    killed = 0
    with members.machines(3) as machines:
        while killed < KILLS:
            watcher = job.begin("--redo")
            while watcher.poll() is None:
                for machine in machines:
                    if machine.is_at_work and machine.has_ended():
                        code, said = machine.end()
                        assert code in (0, -signal.SIGKILL), said
                    if not machine.is_at_work and watcher.poll() is None:
                        machine.begin(job.output, workers=chance.choice([0, 2]))
                time.sleep(chance.random() * 0.5)
                machine = chance.choice(machines)
                if killed < KILLS and not machine.has_ended():
                    machine.signal(signal.SIGKILL, whole=chance.random() < 0.5)
                    killed += 1
            assert watcher.returncode == 0
            for machine in machines:
                if machine.is_at_work:
                    code, said = machine.end()
                    assert code in (0, 5, -signal.SIGKILL), said
            job.assert_is_there()


@pytest.mark.proof
@pytest.mark.parametrize("point", [each for each in crash_points() if not each.startswith("fence.")])
def test_a_worker_that_dies_at_a_crash_point_is_replaced(arrays, tmp_path, point):
    """Also while it finishes the dataset: who takes over finds everything, whatever was moved already."""
    token = tmp_path / "token"
    token.touch()
    with members.machines(2) as (first, second):
        watcher = arrays.begin("--redo")
        first.begin(arrays.output, crash=f"{point}:{token}")
        code, said = first.end()
        assert code == (0 if token.exists() else CRASH_EXIT_CODE), said
        if token.exists():  # a point of other jobs, or of the machine that watches
            assert watcher.wait(60) == 0
        else:
            second.begin(arrays.output)
            assert second.end() == (0, "")
            assert watcher.wait(60) == 0
    arrays.assert_is_there()


@pytest.mark.proof
def test_a_stopped_worker_that_continues_changes_nothing(events):
    """It sleeps past its lease: its tasks are done by others, and it finds the dataset there."""
    chance = random.Random(3)
    with members.machines(2) as (sleeper, other):
        for _ in range(STOPS):
            watcher = events.begin("--redo")
            sleeper.begin(events.output, workers=chance.choice([0, 2]))
            _wait_for_a_claim(events.output, sleeper)
            time.sleep(chance.random() * 0.3)
            sleeper.signal(signal.SIGSTOP)
            other.begin(events.output)
            assert other.end() == (0, "")
            assert watcher.wait(60) == 0
            sleeper.signal(signal.SIGCONT)
            assert sleeper.end() == (0, "")
            events.assert_is_there()


@pytest.mark.proof
@pytest.mark.parametrize("how", ["the same job, on one machine", "another job", "--redo with workers"])
def test_a_stopped_worker_changes_nothing_in_an_output_that_another_run_took(arrays, events, how):
    chance = random.Random(how)
    with members.machines(2) as (sleeper, other):
        for _ in range(STOPS):
            watcher = arrays.begin("--redo")
            watcher.kill()
            watcher.wait()
            sleeper.begin(arrays.output, workers=chance.choice([0, 2]))
            _wait_for_a_claim(arrays.output, sleeper)
            time.sleep(chance.random() * 0.5)
            sleeper.signal(signal.SIGSTOP)
            if sleeper.has_ended():  # it was quicker
                assert sleeper.end() == (0, "")
                continue
            written = arrays.written
            if how == "the same job, on one machine":
                workshop.run_well(arrays.file, "--engine", "local")
            elif how == "another job":
                workshop.run_well(events.file, "--engine", "local", "--redo", "-o", str(arrays.output))
                written = events.written
            else:
                watcher = arrays.begin("--redo")
                other.begin(arrays.output)
                assert other.end() == (0, "")
                assert watcher.wait(60) == 0
            there = workshop.names_in(arrays.output)
            sleeper.signal(signal.SIGCONT)
            code, said = sleeper.end()
            assert code in (0, 5), said
            assert workshop.bytes_of(arrays.output) == written
            assert workshop.names_in(arrays.output) == there
            assert_no_leftovers(arrays.output)


@pytest.mark.proof
def test_sigterm_gives_tasks_back_at_once(tmp_path):
    job = Job(tmp_path / "job", _events(tmp_path / "data"), **EVENTS)
    with members.machines(2) as (first, second):
        watcher = job.begin()
        first.begin(job.output, workers=2, lease=600)  # nobody waits for that
        _wait_for_a_claim(job.output, first)
        first.signal(signal.SIGTERM, whole=False)
        code, said = first.end()
        assert code == 130, said
        assert "given back its tasks" in said
        began = time.monotonic()
        second.begin(job.output, lease=600)
        assert second.end() == (0, "")
        assert watcher.wait(60) == 0
        assert time.monotonic() - began < 60
    job.assert_is_there()


def _wait_for_a_claim(output: Path, machine: members.Machine) -> None:
    """Until it has a task, or has ended."""
    claims = ".penstock/tmp/run-*/leases/*-*.1"
    workshop.wait_for(lambda: list(output.glob(claims)) or machine.has_ended(), 120)
