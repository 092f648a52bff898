"""Worker: the process that does tasks for the local engine, one at a time, until it is told to stop.

It comes from the nursery (base/processes/nursery.py), which calls `main` with the descriptor of its connection.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

import numpy.ma

from penstock.base.errors import PenstockError, TaskError
from penstock.base.memory import resident_memory
from penstock.base.user_code import accept, code_identity, current_sources, refuse_other_values
from penstock.prepare.budget.means import Settings, give_back_memory
from penstock.prepare.budget.room import MustBeAlone, Room
from penstock.prepare.engines.events import Give
from penstock.prepare.engines.task import execute
from penstock.prepare.engines.watch import Tells, Watch
from penstock.prepare.passes import Work
from penstock.prepare.passes.folds.trying.first_rows import try_first_rows
from penstock.prepare.passes.folds.trying.measure import measure
from penstock.prepare.survey.scouting import Scouted, scout

# Imported once, before workers are forked: what folds need, and numpy.ma, which `pa.array` of a numpy array imports.
OF_EVERY_JOB = (try_first_rows, numpy.ma)


def main(connection_number: int, *_held: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    gone = suppress(BrokenPipeError, ConnectionResetError, EOFError)  # the driver is, and says so itself
    with gone, current_sources():
        _serve(Connection(connection_number))


def _serve(connection: Connection[Any, Any]) -> None:
    sys.path[:] = connection.recv()
    connection.send(("ready", resident_memory(os.getpid()).counted))
    work: Work | None = None
    while message := connection.recv():
        if message[0] == "work":
            if work:
                work.close()
            work, settings, stall_notice = message[1:]
            give_back_memory()  # of the pass before
            connection.send(answer_of("accepted", partial(refuse_other_code, work)))
        elif message[0] == "measure":
            give_back_memory()  # of what was tried before
            connection.send(answer_of("done", partial(measure, *message[1:])))
        elif message[0] == "carry":
            accept(message[1])
        elif message[0] == "scout":
            connection.send(answer_of("done", partial(_scout, connection, *message[1:])))
        else:
            assert work is not None
            connection.send(answer_of("done", partial(do, connection, work, settings, stall_notice, *message[1:])))


def _scout(connection: Connection[Any, Any], *question: Any) -> Scouted:
    files, options, floats, missing = question
    return scout(files, options, floats, missing, tell=lambda path: connection.send(("place", path, 0)))


def refuse_other_code(work: Work) -> None:
    """Refuse code that changed since the plan: a worker that starts later must run the same code."""
    for target, identity in work.code:
        refuse_other_values(target)
        if code_identity(target) != identity:
            raise TaskError(
                f"the code of {target} was changed while the job was running",
                next_step="run the same command: the tasks of the old code are done again",
            )


def do(connection: Tells, work: Work, settings: Settings, stall_notice: float, give: Give) -> Any:
    room = Room(settings.room.alone, settings.room.alone) if give.alone else settings.room
    settings = replace(settings, batch_bytes=give.batch_bytes, hold_bytes=give.hold_bytes, room=room)
    with Watch(connection, stall_notice, settings.worker_limit) as watch:
        return execute(work, give.task, settings, watch.report, give.lost)


def answer_of(kind: str, work: Callable[[], Any]) -> tuple[Any, ...]:
    """The result of `work`, or its error, as a message that can be pickled."""
    try:
        return (kind, work(), resident_memory(os.getpid()).counted)  # cheap, and near enough to tell who has grown
    except MemoryError:
        os._exit(1)  # as good as killed: the driver tries again with half the batch
    except MustBeAlone:
        return ("alone", None, 0)
    except PenstockError as error:
        return ("failed", error, 0)
    except Exception as error:
        defect = TaskError(
            f"a task raised {type(error).__name__}: {error}",
            next_step="run with --debug for the traceback; if the code is not yours, it is a bug in penstock",
        )
        defect.add_note("".join(traceback.format_exception(error)))
        return ("failed", defect, 0)
