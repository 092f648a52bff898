"""Closing: what lies between the last task and the end of the run: one member finishes the dataset, and all see that it
is there."""

import json
import time
from collections.abc import Callable

from penstock.base.stores.leases import Leases
from penstock.base.stores.store import Store
from penstock.prepare.engines.workers.board import Board, Pause
from penstock.prepare.engines.workers.member_log import statuses
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.clearing import remove_scaffolding
from penstock.prepare.run.members.plan_file import PLAN, end_runs_of_members
from penstock.prepare.run.resume import is_redoing, remember_job
from penstock.shards.manifest import MANIFEST

_FINISH = "finish"  # its claim; no task is called so


def finish_once(store: Store, board: Board, leases: Leases, finish: Callable[[], object]) -> None:
    """Return when the dataset is there. Whoever gets the claim finishes it; one that dies is replaced."""
    pause = Pause()
    while not store.exists(MANIFEST):
        board.refuse_ended()
        latest = leases.latest().get(_FINISH, 0)
        is_free = not latest or leases.is_expired(_FINISH, latest)
        if is_free and leases.claim(_FINISH, latest) and not store.exists(MANIFEST):
            finish()
        pause.begin(found=False)
        time.sleep(0 if store.exists(MANIFEST) else pause.left)


def conclude(store: Store, plan: Plan) -> None:
    """Remove what a member would leave that died just after the manifest; the run is over."""
    remove_scaffolding(store)
    if is_redoing(store, plan):
        remember_job(store, plan, redoing=False)
    end_runs_of_members(store)


def is_closed(store: Store) -> bool:
    """Whether the dataset is there, and nothing is left to do."""
    return store.exists(MANIFEST) and not store.exists(PLAN)


def with_members(run_facts: bytes, store: Store, token: str) -> bytes:
    """The contents of run.json, with what each member did."""
    facts, found = json.loads(run_facts), statuses(store, token)
    keys = ("member", "host", "process", "tasks", "rows_done", "retries", "stalls", "peak", "cpu_seconds")
    members = [{key: each.get(key) for key in keys} for each in found]
    facts["members"] = sorted(members, key=lambda each: str(each["member"]))
    facts["peak_memory_bytes"] = max(facts["peak_memory_bytes"], *(each.get("peak", 0) for each in found), 0)
    facts["cpu_seconds"] = round(sum(each.get("cpu_seconds", 0.0) for each in found), 3)
    return json.dumps(facts, indent=1).encode() + b"\n"
