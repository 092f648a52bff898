"""Closing: after the last task, one member finishes the dataset, and the others wait until it is there."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from penstock.base.stores.leases import Leases
from penstock.base.stores.shared import SharedStore
from penstock.base.stores.store import HeldElsewhere
from penstock.prepare.engines.workers.board import Board, Pause
from penstock.prepare.engines.workers.member_log import with_members
from penstock.prepare.passes import Left
from penstock.prepare.plan.plan import Plan
from penstock.prepare.run.clearing import end_runs_of_members
from penstock.prepare.run.finishing import finish
from penstock.prepare.run.holding import hold_others
from penstock.prepare.run.progress import Progress
from penstock.shards.manifest import MANIFEST

_FINISH = "finish"  # the name of its claim; no task has this name
_LOCK_SECONDS = 180.0  # a network file system keeps the locks of a machine that died for a minute or two
_LOCK_PAUSE_SECONDS = 0.5


def close(plan: Plan, store: SharedStore, leases: Leases, left: Left, progress: Progress) -> None:
    """Return when the dataset is there. The member with the claim finishes it; if it dies, another takes over."""
    board, pause = Board(store), Pause()
    while not store.exists(MANIFEST):
        board.refuse_ended()
        latest = leases.latest().get(_FINISH, 0)
        is_free = not latest or leases.is_expired(_FINISH, latest)
        if is_free and leases.claim(_FINISH, latest) and not store.exists(MANIFEST):
            with _hold_others(plan):
                finish(plan, store, left, lambda: with_members(progress.run_facts(), store))
            end_runs_of_members(store)
        pause.begin(found=False)
        time.sleep(0 if store.exists(MANIFEST) else pause.left)


@contextmanager
def _hold_others(plan: Plan) -> Iterator[None]:
    """Like `hold_others`, but waits for a member that was stopped or died while it finished the dataset."""
    deadline = time.monotonic() + _LOCK_SECONDS
    with ExitStack() as stack:
        while True:
            try:
                stack.enter_context(hold_others(plan))
                break
            except HeldElsewhere:
                if time.monotonic() > deadline:
                    raise
            time.sleep(_LOCK_PAUSE_SECONDS)
        yield
