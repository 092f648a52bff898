"""Joining: `penstock work OUTPUT`: the plan file of a run -> the same plan on this machine, and its tasks. Next:
run/members/member.py."""

import os
import re
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.base.errors import OutputError
from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.base.sizes import counted
from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.engines.hired import nursery
from penstock.prepare.plan.plan import Plan
from penstock.prepare.planning import plan_of
from penstock.prepare.run.members import plan_file
from penstock.prepare.run.members.member import Member
from penstock.prepare.run.members.plan_file import PlanFile
from penstock.prepare.run.resume import changed
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


def work(
    output: str | os.PathLike[str],
    memory: str | None = None,
    workers: str | int | None = None,
    lease: float | None = None,
    say: Callable[[str], None] = print,
    observe: Observer | None = None,
) -> Worked:
    """Do tasks of the run whose plan lies in `output`, until its dataset is there.

    Args:
        output: The `output:` of a job that was begun with `engine: workers`.
        memory: Limit for this machine's part, its whole process tree. Default: the job's `memory:`.
        workers: Processes of this machine; 0 does the tasks inside this one. Default: the job's `workers:`.
        lease: Seconds without a sign of life before others do this machine's tasks. Default: the run's.
        say: Told, in a line, that this machine joins. Default: it is printed.
        observe: Told each event of this machine's tasks.
    """
    began = time.monotonic()
    store = open_store(output)
    file = plan_file.read_plan_file(store)
    if file is None:
        return _finished(store)  # a worker that comes too late has nothing to do
    plan_file.refuse_other_versions(file, store.root)
    said = {key: value for key, value in {"memory": memory, "workers": workers}.items() if value is not None}
    config = file.config(store.root, **said)
    with nursery() as processes:
        plan = _planned(file, config, processes)
        plan_file.refuse_other_plan(file, plan, changed(store, plan))
        plan_file.refuse_less_room(file, plan)
        name, here = _name(), counted(max(1, plan.workers), "process").replace("processs", "processes")
        members = file.store(store.root, name)
        member = Member(_with_rooms(plan, file), members, lease or file.lease, file.started, observe)
        say(f"worker {name} joins: {counted(plan.task_count, 'task')} in all, {here} here")
        log = member.work(processes)
    seconds = round(time.monotonic() - began, 3)
    return Worked(store.root, dataset_id(store), name, log.tasks, log.rows, seconds)


def _finished(store: Store) -> Worked:
    if store.exists(MANIFEST):
        return Worked(store.root, dataset_id(store))
    raise OutputError(
        "no run waits for workers here",
        where=store.root,
        next_step="start it with `penstock run JOB --engine workers`, then join it with this command",
    )


def _planned(file: PlanFile, config: Any, processes: Nursery) -> Plan:
    """The plan of this machine. Where another engine was chosen here than there, the one that defines what is right."""
    plan = plan_of(config, processes, of_job=file.memory)
    if plan.made_by != file.made_by:
        plan = plan_of(config, processes, refused="the run was begun without it", of_job=file.memory)
    return plan


def _with_rooms(plan: Plan, file: PlanFile) -> Plan:
    """What is too large is the same on all machines."""
    passes = (
        replace(each, settings=replace(each.settings, room=replace(each.settings.room, alone=room)))
        for each, room in zip(plan.passes, file.rooms, strict=True)
    )
    return replace(plan, passes=tuple(passes))


def _name() -> str:
    """A name for this member that no other has, in no container."""
    host = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"
