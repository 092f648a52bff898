"""Driver room: refuse an input with more files than the driver can plan in the memory that is allowed."""

import math

from penstock.base.errors import PlanError
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.prepare.survey.survey import MANY_FILES

FILE_BYTES = 1536  # of the driver's memory for each file, at the most: benchmarks/RESULTS.md


def refuse_too_many(files: int, budget: Budget) -> None:
    """The driver holds something of every file: it must not be killed while it counts them."""
    if files < MANY_FILES:
        return
    held = own_memory().counted
    needed = held + files * FILE_BYTES
    if needed > budget.allowed:
        raise PlanError(
            f"the input has {files:,} files, and the driver needs {format_size(needed)} to plan them: "
            f"{format_size(held)} of its own and about {FILE_BYTES:,} bytes per file; "
            f"{budget} allows {format_size(budget.allowed)}",
            where="counted when the input was listed",
            next_step=f"memory: {math.ceil(1.5 * needed / 10e6) * 10}MB, or join small files into larger ones",
        )
