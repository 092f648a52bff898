"""Owner: who holds an output: the words that a run writes into its lock, and whether that run is still at work.

Asking takes no lock and writes nothing: a run that starts meanwhile is not refused.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.stores.local import LOCK
from penstock.base.stores.store import Store

if TYPE_CHECKING:
    from penstock.prepare.plan.plan import Plan

_WRITTEN = re.compile(r"process (\d+) on (.*), since (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


@dataclass(frozen=True)
class Owner:
    """The last process that held an output. It may have ended since."""

    process: int
    host: str
    since: str

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"


@dataclass(frozen=True)
class AtWork:
    """Whether a run is at work in an output. None: its owner is of another machine, which cannot be asked."""

    is_true: bool | None
    owner: Owner | None

    def __str__(self) -> str:
        if self.is_true is None:
            return f"a run of another machine may be at work: {self.owner}"
        return f"a run is at work: {self.owner}" if self.is_true else "no run is at work"


def owner_words(plan: Plan) -> bytes:
    owner = Owner(os.getpid(), socket.gethostname(), time.strftime("%Y-%m-%d %H:%M:%S"))
    return f"{owner}, job {plan.job[:8]}".encode()


def run_at_work(store: Store) -> AtWork:
    owner = _last_owner(store)
    if owner is None:
        return AtWork(False, None)
    if owner.host != socket.gethostname():
        return AtWork(None, owner)
    return AtWork(_holds(owner.process, store.local_path(LOCK)), owner)


def _last_owner(store: Store) -> Owner | None:
    words = store.read(LOCK).decode(errors="replace") if store.exists(LOCK) else ""
    found = _WRITTEN.match(words)
    return Owner(int(found[1]), found[2], found[3]) if found else None


def _holds(process: int, lock: str) -> bool:
    """Whether the process lives and has the lock open. The lock keeps the words of a run that has ended."""
    if sys.platform != "linux":
        return _lives(process)
    folder, wanted = f"/proc/{process}/fd", os.stat(lock)
    try:
        descriptors = os.listdir(folder)
    except FileNotFoundError:
        return False
    except PermissionError:  # another user's
        return True
    return any(_is_same(f"{folder}/{each}", wanted) for each in descriptors)


def _is_same(descriptor: str, wanted: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(descriptor), wanted)
    except OSError:  # it was closed meanwhile, or is no file
        return False


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        return True
    return True
