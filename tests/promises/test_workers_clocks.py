"""Workers whose clocks are hours apart: only the clock of the shared folder decides which claim has expired."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import penstock
from tests.promises import clocks, workshop
from tests.promises.killing import assert_no_leftovers

LEASE = 5.0
CLOCKS = {"dead": "+1h", "ahead": "+1h", "behind": "-1h", "drifting": "+10m x1.5"}
SLOW = """
import time

def slow(batch):
    time.sleep(0.4)
    return batch
"""


@pytest.mark.thorough
def test_clocks_hours_apart_take_no_claim_from_a_worker_that_lives_and_leave_none_to_a_dead_one(tmp_path):
    places = {name: clocks.environment(tmp_path / "clocks", clock) for name, clock in CLOCKS.items()}
    assert abs(clocks.off_by(places["ahead"], sys.executable, tmp_path) - 3600) < 60, "files have the real time"
    (tmp_path / "mine.py").write_text(SLOW)
    data = workshop.make_input(tmp_path / "data", files=12)
    stages = ["mine:slow", *workshop.STAGES]
    plain = workshop.write_job(tmp_path / "plain.yaml", data, stages=stages, output="plain")
    penstock.run(plain, progress=False)
    engine = {"workers": {"lease": LEASE}}
    job = workshop.write_job(tmp_path / "job.yaml", data, stages=stages, engine=engine)
    output = tmp_path / "out"
    watcher = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL)
    workshop.wait_for(lambda: (output / ".penstock" / "plan.json").exists())
    dead = _worker(tmp_path, "dead", places)
    workshop.wait_for(lambda: _claims(output))
    dead.send_signal(signal.SIGKILL)
    dead.wait()
    left = _claims(output)
    assert left, "it was killed in the middle of a task"
    others = [_worker(tmp_path, name, places) for name in places if name != "dead"]
    taken = {}  # when a second generation of a claim was made
    while watcher.poll() is None:
        for name, touched in _claims(output, ".2").items():
            taken.setdefault(name, touched)
        time.sleep(0.02)
    assert [each.wait(60) for each in (watcher, *others)] == [0] * 4
    assert taken.keys() == left.keys(), "only the claims of the dead worker were taken over"
    assert all(touched - left[name] >= LEASE for name, touched in taken.items())
    assert workshop.bytes_of(output) == workshop.bytes_of(tmp_path / "plain")
    assert_no_leftovers(output)
    run = json.loads((output / ".penstock" / "run.json").read_text())
    assert 0 < run["seconds"] < 600
    for name, words in {"ahead": "1 h 00 min ahead of", "behind": "1 h 00 min behind", "drifting": "10 min"}.items():
        said = (tmp_path / name).read_text()
        assert f"the clock of its machine is {words}" in said, said


def _worker(folder: Path, name: str, places: dict[str, dict[str, str]]) -> subprocess.Popen[bytes]:
    called = [sys.executable, "-m", "penstock", "work", str(folder / "out"), "--workers", "0"]
    with open(folder / name, "wb") as said:
        return subprocess.Popen(called, stdout=said, stderr=said, env=places[name])


def _claims(output: Path, generation: str = ".1") -> dict[str, float]:
    """When each claim of this generation was touched last, by the name of its task."""
    found = {}
    for folder in output.glob(".penstock/tmp/run-*/leases"):
        for name in os.listdir(folder):
            if name.endswith(generation):
                try:
                    found[name.removesuffix(generation)] = (folder / name).stat().st_mtime
                except FileNotFoundError:
                    continue
    return found
