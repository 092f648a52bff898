"""Plan: turn a Config and what is known of its input and machine into passes of tasks that each fit. Next: run.py.

Pure: `make_plan` reads nothing and writes nothing. What is logical (slices, names, fingerprints) comes from the
job and its input; what is physical (how many workers, how large a batch) comes from the means it was given.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from penstock.base.errors import PlanError
from penstock.base.fingerprint import fingerprint
from penstock.base.memory import Budget
from penstock.base.sizes import format_size
from penstock.prepare.config import Config
from penstock.prepare.measure import Measurement, decoded_row_bytes
from penstock.prepare.slices import Slice
from penstock.prepare.survey import Survey
from penstock.prepare.task import Recipe, Task
from penstock.prepare.user_code import code_identity
from penstock.shards.manifest import FORMAT_VERSION

BATCH_BYTES = 4 << 20  # 1 to 8 MiB were equally fast, see benchmarks/LOG.md
GOOD_BATCH_BYTES = 1 << 20  # below this a worker less is better than a smaller batch
SMALLEST_BATCH_BYTES = 64 << 10
MARGIN = 1.25  # over what a task was measured to add: allocators keep more as it goes on
HOLD_MARGIN = 1.1  # over the bytes that are kept: they come in pieces
SLACK_BYTES = 4 << 20  # and a little a worker, which matters when batches are small


@dataclass(frozen=True)
class Means:
    """What the job may use, and what a little of it was measured to cost."""

    budget: Budget
    cores: int
    free_disk: int
    driver_bytes: int
    measured: Measurement


@dataclass(frozen=True)
class Settings:
    """Physical choices: they change speed and memory, never a byte of output."""

    workers: int
    batch_bytes: int
    row_bytes: float
    stored_row_bytes: float
    hold_bytes: int  # of its output that a task keeps in memory; the rest takes the way over a scratch file

    def row_bytes_of(self, piece: Slice) -> float:
        """Rows of a slice that stores more a row than the first are taken to decode to more, too."""
        density = piece.bytes / piece.rows / self.stored_row_bytes if piece.rows > 0 else 1.0
        return self.row_bytes * max(density, 1.0)


@dataclass(frozen=True)
class Projection:
    memory_bytes: int
    spill_bytes: int
    output_bytes: int
    seconds: float
    rows: int


@dataclass(frozen=True)
class Pass:
    number: int
    kind: Literal["fit", "map"]
    stage_count: int  # it runs the first so many stages
    fits: tuple[int, ...]
    tasks: tuple[Task, ...]
    projected: Projection


@dataclass(frozen=True)
class Plan:
    config: Config
    survey: Survey
    means: Means
    settings: Settings
    passes: tuple[Pass, ...]
    semantic: dict[str, Any]
    job: str  # fingerprint of everything that decides output bytes

    @property
    def projected_memory(self) -> int:
        return max(each.projected.memory_bytes for each in self.passes)

    @property
    def splits(self) -> tuple[str, ...]:
        return splits_of(self.survey)


def make_plan(config: Config, survey: Survey, means: Means) -> Plan:
    semantic = config.semantic(survey.stages)
    settings = _choose_settings(config, survey, means)
    job = fingerprint([FORMAT_VERSION, semantic, describe_input(survey)])
    passes = []
    above = ""
    for number, (kind, count, fits) in enumerate(cut_passes(survey)):
        tasks = _tasks(number, kind, count, above, semantic, survey)
        above = fingerprint([task.fingerprint for task in tasks])
        passes.append(Pass(number, kind, count, fits, tasks, _project(kind, survey, means, settings)))
    plan = Plan(config, survey, means, settings, tuple(passes), semantic, job)
    _refuse_without_disk(plan)
    return plan


def cut_passes(survey: Survey) -> list[tuple[Literal["fit", "map"], int, tuple[int, ...]]]:
    """(kind, how many stages it runs, whose reductions it runs) of each pass.

    A stage that needs its own artifact ends a fit pass; one that only leaves an artifact rides on the last pass.
    """
    passes: list[tuple[Literal["fit", "map"], int, tuple[int, ...]]] = []
    riding = []
    for number, stage in enumerate(survey.stages):
        if stage.uses_artifact:
            passes.append(("fit", number + 1, (number,)))
        elif stage.fit() is not None:
            riding.append(number)
    return [*passes, ("map", len(survey.stages), tuple(riding))]


def _tasks(
    number: int, kind: str, count: int, above: str, semantic: dict[str, Any], survey: Survey
) -> tuple[Task, ...]:
    what = {**semantic, "stages": semantic["stages"][:count]}
    given = [[field.name, str(field.type)] for field in survey.schema]
    written = [[field.name, field.type] for field in survey.output]  # a function's columns come from the first rows
    common = [FORMAT_VERSION, kind, above, what, given, written]
    return tuple(
        Task(
            f"{number}-{kind}-{piece.number:05d}",
            piece,
            fingerprint([common, len(survey.slices), piece.number, [each.describe() for each in piece.segments]]),
        )
        for piece in survey.slices
    )


def describe_input(survey: Survey) -> dict[str, Any]:
    """What the input is, wherever it lies."""
    segments = [segment for piece in survey.slices for segment in piece.segments]
    files = sorted({(segment.source, segment.path, segment.identity) for segment in segments})
    bad = [[each.source, each.path, each.reason] for each in survey.bad_files]
    return {"files": [list(each) for each in files], "set_aside": bad}


def splits_of(survey: Survey) -> tuple[str, ...]:
    names: tuple[str, ...] = ("train",)
    for stage in survey.stages:
        names = stage.splits() or names
    return names


def make_recipe(config: Config, survey: Survey) -> Recipe:
    """What a task of the last pass does; run.py cuts it down for the passes before."""
    return Recipe(
        root=config.output_path,
        reading=survey.reading(config, rows_at_once=1024, bytes_at_once=SMALLEST_BATCH_BYTES),
        on_bad_input=config.on_bad_input,
        names=config.stage_names,
        stages=survey.stages,
        fits=cut_passes(survey)[-1][2],
        writes=True,
        schema=survey.output,
        splits=splits_of(survey),
        container=config.format,
        slice_count=len(survey.slices),
        code=tuple((target, code_identity(target)) for stage in survey.stages for target in stage.code()),
    )


def _choose_settings(config: Config, survey: Survey, means: Means) -> Settings:
    wanted = means.cores if config.workers == "auto" else config.workers
    most = min(wanted, max(1, len(survey.slices)))
    row_bytes = decoded_row_bytes(survey.sample)
    for workers in range(most, 0, -1) if most else [0]:
        batch = _batch_for(workers, means)
        if batch >= (GOOD_BATCH_BYTES if workers > 1 else SMALLEST_BATCH_BYTES):
            hold = _hold_for(workers, batch, survey, means)
            return Settings(workers, batch, row_bytes, survey.stored_row_bytes, hold)
    raise _too_small(config, means)


def _batch_for(workers: int, means: Means) -> int:
    """The largest batch that lets so many workers fit; none at all means inside the driver."""
    measured = means.measured
    share = means.budget.allowed - means.driver_bytes
    if workers:
        share = share // workers - measured.worker_bytes
    left = (share - SLACK_BYTES) / MARGIN - measured.fixed_bytes
    return int(min(BATCH_BYTES, left / max(measured.bytes_per_batch_byte, 0.01)))


def _hold_for(workers: int, batch_bytes: int, survey: Survey, means: Means) -> int:
    """What is left of the budget, as far as the largest slice's output needs it."""
    left = (means.budget.allowed - memory_of(workers, batch_bytes, 0, means)) / max(workers, 1) / HOLD_MARGIN
    rows = max((survey.rows_of(piece) for piece in survey.slices), default=0)
    return max(0, int(min(left, rows * means.measured.output_row_bytes)))


def memory_of(workers: int, batch_bytes: int, hold_bytes: int, means: Means) -> int:
    """Driver, then each worker: what it holds before a task and what a task adds."""
    task = means.measured.task_bytes(batch_bytes) * MARGIN + SLACK_BYTES + hold_bytes * HOLD_MARGIN
    if workers == 0:
        return int(means.driver_bytes + task)
    return int(means.driver_bytes + workers * (means.measured.worker_bytes + task))


def _too_small(config: Config, means: Means) -> PlanError:
    least = memory_of(1, SMALLEST_BATCH_BYTES, 0, means)
    measured = means.measured
    suggestion = math.ceil(least * 1.1 / 10e6) * 10
    return PlanError(
        f"the job needs {format_size(least)}: {format_size(means.driver_bytes)} for the driver, "
        f"{format_size(measured.worker_bytes)} for one worker and "
        f"{format_size(measured.task_bytes(SMALLEST_BATCH_BYTES) * MARGIN + SLACK_BYTES)} for the smallest batch; "
        f"{means.budget} allows {format_size(means.budget.allowed)}",
        where="measured on the first rows of the input, in this very run",
        next_step=f"memory: {suggestion}MB" + (", or fewer columns with `select`" if len(config.stages) else ""),
    )


def _project(kind: str, survey: Survey, means: Means, settings: Settings) -> Projection:
    rows = [survey.rows_of(piece) for piece in survey.slices]
    per_row = means.measured.output_row_bytes if kind == "map" else 0.0
    output = int(sum(rows) * per_row)
    at_once = sorted((int(each * per_row) for each in rows), reverse=True)[: max(settings.workers, 1)]
    speed = means.measured.rows_per_second * max(1, min(settings.workers, means.cores))
    return Projection(
        memory_bytes=memory_of(
            settings.workers, settings.batch_bytes, settings.hold_bytes if kind == "map" else 0, means
        ),
        spill_bytes=sum(at_once),
        output_bytes=output,
        seconds=sum(rows) / speed,
        rows=sum(rows),
    )


def _refuse_without_disk(plan: Plan) -> None:
    projected = plan.passes[-1].projected
    needed = projected.output_bytes + projected.spill_bytes
    if needed > plan.means.free_disk:
        raise PlanError(
            f"the output needs about {format_size(needed)} ({format_size(projected.output_bytes)} of shards, "
            f"{format_size(projected.spill_bytes)} while they are written); "
            f"{format_size(plan.means.free_disk)} is free",
            where=plan.config.output_path,
            next_step="free some space, choose another `output:`, or `select` fewer columns",
        )
