"""Applied: the stages that a place pass applies, which need an artifact; parts hold the samples before them."""

from collections.abc import Mapping
from typing import Any

from penstock.prepare.passes.arrays.moving import Changes
from penstock.prepare.passes.job import Job
from penstock.prepare.stages.interfaces import Applies
from penstock.prepare.stages.normalize import Scale
from penstock.prepare.stages.stage import Stage
from penstock.shards.placed import columns_of
from penstock.shards.schema import Schema, schema_from_arrow


def part_schema(job: Job) -> Schema:
    """Schema of the samples before normalization."""
    applied = first_applied(job.stages)
    if applied == len(job.stages):
        return job.survey.output
    return schema_from_arrow(job.survey.given[applied], "the columns before they are normalised")


def first_applied(stages: tuple[Stage, ...]) -> int:
    """The first stage that needs an artifact; in an arrays job nothing else stands behind it."""
    return next((number for number, stage in enumerate(stages) if isinstance(stage, Applies)), len(stages))


def changes_of(job: Job, artifacts: Mapping[int, Any]) -> Changes:
    """The changes that the applied stages make to columns on their way."""
    scales = {
        name: stage
        for number, stage in job.bound(first_applied(job.stages), len(job.stages), artifacts).items()
        if isinstance(stage, Scale)
        for name in stage.normalize.columns_of(job.survey.given[number])
    }
    return Changes(scales, {name: dtype for name, dtype, _ in columns_of(part_schema(job))})
