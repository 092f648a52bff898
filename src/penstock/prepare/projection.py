"""Projection: what a pass will hold, put down, write and take, by its settings and what was measured. Next: plan.py."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from penstock.base.errors import PlanError
from penstock.base.sizes import format_size
from penstock.prepare.config import Config
from penstock.prepare.passes import Cut, buckets_of, packer_of, places_parts
from penstock.prepare.settings import Means, Settings, held_bytes, measured_for, memory_of, place_bytes
from penstock.prepare.survey import Survey
from penstock.shards.schema import NUMBERS

_MERGE_BYTES, _MERGE_RECORD_BYTES = 32 << 20, 75  # measured 20 MB and 60 B: docs/decisions/0007-arrayrecord.md
_PLACED_PER_SECOND = 1e9
_MATCHED_PER_SECOND = 5e6
_PACKED_PER_SECOND = 4e8


@dataclass(frozen=True)
class Projection:
    memory_bytes: int
    spill_bytes: int  # on disk while the pass runs, and gone when the job is done
    output_bytes: int
    seconds: float
    rows: int


def project(cut: Cut, config: Config, survey: Survey, means: Means, settings: Settings) -> Projection:
    """What the pass will hold, put down, write and take."""
    measured = measured_for(cut, means)
    rows = [survey.rows_of(piece) for piece in survey.slices]
    spill = output = 0
    if cut.kind == "place":
        return _project_placing(sum(rows), config, survey, means, settings)
    if cut.holds_little:
        return _project_held(cut, sum(rows), config, survey, means, settings)
    if places_parts(config, survey) or cut.kind in ("scatter", "hash") or packer_of(survey.stages):
        spill = int(sum(rows) * measured.output_row_bytes)
    elif cut.kind == "map":
        output = int(sum(rows) * measured.output_row_bytes)
        output += archive_bytes(sum(rows), survey) if config.format == "arrays" else 0
        at_once = sorted((int(each * measured.output_row_bytes) for each in rows), reverse=True)
        spill = sum(at_once[: max(settings.workers, 1)])
    elif cut.kind == "gather":
        output = means.measured.output_bytes(sum(rows), buckets_of(config, survey))
        spill = output // buckets_of(config, survey) * max(settings.workers, 1)
        spill += int(output * means.measured.parts_per_output_byte)
    side_by_side = 1 if settings.threads > 1 else settings.workers  # threads were measured as they will be used
    speed = measured.rows_per_second * max(1, min(side_by_side, means.cores))
    memory = memory_of(settings.workers, settings.batch_bytes, settings.hold_bytes, measured, means)
    if cut.kind == "gather" and config.format == "arrayrecord":
        memory = max(memory, merge_memory(survey, means))
    return Projection(
        memory_bytes=memory,
        spill_bytes=spill,
        output_bytes=output,
        seconds=sum(rows) / speed,
        rows=sum(rows),
    )


def archive_bytes(rows: int, survey: Survey) -> int:
    """What labels and masks take once more, in archives of all heads."""
    heads = [field.parsed for field in survey.output if field.name.startswith(("labels_", "masks_"))]
    fixed = [kind for kind in heads if kind.is_fixed]
    return rows * sum(np.dtype(NUMBERS[kind.number.name]).itemsize * math.prod(kind.shape) for kind in fixed)


def _project_placing(rows: int, config: Config, survey: Survey, means: Means, settings: Settings) -> Projection:
    measured = means.measured.slices
    output = int(rows * measured.output_row_bytes) + archive_bytes(rows, survey)
    workers = settings.workers * (measured.worker_bytes + place_bytes(config, survey, means))
    inline = place_bytes(config, survey, means) if not settings.workers else 0
    return Projection(means.driver_bytes + workers + inline, 0, output, output / _PLACED_PER_SECOND, rows)


def _project_held(cut: Cut, rows: int, config: Config, survey: Survey, means: Means, settings: Settings) -> Projection:
    """Of matching, which writes four bytes a row that loses, and of packing, which writes what was put down."""
    held = held_bytes(cut, config, survey, means)
    workers = settings.workers * (means.measured.slices.worker_bytes + held) if settings.workers else held
    if cut.kind == "match":
        return Projection(means.driver_bytes + workers, 5 * rows, 0, rows / _MATCHED_PER_SECOND, rows)
    output = int(rows * means.measured.slices.output_row_bytes)
    spill = output // max(1, len(survey.slices)) * max(1, settings.workers)
    return Projection(means.driver_bytes + workers, spill, output, output / _PACKED_PER_SECOND, rows)


def merge_memory(survey: Survey, means: Means) -> int:
    """What the driver holds while it puts an ArrayRecord file together: its index is in memory until the end."""
    rows = sum(map(survey.rows_of, survey.slices)) * means.measured.slices.given_per_row
    records = means.measured.growth.records_of(rows) if means.measured.growth else 0
    return means.driver_bytes + _MERGE_BYTES + int(_MERGE_RECORD_BYTES * records)


def refuse_without_merge_memory(config: Config, survey: Survey, means: Means) -> None:
    if config.format == "arrayrecord" and (needed := merge_memory(survey, means)) > means.budget.allowed:
        raise PlanError(
            f"putting the ArrayRecord file together needs {format_size(needed)} at the end, most of it for the index "
            f"of its records; only {means.budget} is allowed",
            where="estimated from the keys among the first rows of the input",
            next_step=f"memory: {math.ceil(needed * 1.1 / 10e6) * 10}MB, or leave `format:` out",
        )
