"""Holding: locks and fences around a run: its output, the folders beside it, and the writes of other machines."""

import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.base.stores import open_store
from penstock.base.stores.shared import SharedStore, begin_run, shared_root
from penstock.base.stores.store import Store
from penstock.prepare.plan.plan import Plan
from penstock.prepare.rows.kept import forget_kept
from penstock.prepare.run.clearing import end_runs_of_members
from penstock.prepare.run.owner import owner_words


@contextmanager
def hold_output(plan: Plan, store: Store) -> Iterator[tuple[int, ...]]:
    """Hold the output alone. Late writes of an earlier run on several machines no longer have an effect."""
    with store.hold(owner_words(plan)) as lock:
        end_runs_of_members(store)
        try:
            yield lock
        finally:
            forget_kept()  # otherwise the next run of this process would read old files, even damaged ones


@contextmanager
def hold_others(plan: Plan, shared: bool | None = None) -> Iterator[None]:
    """Hold the folders beside the output that stages and sources of the job use; or only those that others may (not)
    read meanwhile."""
    owner = owner_words(plan) + f", which writes {plan.config.output_path}".encode(errors="surrogateescape")
    with ExitStack() as stack:
        for other in (each for each in plan.survey.other_folders if shared in (None, each.shared)):
            stack.enter_context(open_store(other.root).hold(owner, other.what, other.key, other.shared))
            other.refuse_changed()
        yield


@contextmanager
def shared_store(plan: Plan, store: Store) -> Iterator[Store]:
    """The store through which tasks write: `store` itself, if the engine works on this machine alone."""
    if not plan.config.engine.kind.has_many_hosts:
        yield store
        return
    token = secrets.token_hex(8)
    begin_run(store.root, token)
    try:
        yield SharedStore(shared_root(store.root, token, "driver"))
    finally:
        store.fence()
        store.sweep()
