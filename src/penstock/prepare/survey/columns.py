"""Columns: the stages of a job and the columns of its input -> those that are read."""

import pyarrow as pa

from penstock.prepare.stages.select import path_to
from penstock.prepare.stages.stage import Stage


def named_columns(stages: tuple[Stage, ...]) -> tuple[str, ...]:
    """Every column that a stage names."""
    return tuple(sorted(frozenset[str]().union(*(stage.needs(frozenset()) or () for stage in stages))))


def columns_needed(stages: tuple[Stage, ...], schema: pa.Schema) -> frozenset[str] | None:
    """The input columns some stage or the output uses; None means all of them. A field is read with its column."""
    needed: frozenset[str] | None = None
    for stage in reversed(stages):
        needed = stage.needs(needed)
    return None if needed is None else frozenset((path_to(name, schema) or (name,))[0] for name in needed)
