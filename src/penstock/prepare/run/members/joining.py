"""Joining: `penstock work OUTPUT`: plan file of a run -> the same plan here, checked, and a member. Next: alike.py."""

import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock.base.errors import OutputError, PenstockError
from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.base.stores import open_store
from penstock.base.stores.store import PLAN, Store
from penstock.prepare.engines.workers.member_log import say_left
from penstock.prepare.run.members.alike import MakesPlan, plan_alike
from penstock.prepare.run.members.member import Member
from penstock.prepare.run.members.plan_file import read_plan_file
from penstock.prepare.run.progress import Progress
from penstock.shards.manifest import MANIFEST, dataset_id


@dataclass(frozen=True)
class Worked:
    """What a worker has done in a run that is over. `member` is its name there; "" if it came too late."""

    output: str
    dataset: str
    member: str = ""
    tasks: int = 0
    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Joining:
    """What a machine needs to join a run: a function that plans, processes, and functions that show what happens."""

    plan_of: MakesPlan
    nursery: Nursery
    say: Callable[[str], None]
    observe: Observer | None = None


def join(
    joining: Joining,
    output: str,
    memory: str | None = None,
    workers: str | int | None = None,
    lease: float | None = None,
) -> Worked:
    """Do tasks of the run whose plan is in `output`, until its dataset is finished.

    Args:
        joining: What this machine needs to join.
        output: The `output:` of a job that was begun with `engine: workers`.
        memory: Limit for the whole process tree on this machine. Default: the job's `memory:`.
        workers: Number of processes on this machine; 0 runs inside this one. Default: the job's `workers:`.
        lease: Seconds without a sign of life before others do this machine's tasks. Default: the run's.
    """
    began = time.monotonic()
    store = open_store(output)
    file = read_plan_file(store)
    if file is None:
        return _finished(store)  # a worker that comes too late has nothing to do
    said = {key: value for key, value in {"memory": memory, "workers": workers}.items() if value is not None}
    members = file.store(store.root, _name())
    try:
        plan = plan_alike(file, store, said, joining.plan_of, joining.nursery)
    except PenstockError as error:
        say_left(members, error)
        raise
    here = max(1, plan.workers)
    joining.say(f"worker {members.member} joins: {plan.task_count:,} tasks in all, {here} at a time here")
    progress = Progress(plan, members, joining.observe, file.started, tasks_kept=file.kept)
    tasks, rows = Member(plan, members, lease or file.lease, progress).work(joining.nursery)
    seconds = round(time.monotonic() - began, 3)
    return Worked(store.root, dataset_id(store), members.member, tasks, rows, seconds)


def _finished(store: Store) -> Worked:
    if store.exists(MANIFEST):
        return Worked(store.root, dataset_id(store))
    if store.exists(PLAN):
        raise OutputError(
            "the plan file of this run cannot be read: it is damaged, or of another version of penstock",
            where=store.where(PLAN),
            next_step="install the version of penstock that started the run; or run the job again, which plans it anew",
        )
    raise OutputError(
        "no run waits for workers here" if os.path.isdir(store.root) else "there is no such folder on this machine",
        where=store.root,
        next_step="give the `output:` of a job that `penstock run JOB --engine workers` has begun; or add --job JOB, "
        "which begins it",
    )


def _name() -> str:
    """A unique name for this member, across machines and containers."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
