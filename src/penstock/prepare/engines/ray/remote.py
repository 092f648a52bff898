"""Remote: a worker process of the cluster: takes a task, does it, and returns its ledger row."""

from __future__ import annotations

import os
import pickle
import sys
from functools import partial
from typing import Any, NamedTuple

from penstock.base.errors import TaskError
from penstock.base.memory import resident_memory
from penstock.base.user_code import current_sources
from penstock.prepare.budget.means import Settings, give_back_memory
from penstock.prepare.engines.events import Give
from penstock.prepare.engines.ray.arriving import find_modules, message_of, refuse_large, unpacked, version
from penstock.prepare.engines.ray.inbox import Mailbox
from penstock.prepare.engines.worker import answer_of, do, refuse_other_code
from penstock.prepare.passes import Work


class Duty(NamedTuple):
    """A pass, as it is sent to the nodes once."""

    number: str
    version: str  # of the driver's penstock
    path: tuple[str, ...]  # where the driver finds modules
    folder: str  # the driver's working folder
    message: bytes  # Work, Settings and stall_notice; unpacking them needs these modules


_accepted: dict[str, tuple[Work, Settings, float]] = {}  # the last one, by its number


def duty_of(work: Work, settings: Settings, stall_notice: float) -> Duty:
    """The pass, as the driver sends it."""
    message = message_of((work, settings, stall_notice), "the description of a pass")
    return Duty(os.urandom(8).hex(), version(), tuple(sys.path), os.getcwd(), message)


def message_of_give(give: Give) -> bytes:
    return message_of(give, f"what to do for task {give.task.name}")


def do_task(duty: Duty, give: bytes, inbox: Any, token: str) -> bytes:
    """Do a task of the pass `duty`. Returns what a local worker would send: its ledger row, or an error."""
    with current_sources(), Mailbox(inbox, token) as mailbox:
        mailbox.send(("ready", resident_memory(os.getpid()).counted))
        answer = answer_of("done", partial(_do, duty, give, mailbox))
    return refuse_large(pickle.dumps(answer, protocol=5), "the ledger row of a task")


def _do(duty: Duty, give: bytes, mailbox: Mailbox) -> Any:
    if duty.number not in _accepted:
        _accept(duty)
    return do(mailbox, *_accepted[duty.number], unpacked(give))


def _accept(duty: Duty) -> None:
    for former, _, _ in _accepted.values():
        former.close()
    _accepted.clear()
    give_back_memory()  # of the pass before
    if duty.version != version():
        raise TaskError(
            f"node {os.uname().nodename} has penstock {version()}, and the driver {duty.version}",
            next_step=f"install penstock {duty.version} there: the node joined the cluster after the run began",
        )
    find_modules(duty.path, duty.folder)
    work, settings, stall_notice = unpacked(duty.message)
    refuse_other_code(work)
    _accepted[duty.number] = work, settings, stall_notice
