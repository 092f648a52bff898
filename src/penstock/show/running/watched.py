"""Watched: jobs run from Python, with progress where somebody looks on: in a terminal, or in a notebook."""

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.base.errors import ConfigError
from penstock.base.events import Event, Observer
from penstock.base.events.metrics import SECONDS, Metrics, OnMetrics
from penstock.prepare import entry
from penstock.prepare.entry import Job
from penstock.prepare.plan.plan import Plan
from penstock.shards.manifest import Manifest


def run(
    job: Job | Plan,
    observe: "Observer | None" = None,
    redo: bool = False,
    progress: bool = True,
    on_metrics: OnMetrics | None = None,
    metrics_seconds: float = SECONDS,
) -> Manifest:
    """Prepare the dataset, resuming where an earlier run stopped.

    Args:
        job: Path of a job file, a dict of its keys, a Config or a Plan.
        observe: An Observer: a function that is called with each event, a dict. `help(penstock.events)` lists the
            events. What it raises ends the run. Default: None.
        redo: Replace a dataset that was made from something else, or make this one anew. Default: False.
        progress: Show progress in a terminal or a notebook. Elsewhere nothing is shown; a run that waits for
            workers warns. Default: True.
        on_metrics: Function that is called with a flat dict of numbers for a logger, such as
            `penstock/rows_per_second`. What it raises becomes a warning, once. Default: None.
        metrics_seconds: Seconds between two calls of `on_metrics`; it is also called at the end. Default: 10.

    Returns:
        The Manifest of the finished dataset.
    """
    with _watching(observe, progress, Metrics(on_metrics, metrics_seconds, "penstock.run")) as observer:
        return entry.run(job, observer, redo)


def merge(
    job: Job,
    folder: str | os.PathLike[str] | None = None,
    observe: "Observer | None" = None,
    redo: bool = False,
    progress: bool = True,
    on_metrics: OnMetrics | None = None,
    metrics_seconds: float = SECONDS,
) -> Manifest:
    """Merge batch files (batch_*.npz) into a dataset: split and normalize their samples, as the job says.

    Args:
        job: Path of a job file, a dict of its keys, or a Config: the job that the batch files were made for.
        folder: Folder of the batch files. Default: the job's `intermediate_dir`.
        observe: As in `penstock.run`. Default: None.
        redo: As in `penstock.run`. Default: False.
        progress: As in `penstock.run`. Default: True.
        on_metrics: As in `penstock.run`. Default: None.
        metrics_seconds: As in `penstock.run`. Default: 10.

    Returns:
        The Manifest of the finished dataset.
    """
    with _watching(observe, progress, Metrics(on_metrics, metrics_seconds, "penstock.merge")) as observer:
        return entry.merge(job, folder, observer, redo)


@contextmanager
def _watching(observe: Observer | None, progress: bool, metrics: Metrics) -> Iterator[Observer | None]:
    """All that hear the events of a run, as one observer: a display, the metrics, the user's own."""
    if observe is not None and not callable(observe):
        raise ConfigError(
            f"observe={observe!r} cannot be called",
            where="penstock.run, penstock.merge",
            next_step="give a function that takes one event, a dict: observe=print",
        )
    with _shown(progress) as shown:
        told = [shown, _measured(metrics), observe]
        observers = [each for each in told if each]

        def tell(event: Event) -> None:
            for each in observers:
                each(event)

        yield tell if observers else None


def _measured(metrics: Metrics) -> Observer | None:
    if not metrics.is_wanted:
        return None
    from penstock.show.running.metrics import RunMetrics

    return RunMetrics(metrics).observe


def _warn(event: Event) -> None:
    """A run that waits for workers says so, even where no progress is shown."""
    if event["event"] in ("no_worker", "worker_left"):
        from penstock.show.running.notices import notices

        warnings.warn("\n".join(line.plain for line in notices(event)), stacklevel=2)


@contextmanager
def _shown(progress: bool) -> Iterator[Observer | None]:
    """A display, where somebody looks on."""
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    if not progress or not (in_terminal or "ipykernel" in sys.modules):
        yield _warn if progress else None
        return
    from penstock.show.console import make_console  # here, because they cost memory and nobody else needs them
    from penstock.show.running.progress import Display

    with Display(make_console(stderr=in_terminal), notebook=not in_terminal) as display:
        yield display.observe
