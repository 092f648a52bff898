"""Promise 3, of text: killed while it hashes, matches, tokenizes, packs or remembers, it ends in the same bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

import penstock
from penstock.base.errors import FileError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, sweeping
from penstock.base.memory import process_tree
from penstock.prepare.plan import Plan
from tests.promises import text_making, workshop
from tests.promises.arrays_making import Die, dying_drivers
from tests.promises.test_kill_it_any_time import crash_points

KILLS = 30 if workshop.THOROUGH else 2
PASSES = ("0-hash", "1-match", "2-map", "3-pack")
STAGES = text_making.stages(clean={"keep": True}, dedup={"keep": True, "remember": "seen"})


@dataclass(frozen=True)
class Clean:
    """The documents, and what an undisturbed run writes, leaves and remembers."""

    data: Path
    written: dict[str, str]
    names: set[str]
    remembered: list[bytes]

    def job(self, path: Path, **keys: object) -> Path:
        return text_making.write_job(path, self.data, **{"stages": STAGES, **keys})

    def assert_recovers(self, job: Path) -> None:
        """The same job goes on, inside this process, which is quicker and decides nothing."""
        penstock.run(job)
        self.assert_is_there(job)

    def assert_is_there(self, job: Path) -> None:
        output = job.parent / "out"
        assert workshop.bytes_of(output) == self.written
        assert workshop.names_in(output) == self.names
        assert _remembered(job.parent / "seen") == self.remembered
        text_making.assert_no_leftovers(output)


def _remembered(folder: Path) -> list[bytes]:
    """The files of keys; their names have the output's place in them. Nothing may lie beside them."""
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert all(path.suffix == ".keys" and path.parent == folder for path in left), left
    return [path.read_bytes() for path in sorted(left)]


def _clean(folder: Path, data: Path) -> Clean:
    penstock.run(text_making.write_job(folder / "job.yaml", data, stages=STAGES))
    text_making.assert_no_leftovers(folder / "out")
    names = workshop.names_in(folder / "out")
    assert {name.partition("tasks/")[2][:-11] for name in names if "/tasks/" in name} == set(PASSES)
    return Clean(data, workshop.bytes_of(folder / "out"), names, _remembered(folder / "seen"))


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("clean")
    return _clean(folder, text_making.write_documents(folder / "data", *text_making.files_of_documents(2, 60)))


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    """One slice, so one task a pass: enough to meet every kind of operation."""
    folder = tmp_path_factory.mktemp("few")
    return _clean(folder, text_making.write_documents(folder / "data", *text_making.files_of_documents(2, 12)))


POINTS = [point for point in crash_points() if not point.startswith(("place.", "move.", "arrays."))]
if not workshop.THOROUGH:  # those of text, and one of each kind that test_kill_it_any_time.py walks whole
    chosen = ("match.", "pack.", "commit.before_rename", "task.", "run.before_clean_up", "run.before_manifest")
    POINTS = [point for point in POINTS if point.startswith(chosen)]


def test_text_has_crash_points_of_its_own():
    assert {"match.before_ledger", "pack.before_ledger"} <= set(crash_points())


@pytest.fixture(scope="module")
def die() -> Iterator[Die]:
    with dying_drivers() as die:
        yield die


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_at_every_named_point_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


INSIDE = {"0-hash": "task.after_shards", "1-match": "match.before_ledger", "2-map": "task.after_shards"}
INSIDE["3-pack"] = "pack.before_ledger"


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
    job = clean.job(tmp_path / "job.yaml", workers=2)
    token = tmp_path / "token"
    token.touch()
    done = workshop.run(job, environment={CRASH_VARIABLE: f"{point}:{token}"})
    assert not token.exists(), "the point was never reached"
    if done.returncode == 0:
        clean.assert_is_there(job)
    else:  # a point that the driver passes
        assert done.returncode == CRASH_EXIT_CODE, done.stdout + done.stderr
    clean.assert_recovers(job)


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
    workshop.wait_for(lambda: not any(map(_runs, below)), 20)
    clean.assert_recovers(job)


def _has_begun(output: Path, kind: str) -> bool:
    log = output / ".penstock" / "events.jsonl"
    return log.exists() and f'"kind": "{kind[2:]}"' in log.read_text()


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_sigkill_of_the_driver_at_random_moments_is_recovered_from(clean, tmp_path):
    """Each run goes on from where the one before was killed."""
    chance = random.Random(5)
    job = clean.job(tmp_path / "job.yaml", workers=1)
    tasks = len([name for name in clean.names if "/tasks/" in name])
    for kill in range(KILLS):
        process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        target = kill * tasks // KILLS
        workshop.wait_for(
            lambda target=target, process=process: (
                workshop.ledger_rows(tmp_path / "out") >= target or process.poll() is not None
            )
        )
        time.sleep(chance.random() * 0.1)
        below = process_tree(process.pid)[1:]
        process.send_signal(signal.SIGKILL)
        process.wait()
        workshop.wait_for(lambda below=below: not any(map(_runs, below)), 20)
    clean.assert_recovers(job)


# The n-th file operation fails: see test_a_failing_disk.py.

FAULTS = {
    "write": [Sweep(error=errno.ENOSPC), Sweep(short=True)],
    "sync": [Sweep(error=errno.EIO)],
    "rename": [Sweep(error=errno.EIO)],
    "open": [Sweep(error=errno.EMFILE)],
    "read": [Sweep(error=errno.EIO)],
    "mkdir": [Sweep(error=errno.ENOSPC)],
    "list": [Sweep(error=errno.EIO)],
    "remove": [Sweep(error=errno.EIO)],
}
OF_TEXT = ("keys", "parts", "seen", "train")


def test_every_operation_of_a_run_may_fail(few, tmp_path):
    """The first of each kind on each kind of file that only text has; all of them in a thorough run."""
    plan = penstock.plan(few.job(tmp_path / "job.yaml"))
    with sweeping(Sweep()) as sweep:
        penstock.run(_at(plan, tmp_path / "first"))
    kinds = [(kind, _kind_of_file(path)) for kind, path in sweep.operations]
    chosen = {kinds.index(each) for each in set(kinds) if each[1] in OF_TEXT}
    chosen |= set(range(len(kinds))) if workshop.THOROUGH else set()
    assert set(OF_TEXT) <= {kind for _, kind in kinds}
    for number in sorted(chosen):
        kind, path = sweep.operations[number]
        for fault in FAULTS[kind] if workshop.THOROUGH else FAULTS[kind][:1]:
            shutil.rmtree(tmp_path / "seen")
            where = f"operation {number}: {kind} {path}, {fault}"
            _fail_once(_at(plan, tmp_path / f"{number}-{fault.short}"), replace(fault, fail_at=number), few, where)
            assert _remembered(tmp_path / "seen") == few.remembered, where
    print(f"{len(chosen)} operations swept, {len(kinds)} in a clean run")


def _at(plan: Plan, output: Path) -> Plan:
    return replace(plan, config=plan.config.model_copy(update={"output": str(output)}))


def _fail_once(plan: Plan, fault: Sweep, few: Clean, where: str) -> None:
    output = Path(plan.config.output_path)
    try:
        with sweeping(replace(fault, operations=[])):
            penstock.run(plan)
        assert fault.short, f"{where}: the fault went unnoticed"
    except FileError as error:
        assert os.strerror(fault.error) in error.what, where
        assert error.where, where
        if (output / "manifest.json").exists():
            assert workshop.bytes_of(output) == few.written, where
    penstock.run(plan)
    assert workshop.bytes_of(output) == few.written, where
    text_making.assert_no_leftovers(output)


def _kind_of_file(path: str) -> str:
    known = ("keys", "parts", "tasks", "manifest", "artifacts", "rejected")
    found = next((each for each in known if f"/.penstock/{each}" in path or f"out/{each}" in path), "")
    return "seen" if "/seen/" in path else found or ("train" if "train" in path else "")
