"""Ensuring: a plan -> a run of it that workers can join. It is begun here if nobody has begun it. Nobody watches.

Machines that start together all call this. The output's lock lets one of them begin; the others wait for its plan file.
"""

import time

from penstock.base.stores.local import LocalStore
from penstock.base.stores.store import HeldElsewhere
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.holding import hold_others
from penstock.prepare.run.members.beginning import begin
from penstock.prepare.run.members.ended import conclude
from penstock.prepare.run.members.plan_file import read_plan_file
from penstock.prepare.run.members.shared_output import shared_folder
from penstock.prepare.run.owner import owner_words
from penstock.prepare.run.resume import finished, refuse_foreign

_POLL_SECONDS = 0.5
_MOST_SECONDS = 60.0  # so long may another process hold the output before its plan file is there


def ensure_begun(plan: Plan) -> None:
    """Return when workers can join a run of this job, or find it finished. Refuses the output of another job."""
    store, deadline = shared_folder(plan), time.monotonic() + _MOST_SECONDS
    refuse_foreign(store)
    while True:
        try:
            return _begin(plan, store)
        except HeldElsewhere:
            there = read_plan_file(store)
            if there and there.is_of(plan):
                return None  # its holder watches
            if time.monotonic() > deadline:
                raise
        time.sleep(_POLL_SECONDS)


def _begin(plan: Plan, store: LocalStore) -> None:
    with store.hold(owner_words(plan)):
        if finished(store, plan, redo=False):
            conclude(store, plan)
            return
        plan.wait_for_engines()
        with hold_others(plan):
            begin(store, plan, redo=False)
