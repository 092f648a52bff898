"""Given up: a task that cannot be done -> the error that says why, and what to do about it. Used by local.py."""

from penstock.base.errors import TaskError
from penstock.base.memory import Budget
from penstock.base.sizes import format_size
from penstock.prepare.budget.means import Settings
from penstock.prepare.engines.attempt import Attempt
from penstock.prepare.engines.events import LEAKS, NEEDS_MORE, GiveUp
from penstock.prepare.rows.rows import HUNG


def given_up(end: GiveUp, settings: Settings, budget: Budget, stack: str) -> TaskError:
    """`stack` is that of a worker that hangs."""
    if end.why == NEEDS_MORE:
        return _needs_more(end, budget)
    if end.why == LEAKS:
        return _leaks(end, settings)
    return _hung(end, stack) if end.why == HUNG else _died(end, settings, budget)


def _where(attempt: Attempt) -> str:
    return f"{attempt.place or attempt.task.input}, after {attempt.rows:,} rows"


def _died(end: GiveUp, settings: Settings, budget: Budget) -> TaskError:
    return TaskError(
        f"a task failed {end.attempt.number} times, the last time because {end.attempt.reason}; "
        f"its batches were {format_size(settings.batch_bytes)}, a half and a quarter of that",
        where=_where(end.attempt),
        next_step=(
            "call the function on that file to see why; on_bad_input: set_aside goes on without it. "
            if end.attempt.can_be_left_out
            else f"allow more than {budget} or look for rows that are very large; "
        )
        + "SIGKILL without a reason is mostly the kernel's out-of-memory killer (see `dmesg`)",
    )


def _hung(end: GiveUp, stack: str) -> TaskError:
    error = TaskError(
        f"a task showed no row for {end.seconds:.3g} s (task_timeout), twice",
        where=_where(end.attempt),
        next_step="see where it hangs in the stack below; if it only needs longer, raise `task_timeout`"
        + ("; on_bad_input: set_aside goes on without that file" if end.attempt.can_be_left_out else ""),
    )
    error.add_note(stack)
    return error


def _leaks(end: GiveUp, settings: Settings) -> TaskError:
    return TaskError(
        f"the function keeps memory from one file to the next: its worker held "
        f"{format_size(end.attempt.place_bytes)} before {end.attempt.place} and {format_size(end.bytes)} in it; "
        f"{format_size(settings.worker_limit)} is what it may hold",
        where=str(end.attempt.task.input),
        next_step="let go of what earlier files left (caches, lists in the module), or raise `function_memory:`",
    )


def _needs_more(end: GiveUp, budget: Budget) -> TaskError:
    return TaskError(
        f"a row needs more memory than {budget} leaves to a task when no other runs",
        where=f"{end.attempt.task.input}, after {end.attempt.rows:,} rows",
        next_step="a larger `memory:`",
    )
