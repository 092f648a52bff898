"""Alike: plan file of a run -> the same plan, made by this machine. Differences are refused. Next: member.py."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from penstock.base.processes.nursery import Nursery
from penstock.base.stores.store import Store
from penstock.prepare.job.config import Config
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.members import plan_file
from penstock.prepare.run.members.plan_file import PlanFile
from penstock.prepare.run.resume import changed


class MakesPlan(Protocol):
    """Plans a job on this machine: planning.plan_of."""

    def __call__(self, config: Config, nursery: Nursery, refused: str = "", of_job: int = 0) -> Plan: ...


def plan_alike(file: PlanFile, store: Store, said: Mapping[str, Any], plan_of: MakesPlan, nursery: Nursery) -> Plan:
    """The run's plan, made by this machine with the options that were `said` here. Refuses any difference."""
    plan_file.refuse_other_versions(file, store.root)
    plan = _planned(file, file.config(store.root, **said), plan_of, nursery)
    plan_file.refuse_other_plan(file, plan, changed(store, plan))
    plan_file.refuse_less_room(file, plan)
    return _with_rooms(plan, file)


def _planned(file: PlanFile, config: Config, plan_of: MakesPlan, nursery: Nursery) -> Plan:
    """The plan of this machine. If stages chose other engines than in the run, plan again with the reference."""
    plan = plan_of(config, nursery, of_job=file.memory)
    if plan.made_by != file.made_by:
        plan = plan_of(config, nursery, "the run was begun without it", file.memory)
    return plan


def _with_rooms(plan: Plan, file: PlanFile) -> Plan:
    """The plan with the run's limits for single rows: all machines set the same rows aside."""
    passes = (
        replace(each, settings=replace(each.settings, room=replace(each.settings.room, alone=room)))
        for each, room in zip(plan.passes, file.rooms, strict=True)
    )
    return replace(plan, passes=tuple(passes))
