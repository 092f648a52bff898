"""Killing: runs that end before their end, by a crash point, a signal or a failing disk, and what must come of them."""

from __future__ import annotations

import ast
import errno
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import penstock
from penstock.base.errors import FileError
from penstock.base.faults import CRASH_EXIT_CODE, CRASH_VARIABLE, Sweep, sweeping
from penstock.base.memory import process_tree
from penstock.prepare.plan.plan import Plan
from tests.promises import workshop

SCAFFOLDING = ("keys", "parts", "placing", "spill")


def assert_no_leftovers(output: Path) -> None:
    """Nothing that tasks put down for each other; of `tmp`, at most the folder."""
    left = [name for name in SCAFFOLDING if (output / ".penstock" / name).exists()]
    left += [path.name for path in (output / ".penstock").glob("tmp/*")]
    assert not left, left


@dataclass(frozen=True)
class Clean:
    """How a job is written, and what an undisturbed run of it writes and leaves."""

    job: Callable[..., Path]  # (path, **keys)
    written: dict[str, str]
    names: set[str]
    points: set[str]  # crash points that it passed

    @property
    def tasks(self) -> int:
        return len([name for name in self.names if "/tasks/" in name])

    def assert_recovers(self, job: Path) -> None:
        """The same job goes on, inside this process, which is quicker and decides nothing."""
        penstock.run(job)
        self.assert_is_there(job)

    def assert_is_there(self, job: Path) -> None:
        assert workshop.bytes_of(job.parent / "out") == self.written
        assert workshop.names_in(job.parent / "out") == self.names
        assert_no_leftovers(job.parent / "out")


def clean_run(folder: Path, job: Callable[..., Path]) -> Clean:
    with sweeping(Sweep()) as sweep:  # inside this process, which sees every point
        penstock.run(job(folder / "job.yaml", workers=0))
    assert_no_leftovers(folder / "out")
    return Clean(job, workshop.bytes_of(folder / "out"), workshop.names_in(folder / "out"), sweep.points)


# By a crash point.


def crash_points() -> list[str]:
    """Every name that the source passes to crash_point: a new one is walked from the day it is written."""
    found = set()
    for path in Path(penstock.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "crash_point":
                assert isinstance(node.args[0], ast.Constant), f"{path}: a crash point's name must be a literal"
                found.add(node.args[0].value)
    return sorted(found)


# How the names begin of the points that a job passes: those of every run, and those of its shape.
EVERY_RUN = ("commit.", "run.", "task.")
SHAPES = {
    "rows": (),
    "direct arrays": ("move.",),
    "placed arrays": ("move.", "place."),
    "text": ("match.", "pack."),
    "arrays by workers": ("move.", "place.", "lease.", "fence."),  # test_workers_killed.py
    "near-duplicates": ("match.", "pair.", "verify.", "choose."),
}


def points_of(shape: str) -> list[str]:
    """The points that a job of this shape passes; the tests of the shape hold them against a run."""
    return [point for point in crash_points() if point.startswith((*EVERY_RUN, *SHAPES[shape]))]


# A driver costs most of a second to start and a few milliseconds to fork.
FORKING = f"""
import json, os, sys
from penstock.prepare.entry import run
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        job, os.environ[{CRASH_VARIABLE!r}] = json.loads(line)
        run(job)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""
Die = Callable[[Path, str], None]


@contextmanager
def dying_drivers() -> Iterator[Die]:
    """A function that runs a job, inside a driver, which dies at a crash point."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", FORKING], text=True, **pipes) as process:
        assert process.stdin
        assert process.stdout

        def die_at(job: Path, point: str) -> None:
            token = job.parent / "token"
            token.touch()
            print(json.dumps([str(job), f"{point}:{token}"]), file=process.stdin, flush=True)
            code = process.stdout.readline()
            assert not token.exists(), "the point was never reached"
            assert int(code) == CRASH_EXIT_CODE

        yield die_at


def crash_with_workers(job: Path, point: str, clean: Clean) -> None:
    """In the driver the run dies; in a worker the driver tries the task again, and what it ends in is whole."""
    token = job.parent / "token"
    token.touch()
    done = workshop.run(job, environment={CRASH_VARIABLE: f"{point}:{token}"})
    assert not token.exists(), "the point was never reached"
    if done.returncode == 0:
        clean.assert_is_there(job)
    else:
        assert done.returncode == CRASH_EXIT_CODE, done.stdout + done.stderr
    clean.assert_recovers(job)


# By a signal.


def runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_for_the_end_of(pids: list[int]) -> None:
    workshop.wait_for(lambda: not any(map(runs, pids)), 20)


def holds(process: subprocess.Popen[bytes], output: Path) -> bool:
    """Whether it is past planning, and has the output to itself."""
    lock = output / ".penstock" / "lock"
    return lock.exists() and f"process {process.pid} " in lock.read_text()


def kill_driver_when(job: Path, ready: Callable[[subprocess.Popen[bytes]], bool], pause: float) -> bool:
    """Whether the kill met a run that held the output and was not done, rather than one that planned or had ended."""
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    workshop.wait_for(lambda: ready(process) or process.poll() is not None)
    time.sleep(pause)
    below = process_tree(process.pid)[1:]
    process.send_signal(signal.SIGKILL)
    was_killed = process.wait() == -signal.SIGKILL
    wait_for_the_end_of(below)
    output = job.parent / "out"
    return was_killed and holds(process, output) and not (output / "manifest.json").exists()


def kill_drivers(job: Path, tasks: int, kills: int, pause: float) -> None:
    """Each run goes on from where the one before was killed. At least one kill meets a run at work."""
    output, chance = job.parent / "out", random.Random(5)
    met = 0
    for kill in range(kills):
        target = kill * tasks // kills

        def is_there(process: subprocess.Popen[bytes], target: int = target) -> bool:  # noqa: ARG001
            return workshop.ledger_rows(output) >= target

        met += kill_driver_when(job, is_there, chance.random() * pause)
    for _ in range(20):  # where every run was over before its kill came
        if not met:
            shutil.rmtree(output, ignore_errors=True)
            met += kill_driver_when(job, lambda process: holds(process, output), 0)
    assert met, "no kill met a run that was at work"


def shoot_workers(job: Path, kills: int, ready: Callable[[int], bool]) -> int:
    """Workers of one run at random moments, while `ready` of how many there were. A task whose worker was shot three
    times is reported, and the same command goes on."""
    chance = random.Random(6)
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    killed = 0
    while process.poll() is None and killed < kills:
        below = process_tree(process.pid)[1:]
        if below and ready(killed):
            os.kill(chance.choice(below), signal.SIGKILL)
            killed += 1
        time.sleep(0.05 + chance.random() * 0.1)
    output, errors = process.communicate(timeout=120)
    assert process.returncode in (0, 7), output + errors
    return killed


# By a failing disk: the n-th file operation fails.

FAULTS = {
    "write": [Sweep(error=errno.ENOSPC), Sweep(error=errno.EIO), Sweep(short=True)],
    "sync": [Sweep(error=errno.EIO)],
    "rename": [Sweep(error=errno.EIO), Sweep(error=errno.ENOSPC)],
    "open": [Sweep(error=errno.EMFILE)],
    "read": [Sweep(error=errno.EIO)],
    "mkdir": [Sweep(error=errno.ENOSPC)],
    "list": [Sweep(error=errno.EIO)],
    "remove": [Sweep(error=errno.EIO)],
}


def plan_at(plan: Plan, output: Path) -> Plan:
    return replace(plan, config=plan.config.model_copy(update={"output": str(output)}))


def fail_once(plan: Plan, fault: Sweep, written: dict[str, str], where: str) -> None:
    """A clear error, or none where the kernel only wrote less; what is committed stays, and the next run succeeds."""
    output = Path(plan.config.output_path)
    committed: dict[str, str] = {}
    try:
        with sweeping(replace(fault, operations=[])):
            penstock.run(plan)
        assert fault.short, f"{where}: the fault went unnoticed"
    except FileError as error:
        assert_clear(error, fault, where)
        committed = workshop.bytes_of(output) if output.exists() else {}
        assert "manifest.json" not in committed or not penstock.verify(output).problems, where
    penstock.run(plan)
    after = workshop.bytes_of(output)
    assert {name: after.get(name) for name in committed} == committed, f"{where}: a committed file changed"
    assert after == written, where
    assert_no_leftovers(output)


def assert_clear(error: FileError, fault: Sweep, where: str) -> None:
    assert os.strerror(fault.error) in error.what, where
    assert error.where, where
    assert error.next_step, where


def failures(
    plan: Plan, folder: Path, kind_of_file: Callable[[str], str], of: Collection[str]
) -> Iterator[tuple[Plan, Sweep, str]]:
    """What to give to `fail_once`: the first operation of each kind on the kinds of file in `of`, which must all be
    met; every operation in a thorough run."""
    with sweeping(Sweep()) as sweep:
        penstock.run(plan_at(plan, folder / "first"))
    kinds = [(kind, kind_of_file(path)) for kind, path in sweep.operations]
    assert set(of) <= {kind for _, kind in kinds}
    chosen = {kinds.index(each) for each in set(kinds) if each[1] in of}
    chosen |= set(range(len(kinds))) if workshop.THOROUGH else set()
    for number in sorted(chosen):
        kind, path = sweep.operations[number]
        for fault in FAULTS[kind] if workshop.THOROUGH else FAULTS[kind][:1]:
            failing = plan_at(plan, folder / f"{number}-{fault.error}-{fault.short}")
            yield failing, replace(fault, fail_at=number), f"operation {number}: {kind} {path}, {fault}"
    print(f"{len(chosen)} operations swept, {len(kinds)} in a clean run")
