"""Promises 2 and 3 in a folder that is mounted over FUSE, as a network's folder is: the same bytes, nothing left.

Such a file system cannot make files without names, nor remove open ones, nor copy inside the kernel.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock.base.faults import Sweep, sweeping
from tests.base.stores.mounting import mounted
from tests.promises import arrays_making, text_making, workshop
from tests.promises.killing import assert_no_leftovers


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "folder").mkdir()
    with mounted(tmp_path / "folder", tmp_path / "mount") as folder:
        yield folder


def events(folder: Path, path: Path, **keys: object) -> Path:
    return workshop.write_events_job(path, workshop.make_event_input(folder / "data"), **keys)


def text(folder: Path, path: Path, **keys: object) -> Path:
    data = text_making.write_documents(folder / "data", *text_making.files_of_documents())
    stages = text_making.stages()
    return text_making.write_job(path, data, stages=[*stages[:2], "near_dedup", *stages[2:]], **keys)


def arrays(folder: Path, path: Path, **keys: object) -> Path:
    return arrays_making.write_job(path, arrays_making.many_games(folder / "data", 4, 30), **keys)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("make", [events, text, arrays])
def test_a_mounted_folder_gets_the_same_bytes_and_keeps_nothing_else(tmp_path, mount, make, workers):
    local, shared = (make(tmp_path, tmp_path / f"{name}.yaml", output=str(place / "out"), workers=workers)
                     for name, place in (("local", tmp_path), ("shared", mount)))  # fmt: skip
    penstock.run(local)
    penstock.run(shared)
    assert workshop.bytes_of(mount / "out") == workshop.bytes_of(tmp_path / "out")
    assert_no_leftovers(mount / "out")
    assert workshop.names_in(mount / "out") == workshop.names_in(tmp_path / "out")


def test_rows_that_do_not_fit_are_sorted_on_a_disk_of_this_machine(tmp_path, mount):
    """Bytes that a task writes to sort them, or to lay them out, never cross the network."""
    job = events(tmp_path, tmp_path / "job.yaml", output=str(mount / "out"), workers=0)
    plan = workshop.with_batches(penstock.plan(job), 8 << 10)
    assert plan.means.scratch, "a plan names the folder for scratch files, and its free bytes"
    assert not plan.means.scratch.folder.startswith(str(mount))
    with sweeping(Sweep()) as seen:
        penstock.run(plan)
    scratch = {path for kind, path in seen.operations if kind == "write" and path.endswith("-scratch")}
    assert scratch
    assert not [path for path in scratch if path.startswith(str(mount))]
    assert_no_leftovers(mount / "out")


@pytest.mark.proof
def test_a_run_that_was_killed_in_a_mounted_folder_is_resumed_to_the_same_bytes(tmp_path, mount):
    local = events(tmp_path, tmp_path / "local.yaml", output=str(tmp_path / "out"))
    penstock.run(local)
    job = events(tmp_path, tmp_path / "job.yaml", output=str(mount / "out"), workers=2)
    run = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workshop.wait_for(lambda: workshop.ledger_rows(mount / "out") >= 2 or run.poll() is not None)
    run.send_signal(signal.SIGKILL)
    run.wait(timeout=30)
    workshop.run_well(job)
    assert workshop.bytes_of(mount / "out") == workshop.bytes_of(tmp_path / "out")
    assert_no_leftovers(mount / "out")
