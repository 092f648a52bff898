"""Promise 3, of text: killed while it hashes, matches, tokenizes, packs or remembers, it ends in the same bytes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pytest

import penstock
from penstock.base.memory import process_tree
from tests.promises import killing, text_making, workshop
from tests.promises.killing import points_of

KILLS = 30 if workshop.THOROUGH else 2
PASSES = ("0-hash", "1-match", "2-map", "3-pack")
STAGES = text_making.stages(clean={"keep": True}, dedup={"keep": True, "remember": "seen"})


@dataclass(frozen=True)
class Clean(killing.Clean):
    """The same, with what is remembered."""

    remembered: list[bytes]

    def assert_is_there(self, job: Path) -> None:
        super().assert_is_there(job)
        assert _remembered(job.parent / "seen") == self.remembered


def _remembered(folder: Path) -> list[bytes]:
    """The files of keys; their names have the output's place in them. Nothing may lie beside them but the lock."""
    left = [path for path in folder.rglob("*") if path.is_file() and path != folder / ".penstock" / "lock"]
    assert all(path.suffix == ".keys" and path.parent == folder for path in left), left
    return [path.read_bytes() for path in sorted(left)]


def _clean(folder: Path, data: Path) -> Clean:
    clean = killing.clean_run(folder, partial(text_making.write_job, data=data, stages=STAGES))
    assert {name.partition("tasks/")[2][:-11] for name in clean.names if "/tasks/" in name} == set(PASSES)
    return Clean(clean.job, clean.written, clean.names, clean.points, _remembered(folder / "seen"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("clean")
    return _clean(folder, text_making.write_documents(folder / "data", *text_making.files_of_documents(2, 60)))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """One slice, so one task a pass: enough to meet every kind of operation."""
    folder = tmp_path_factory.mktemp("few")
    return _clean(folder, text_making.write_documents(folder / "data", *text_making.files_of_documents(2, 12)))


ALL_POINTS = POINTS = points_of("text")
if not workshop.THOROUGH:  # those of text, and one of each kind that test_kill_it_any_time.py walks whole
    chosen = ("match.", "pack.", "commit.before_rename", "run.before_clean_up", "run.before_manifest")
    POINTS = [point for point in POINTS if point.startswith(chosen)]


def test_a_job_of_text_passes_its_crash_points_and_no_others(clean):
    assert clean.points == set(ALL_POINTS)
    assert {"match.before_ledger", "pack.before_ledger"} <= clean.points


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_every_named_point_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


INSIDE = {"0-hash": "task.after_shards", "1-match": "match.before_ledger", "2-map": "task.after_shards"}
INSIDE["3-pack"] = "pack.before_ledger"


@pytest.mark.thorough
def test_one_crash_after_the_other_in_every_pass_is_recovered_from(few, die, tmp_path):
    """When its file is written, before its task is in the ledger, and just behind: so the next pass is reached."""
    job = few.job(tmp_path / "job.yaml")
    for kind, inside in INSIDE.items():
        for point in (inside, "task.before_ledger", "task.after_ledger"):
            die(job, point)
        done = sorted(path.name for path in (tmp_path / "out" / ".penstock" / "tasks").iterdir())
        assert done[-1].startswith(kind)
    few.assert_recovers(job)


@pytest.mark.parametrize("point", POINTS if workshop.THOROUGH else ["match.before_ledger"])
def test_a_worker_that_dies_at_a_named_point_changes_nothing(clean, tmp_path, point):
    killing.crash_with_workers(clean.job(tmp_path / "job.yaml", workers=2), point, clean)


BEGUN = [(kind, who) for kind in PASSES for who in ("driver", "worker")]
BEGUN = BEGUN if workshop.THOROUGH else [("1-match", "driver"), ("2-map", "worker"), ("3-pack", "driver")]


@pytest.mark.parametrize(("kind", "who"), BEGUN)
def test_sigkill_when_a_pass_has_begun_is_recovered_from(clean, tmp_path, kind, who):
    """Killed as soon as the pass before has its last row in the ledger, or the first of this one is there."""
    chance = random.Random(f"{kind} {who}")
    job = clean.job(tmp_path / "job.yaml", workers=2)
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    workshop.wait_for(lambda: _has_begun(tmp_path / "out", kind) or process.poll() is not None)
    time.sleep(chance.random() * 0.03)
    below = process_tree(process.pid)[1:]
    with contextlib.suppress(ProcessLookupError):  # it was over already
        os.kill(process.pid if who == "driver" or not below else chance.choice(below), signal.SIGKILL)
    output, errors = process.communicate(timeout=120)
    assert process.returncode in (0, 7, -signal.SIGKILL), output + errors
    killing.wait_for_the_end_of(below)
    clean.assert_recovers(job)


def _has_begun(output: Path, kind: str) -> bool:
    log = output / ".penstock" / "events.jsonl"
    return log.exists() and f'"kind": "{kind[2:]}"' in log.read_text()


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml", workers=1)
    killing.kill_drivers(job, clean.tasks, KILLS, pause=0.1)
    clean.assert_recovers(job)


def test_every_operation_of_a_run_may_fail(few, tmp_path):
    """The first of each kind on each kind of file that only text has; all of them in a thorough run."""
    plan = penstock.plan(few.job(tmp_path / "job.yaml"))
    for failing, fault, where in killing.failures(plan, tmp_path, _kind_of_file, OF_TEXT):
        shutil.rmtree(tmp_path / "seen")
        killing.fail_once(failing, fault, few.written, where)
        assert _remembered(tmp_path / "seen") == few.remembered, where


OF_TEXT = ("keys", "parts", "seen", "train")


def _kind_of_file(path: str) -> str:
    known = ("keys", "parts", "tasks", "manifest", "artifacts", "rejected")
    found = next((each for each in known if f"/.penstock/{each}" in path or f"out/{each}" in path), "")
    return "seen" if "/seen/" in path else found or ("train" if "train" in path else "")
