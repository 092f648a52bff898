"""Task: do one task of a pass and enter it in the ledger. Engines call this, wherever they are. Next: ledger.py."""

from dataclasses import replace

from penstock.base.errors import PenstockError
from penstock.base.faults import crash_point
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import IDENTITY, LedgerRow, write_row
from penstock.prepare.passes import Lost, Report, Task, Work


def execute(work: Work, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:
    """Do the task. `settings` say how much it holds at a time and change no byte; `lost` files were given up."""
    try:
        row = work.execute(task, settings, report, lost)
    except PenstockError as error:
        error.add_note(f"in {task.input}")
        raise
    row = replace(row, engine=work.engine)
    if work.identity:
        row = replace(row, states={**row.states, IDENTITY: work.identity})
    crash_point("task.before_ledger")
    write_row(open_store(work.root), row)
    crash_point("task.after_ledger")
    return row
