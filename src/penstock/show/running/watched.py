"""Watched: jobs run from Python, with progress where somebody looks on: in a terminal, or in a notebook."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.events import Event, Observer
from penstock.prepare import entry
from penstock.prepare.entry import Job
from penstock.prepare.plan.plan import Plan
from penstock.shards.manifest import Manifest


def run(job: Job | Plan, observe: Observer | None = None, redo: bool = False, progress: bool = True) -> Manifest:
    """Prepare the dataset, resuming where an earlier run stopped.

    `job` is a path of a job file, a mapping, a Config or a Plan. `observe` is called with each event. `redo` replaces a
    dataset that was made from something else, or makes this one anew. `progress=False` shows nothing while it runs;
    where neither a terminal nor a notebook is, nothing is shown anyway.
    """
    with _shown(observe, progress) as observer:
        return entry.run(job, observer, redo)


def merge(
    job: Job,
    folder: str | os.PathLike[str] | None = None,
    observe: Observer | None = None,
    redo: bool = False,
    progress: bool = True,
) -> Manifest:
    """Go on from batch files (batch_*.npz): split, normalize and place what they hold, as the job says.

    They lie in `folder`, or where the job's `intermediate_dir` is. The rest is as for `run`.
    """
    with _shown(observe, progress) as observer:
        return entry.merge(job, folder, observer, redo)


@contextmanager
def _shown(observe: Observer | None, progress: bool) -> Iterator[Observer | None]:
    """The observer, and a display beside it where somebody looks on."""
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not progress or not (in_terminal or "ipykernel" in sys.modules):
        yield observe
        return
    from penstock.show.console import make_console  # here, because they cost memory and nobody else needs them
    from penstock.show.running.progress import Display

    with Display(make_console(stderr=in_terminal)) as display:

        def both(event: Event) -> None:
            display.observe(event)
            if observe:
                observe(event)

        yield both
