"""Ended: whether a run of members is over, and cleaning up if one died just after it wrote the manifest."""

from penstock.base.stores.store import PLAN, Store
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.clearing import end_runs_of_members, remove_scaffolding
from penstock.prepare.run.resume import is_redoing, remember_job
from penstock.shards.manifest import MANIFEST


def conclude(store: Store, plan: Plan) -> None:
    """End the run, so that a slow member cannot remove files at the same time. Then remove what a member leaves if it
    dies just after it wrote the manifest."""
    end_runs_of_members(store)
    remove_scaffolding(store)
    if is_redoing(store, plan):
        remember_job(store, plan, redoing=False)


def is_closed(store: Store) -> bool:
    """Whether the dataset is there, and nothing is left to do."""
    return store.exists(MANIFEST) and not store.exists(PLAN)
