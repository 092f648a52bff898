"""Giving up: errors for tasks that cannot be done, for all engines."""

from collections.abc import Callable

from penstock.base.errors import PenstockError, TaskError
from penstock.base.memory import Budget
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines import events
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Task
from penstock.prepare.rows.rows import HUNG


def refuse_other_row(task: Task, row: LedgerRow) -> None:
    """Refuse a row that a worker reports for the wrong task."""
    if row.task != task.name:
        raise TaskError(f"defect: a worker that was given {task.name} reports {row.task}")


def defect_of(cause: BaseException, traceback: str) -> PenstockError:
    """The error for an unexpected exception in a task. Our own errors stay as they are."""
    if isinstance(cause, PenstockError):
        return cause
    defect = TaskError(
        f"a task ended with {type(cause).__name__}: {cause}",
        next_step="run with --debug for the traceback, and with `engine: local` to see if the cluster is the cause",
    )
    defect.add_note(traceback)
    return defect


def given_up(end: events.GiveUp, settings: Settings, budget: Budget, stack: Callable[[], str]) -> TaskError:
    """The error for a task that is given up. `stack` returns the stack of its worker, if it hangs."""
    if end.why == events.NEEDS_MORE:
        return _needs_more(end, budget)
    if end.why == events.LEAKS:
        return _leaks(end, settings)
    return _hung(end, stack()) if end.why == HUNG else _died(end, settings, budget)


def _where(attempt: events.Attempt) -> str:
    return f"{attempt.place or attempt.task.input}, after {attempt.rows:,} rows"


def _died(end: events.GiveUp, settings: Settings, budget: Budget) -> TaskError:
    return TaskError(
        f"a task failed {end.attempt.number} times, the last time because {end.attempt.reason}; "
        f"its batches were {format_size(settings.batch_bytes)}, a half and a quarter of that",
        where=_where(end.attempt),
        next_step=(
            "call the function on that file to see why; on_bad_input: set_aside continues without it. "
            if end.attempt.can_be_left_out
            else f"allow more than {budget} or look for rows that are very large; "
        )
        + "an unexplained SIGKILL usually comes from the kernel's out-of-memory killer (see `dmesg`)",
    )


def _hung(end: events.GiveUp, stack: str) -> TaskError:
    error = TaskError(
        f"a task showed no row for {end.seconds:.3g} s (task_timeout), twice",
        where=_where(end.attempt),
        next_step="the stack below shows where it hangs; if it only needs more time, raise `task_timeout`"
        + ("; on_bad_input: set_aside continues without that file" if end.attempt.can_be_left_out else ""),
    )
    error.add_note(stack)
    return error


def _leaks(end: events.GiveUp, settings: Settings) -> TaskError:
    return TaskError(
        f"the function keeps memory from one file to the next: its worker held "
        f"{format_size(end.attempt.place_bytes)} before {end.attempt.place} and {format_size(end.bytes)} in it; "
        f"{format_size(settings.worker_limit)} is what it may hold",
        where=str(end.attempt.task.input),
        next_step="free what earlier files left in memory (caches, lists in the module), or raise `function_memory:`",
    )


def _needs_more(end: events.GiveUp, budget: Budget) -> TaskError:
    return TaskError(
        f"a row needs more memory than {budget} leaves to a task when no other runs",
        where=f"{end.attempt.task.input}, after {end.attempt.rows:,} rows",
        next_step="a larger `memory:`",
    )
