"""Attending: a run whose tasks are done by workers that come by themselves. It plans, writes the plan into the output,
starts no task, and tells what the workers do until one of them has written the manifest."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import ConfigError, Interrupted
from penstock.base.events import Observer
from penstock.base.processes.nursery import Nursery
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.base.user_code.carried import shown_name
from penstock.prepare.engines import Opening
from penstock.prepare.engines.workers.board import TakenAway
from penstock.prepare.engines.workers.onlooker import Onlooker
from penstock.prepare.job.stage_list import carried_targets
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.doing import Doing
from penstock.prepare.run.members.beginning import WATCHER, begin
from penstock.prepare.run.members.closing import conclude, is_closed
from penstock.prepare.run.owner import owner_words
from penstock.prepare.run.progress import Progress
from penstock.prepare.run.resume import finished, refuse_foreign
from penstock.prepare.run.run import holding_others
from penstock.shards.manifest import MANIFEST, Manifest, read_manifest

_POLL_SECONDS = 0.25


def attend(plan: Plan, nursery: Nursery, observe: Observer | None = None, redo: bool = False) -> Manifest:
    """Begin the run, or watch one of the same job that was begun. Returns at once if the output is finished."""
    _refuse_unwritten(plan)
    store = open_store(plan.config.output_path)
    if not isinstance(store, LocalStore):
        raise ConfigError(f"engine: workers needs an `output:` in a folder that all machines share, not {store.root}")
    refuse_foreign(store)
    with store.hold(owner_words(plan)) as lock:
        there = finished(store, plan, redo)
        if there:
            conclude(store, plan)
            if observe:
                observe({"event": "already_done", "time": time.time()})
            return there
        plan.wait_for_engines()
        with holding_others(plan):  # workers hold them when they write there
            begun = begin(store, plan, redo)
        members = begun.file.store(store.root, WATCHER)
        progress = Progress(plan, store, observe)
        with (
            progress.logging() as log,
            Doing.start(Opening(plan, members, log, lock, nursery), progress, alone=False) as doing,
        ):
            log.say("start", **progress.start_facts(begun.changes, begun.kept))
            with _told(doing, store):
                doing.wait_for_engines()
                doing.passes(begun.kept)
                _wait_for_manifest(doing, store, begun.file.lease)
                conclude(store, plan)
            log.say("done", seconds=progress.seconds)
    return read_manifest(store)


def _refuse_unwritten(plan: Plan) -> None:
    """Refuse what workers cannot read from a file: functions of this session, and items."""
    for target in carried_targets(plan.config.stages, plan.config.input):
        raise ConfigError(
            f"engine: workers: the function {shown_name(target)} exists only in this session",
            next_step="write it in a module beside the job file, and name it as module:function",
        )
    if any(source.items for source in plan.config.input):
        raise ConfigError(
            "engine: workers: `items` exist only in this session",
            next_step="write them into a file, one per line, and read that",
        )


@contextmanager
def _told(doing: Doing, store: LocalStore) -> Iterator[None]:
    """Tell the log how it ended, if not with a dataset."""
    log, progress = doing.log, doing.progress
    try:
        yield
    except KeyboardInterrupt:
        stopped = Interrupted(
            "no longer watching; workers that have joined go on",
            where=store.root,
            next_step="the same command watches again; to stop the work, end the `penstock work` processes",
        )
        log.say_failed(stopped, progress.seconds)
        raise stopped from None
    except TakenAway:
        if not store.exists(MANIFEST):
            raise
    except Exception as error:
        log.say_failed(error, progress.seconds)
        raise


def _wait_for_manifest(doing: Doing, store: LocalStore, lease: float) -> None:
    """Return when a worker has written it and cleared up, or has died there."""
    engine, deadline = doing.engine, float("inf")
    assert isinstance(engine, Onlooker)
    while not is_closed(store) and time.monotonic() < deadline:
        if not store.exists(MANIFEST):
            engine.listen()
        elif deadline == float("inf"):
            deadline = time.monotonic() + lease
        time.sleep(_POLL_SECONDS)
