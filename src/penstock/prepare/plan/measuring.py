"""Measuring: which passes are tried and how, and what trials are too short to show. Small jobs are not tried. Pure."""

import math
from collections.abc import Sequence
from dataclasses import replace

from penstock.base.memory import Budget
from penstock.base.sizes import parse_size
from penstock.prepare.budget.costs import SLICES, Measured, assume
from penstock.prepare.budget.means import Settings
from penstock.prepare.budget.room import Room, alone_room
from penstock.prepare.job.config import Config
from penstock.prepare.passes import Pass, Trial
from penstock.prepare.passes.job import Job, user_code
from penstock.prepare.plan.settings import row_bytes_of, strategy_of, threads_of
from penstock.prepare.sources.registry import compression_of
from penstock.prepare.stages.interfaces import HasEngine, busy_threads
from penstock.prepare.survey.survey import Survey

# Decoded bytes: from about there on, two workers are quicker than none, for all that they must start.
_SMALL = 128 << 20
_SMALL_NEEDS = 512 << 20  # allowed beside ten times that and the engines of stages: nothing watches such a job
_MOST_GROWTH = 3  # of text that is decoded: one byte of an older encoding may become three of UTF-8
_BATCH_BYTES = 4 << 20
_DRIVER_GROWTH = 8 << 20  # the event log, and what comes with a run
_DESCRIBED_BYTES = 1 << 10  # of a file, in what a run remembers of its job
_LEDGER_ROW_BYTES = 5 << 10  # as Python holds it; 4.2 kB were measured for a bucket of short keys


def is_small(config: Config, survey: Survey, budget: Budget) -> bool:
    """Whether there is little data, much memory, no code but penstock's own, and an engine that works in the driver."""
    if strategy_of(config).is_own_choice or user_code(survey) or not config.engine.kind.has_inside:
        return False
    decoded = max(sum(map(survey.rows_of, survey.slices)) * row_bytes_of(survey), survey.decoded_bytes)
    return decoded <= _SMALL and _SMALL_NEEDS + _most_assumed(survey) + 10 * decoded <= budget.allowed


def with_engines(survey: Survey, at_once: bool, refused: str = "") -> Survey:
    """Choose the engines of stages that have some; those of a small job are chosen while it is begun. `refused`: what
    was wrong with the engine of a run that was begun."""
    stages = (
        stage.ready(survey.sample, _most_bytes(survey), at_once, refused) if isinstance(stage, HasEngine) else stage
        for stage in survey.stages
    )
    return replace(survey, stages=tuple(stages))


def _most_bytes(survey: Survey) -> float:
    """Upper bound for the text in all rows, if it can be told from sizes or the first rows; else infinite."""
    if user_code(survey):
        return math.inf
    if not survey.rows_are_estimated and survey.sample.num_rows == sum(map(survey.rows_of, survey.slices)):
        return float(survey.sample.nbytes)
    places = [segment.location for piece in survey.slices for segment in piece.segments]
    if all("encoding" in kind.takes for kind in survey.kinds) and not any(map(compression_of, places)):
        return _MOST_GROWTH * survey.bytes
    return math.inf


def assumed(survey: Survey) -> Measured:
    return assume(row_bytes_of(survey), _most_assumed(survey))


def _most_assumed(survey: Survey) -> int:
    return max((stage.assumed_bytes for stage in survey.stages if isinstance(stage, HasEngine)), default=0)


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
    growing = () if measured.assumed else (stage for stage in job.stages if isinstance(stage, HasEngine))
    grown = sum(stage.grows_by(threads) for stage in growing)
    fixed = max([measured.slices.fixed_bytes, *declared]) + held + grown
    costs = {**measured.costs, SLICES: replace(measured.slices, fixed_bytes=fixed)}
    return replace(measured, costs=costs)


def driver_growth(passes: Sequence[Pass], files: int) -> int:
    """Bytes that a run adds to the driver: a row per task, and the description of every file."""
    tasks = sum(each.task_count for each in passes)
    states = sum(each.states.bytes for each in passes if each.states)
    return _DRIVER_GROWTH + _LEDGER_ROW_BYTES * tasks + _DESCRIBED_BYTES * files + states


def _most_threads(job: Job, cores: int) -> int:
    """The most threads that a process will have."""
    workers = job.config.workers
    return threads_of(busy_threads(job.stages), cores if workers == "auto" else max(1, workers), 1)
