"""Watching: logs of the members and the ledger -> events of the run, until a member has written the manifest."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import Interrupted
from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.base.stores.local import LocalStore
from penstock.prepare.engines.workers.onlooker import Onlooker
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.members.beginning import WATCHER, Begun
from penstock.prepare.run.members.ended import conclude, is_closed
from penstock.prepare.run.progress import Progress
from penstock.shards.manifest import MANIFEST

_POLL_SECONDS = 0.25


def watch(
    begun: Begun, plan: Plan, store: LocalStore, lock: tuple[int, ...], nursery: Nursery, observe: Observer | None
) -> None:
    members, progress = begun.file.store(store.root, WATCHER), Progress(plan, store, observe)
    with (
        progress.logging() as log,
        Doing.start(plan, members, log, lock, progress, nursery, alone=False) as doing,
    ):
        log.say("start", **{**progress.start_facts(begun.changes, begun.kept), "waits_for": store.root})
        with _told(doing, store):
            doing.wait_for_engines()
            with _unless_done(store):
                doing.passes(begun.kept)
            _wait_for_manifest(doing, store, begun.file.lease)
        conclude(store, plan)
        log.say("done", seconds=progress.seconds)


@contextmanager
def _told(doing: Doing, store: LocalStore) -> Iterator[None]:
    """Log the error, if the run ends with one."""
    log, progress = doing.log, doing.progress
    try:
        yield
    except KeyboardInterrupt:
        stopped = Interrupted(
            "stopped watching; workers that have joined go on",
            where=store.root,
            next_step="the same command watches again; to stop the work, end the `penstock work` processes",
        )
        log.say_failed(stopped, progress.seconds)
        raise stopped from None
    except Exception as error:
        log.say_failed(error, progress.seconds)
        raise


@contextmanager
def _unless_done(store: LocalStore) -> Iterator[None]:
    """Ignore errors when the dataset is there: a worker may have removed files that we were reading."""
    try:
        yield
    except Exception:
        if not store.exists(MANIFEST):
            raise


def _wait_for_manifest(doing: Doing, store: LocalStore, lease: float) -> None:
    """Return when a worker has written it and cleared up, or has died there."""
    engine, deadline = doing.engine, float("inf")
    assert isinstance(engine, Onlooker)
    while not is_closed(store) and time.monotonic() < deadline:
        if not store.exists(MANIFEST):
            with _unless_done(store):
                engine.listen()
        elif deadline == float("inf"):
            deadline = time.monotonic() + lease
        time.sleep(_POLL_SECONDS)
