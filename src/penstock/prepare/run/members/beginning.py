"""Beginning: the plan of a run -> its plan file in the output, which workers join. Next: attending.py."""

import secrets
from dataclasses import dataclass, replace
from functools import partial

from penstock.base.faults import crash_point
from penstock.base.stores.leases import Leases
from penstock.base.stores.local import LocalStore
from penstock.base.stores.shared import SharedStore, begin_run
from penstock.prepare.engines.workers.board import Board
from penstock.prepare.ledger import LedgerRow, files_are_there, read_rows
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.clearing import end_runs_of_members, remove_result
from penstock.prepare.run.members import plan_file
from penstock.prepare.run.members.plan_file import PlanFile
from penstock.prepare.run.resume import is_redoing, keep_or_forget, kept_rows, remember_job
from penstock.shards.manifest import MANIFEST

WATCHER = "watcher"


@dataclass(frozen=True)
class Begun:
    """The run that workers join: a new one, or one that has begun already."""

    file: PlanFile
    kept: dict[str, LedgerRow]
    changes: list[str]


def begin(store: LocalStore, plan: Plan, redo: bool) -> Begun:
    redo = redo and not is_redoing(store, plan)  # a redo that was stopped resumes like any other run
    there = plan_file.read_plan_file(store)
    if there and there.is_of(plan) and not redo and not store.exists(MANIFEST):  # a damaged dataset is made anew
        members = there.store(store.root, WATCHER)
        if not members.is_fenced and _goes_on(members, plan, there.lease):
            Board(members).clear_failures()
            return Begun(there, read_rows(store), [])
    return _begin_anew(store, plan, redo)


def _goes_on(members: SharedStore, plan: Plan, lease: float) -> bool:
    """Whether the run needs no repair: workers are in it, or no finished task has to be done again."""
    rows = read_rows(members)
    kept = kept_rows(plan.passes, rows, partial(files_are_there, members))
    return len(kept) == len(rows) or Leases(members, lease).are_held()


def _begin_anew(store: LocalStore, plan: Plan, redo: bool) -> Begun:
    end_runs_of_members(store)
    remove_result(store)  # from here on, an earlier result is gone
    crash_point("run.after_forgetting_manifest")
    store.sweep()
    file = plan_file.make_plan_file(plan, secrets.token_hex(8))
    begin_run(store.root, file.token)
    members = file.store(store.root, WATCHER)
    kept, changes = keep_or_forget(members, plan, redo)
    crash_point("run.after_forgetting_tasks")
    remember_job(store, plan, redoing=redo or is_redoing(store, plan))
    file = replace(file, started=round(Leases(members, file.lease).now(), 3), kept=len(kept))
    plan_file.write_plan_file(store, file)  # from here on, workers can join
    return Begun(file, kept, changes)
