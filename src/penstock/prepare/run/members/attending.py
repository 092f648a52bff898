"""Attending: `penstock run --engine workers`: plan the job, write the plan into the output, and watch the workers. It
starts no task. Next: beginning.py, watching.py."""

import time

from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.holding import hold_others
from penstock.prepare.run.members.beginning import begin
from penstock.prepare.run.members.ended import conclude
from penstock.prepare.run.members.shared_output import shared_folder
from penstock.prepare.run.members.watching import watch
from penstock.prepare.run.owner import owner_words
from penstock.prepare.run.resume import finished, refuse_foreign
from penstock.shards.manifest import Manifest, read_manifest


def attend(plan: Plan, nursery: Nursery, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Begin the run, or watch it if it has begun. Returns at once if the output is finished."""
    store = shared_folder(plan)
    refuse_foreign(store)
    with store.hold(owner_words(plan)) as lock:
        there = finished(store, plan, redo)
        if there:
            conclude(store, plan)
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        plan.wait_for_engines()
        with hold_others(plan):  # workers hold these folders when they write there
            begun = begin(store, plan, redo)
        watch(begun, plan, store, lock, nursery, observe)
    return read_manifest(store)
