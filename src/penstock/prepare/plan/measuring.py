"""Measuring: which passes are tried, how, and what a trial is too short to show. Pure. Next: engines/trial.py."""

from collections.abc import Sequence
from dataclasses import replace

from penstock.base.sizes import parse_size
from penstock.prepare.budget.costs import SLICES, Measured
from penstock.prepare.budget.means import Settings
from penstock.prepare.budget.room import Room, alone_room
from penstock.prepare.passes import Pass, Trial
from penstock.prepare.passes.job import Job
from penstock.prepare.plan.settings import row_bytes_of, threads_of
from penstock.prepare.stages.interfaces import UsesThreads, busy_threads

_BATCH_BYTES = 4 << 20
_DRIVER_GROWTH = 8 << 20  # the event log, and what comes with a run
_DESCRIBED_BYTES = 1 << 10  # of a file, in what a run remembers of its job
_LEDGER_ROW_BYTES = 5 << 10  # as Python holds it; 4.2 kB were measured for a bucket of short keys


def trials_of(passes: Sequence[Pass]) -> list[Trial]:
    """The first pass that can be tried for each word, in the order of the passes."""
    found: dict[str, Trial] = {}
    for trial in (each.trial for each in passes):
        if trial:
            found.setdefault(trial.word, trial)
    return list(found.values())


def trial_settings(job: Job, cores: int) -> Settings:
    alone = alone_room(job.allowed)
    threads = _most_threads(job, cores)
    return Settings(0, _BATCH_BYTES, 0, row_bytes_of(job.survey), 1.0, threads=threads, room=Room(alone, alone))


def with_more(job: Job, passes: Sequence[Pass], cores: int, measured: Measured) -> Measured:
    """Add what a trial is too short to show: the memory that is declared for a function, what endings hold until it is
    enough for a file, and what the engines of stages grow by."""
    declared = (parse_size(source.function_memory) for source in job.config.input if source.function_memory)
    held = max(each.held_later(row_bytes_of(job.survey)) for each in passes)
    threads = _most_threads(job, cores)
    growing = () if measured.assumed else (stage for stage in job.stages if isinstance(stage, UsesThreads))
    grown = sum(stage.grows_by(threads) for stage in growing)
    fixed = max([measured.slices.fixed_bytes, *declared]) + held + grown
    return replace(measured, costs={**measured.costs, SLICES: replace(measured.slices, fixed_bytes=fixed)})


def driver_growth(passes: Sequence[Pass], files: int) -> int:
    """Bytes that a run adds to the driver: a row per task, and the description of every file."""
    tasks = sum(each.task_count for each in passes)
    return _DRIVER_GROWTH + _LEDGER_ROW_BYTES * tasks + _DESCRIBED_BYTES * files


def _most_threads(job: Job, cores: int) -> int:
    """The most threads that a process will have."""
    workers = job.config.workers
    return threads_of(busy_threads(job.stages), cores if workers == "auto" else max(1, workers), 1)
