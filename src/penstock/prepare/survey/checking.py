"""Checking: the stages of a job against the columns they need and will be given, before a row is used."""

import sys
from contextlib import redirect_stdout
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.base.user_code import telling
from penstock.prepare.job.config import Config
from penstock.prepare.job.stage_list import stage_errors
from penstock.prepare.rows.order import sort_rows
from penstock.prepare.rows.rows import Rows
from penstock.prepare.rows.spill import with_codes
from penstock.prepare.stages import interfaces
from penstock.prepare.stages.select import path_to
from penstock.prepare.stages.stage import Stage, applied
from penstock.shards.schema import FeatureNames, Schema, feature_names, optional_names, schema_from_arrow


@dataclass(frozen=True)
class Checked:
    """The stages of a job, and the columns that they are given and give."""

    stages: tuple[Stage, ...]
    output: Schema
    given: tuple[pa.Schema, ...]  # what each stage is given
    feature_names: FeatureNames  # in the output
    optional: frozenset[str]  # columns of the output that may be null in any format


def named_columns(stages: tuple[Stage, ...]) -> tuple[str, ...]:
    """Every column that a stage names."""
    return tuple(sorted(frozenset[str]().union(*(stage.needs(frozenset()) or () for stage in stages))))


def columns_needed(stages: tuple[Stage, ...], schema: pa.Schema) -> frozenset[str] | None:
    """The input columns some stage or the output uses; None means all of them. A field is read with its column."""
    needed: frozenset[str] | None = None
    for stage in reversed(stages):
        needed = stage.needs(needed)
    return None if needed is None else frozenset((path_to(name, schema) or (name,))[0] for name in needed)


def check_stages(
    config: Config,
    stages: tuple[Stage, ...],
    sample: pa.RecordBatch,
    schema: pa.Schema,
    columns: tuple[str, ...],
    made_from: str = "",
) -> Checked:
    """Let every stage check the columns it is given."""
    _refuse_order(config, stages)
    rows = Rows(sample, 0, ("",), np.arange(sample.num_rows))
    chosen = set(columns)
    schema = pa.schema([field for field in schema if field.name in chosen])
    checked: list[Stage] = []
    given: list[pa.Schema] = []
    for number, (name, stage) in enumerate(zip(config.stage_names, stages, strict=True)):
        given.append(schema)
        with stage_errors(number, name), redirect_stdout(sys.stderr):  # a user's function may print
            if isinstance(stage, interfaces.Locates):
                stage = stage.located(config.folder, config.output_path, tuple(checked), made_from)
            with telling(*stage.code()):
                schema = stage.output_schema(schema, rows.batch)
            if isinstance(stage, interfaces.Adapts):
                stage = stage.adapted(given[-1], schema)
        checked.append(stage)
        if interfaces.changes_values(stage) or not stage.is_tried:
            rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, ("",), np.arange(0))
        else:
            with redirect_stdout(sys.stderr):
                rows = _reduced(stage, applied(stage, rows), schema)
    output = schema_from_arrow(schema, "the columns that the stages give")
    return Checked(tuple(checked), output, tuple(given), feature_names(schema), optional_names(schema))


def _reduced(stage: Stage, rows: Rows, schema: pa.Schema) -> Rows:
    """Records that a stage with an exchange makes of the first rows, as if there were no others."""
    if not isinstance(stage, interfaces.Exchanges):
        return rows
    runs = [sort_rows([with_codes(rows.batch)], stage.exchange())] if len(rows) else []
    records = list(stage.reduce(iter(runs)))
    batch = records[0] if records else pa.RecordBatch.from_pylist([], schema=schema)
    return Rows(batch, 0, ("",), np.arange(batch.num_rows))


def _refuse_order(config: Config, stages: tuple[Stage, ...]) -> None:
    """One split at most, and nothing measured before it: statistics of test rows would leak into training."""
    split = [number for number, stage in enumerate(stages) if isinstance(stage, interfaces.Splits)]
    if len(split) > 1:
        raise ConfigError(f"stages[{split[1]}]: a job has one split; name all shares in it")
    named = list(zip(config.stage_names, stages, strict=True))
    for number, (name, stage) in enumerate(named):
        if isinstance(stage, interfaces.MindsPlace):
            with stage_errors(number, name):
                stage.refuse_place(named[:number], named[number + 1 :], config.format)
    exchanges = interfaces.exchanges_of(stages)
    if split and exchanges and split[0] < exchanges[-1]:
        raise ConfigError(
            f"stages[{split[0]}].split: it stands before {config.stage_names[exchanges[-1]]}, "
            "which would mix the rows of both splits",
            next_step=f"move it behind stages[{exchanges[-1]}]: there it decides by key",
        )
    for number, stage in enumerate(stages[: split[0]] if split else ()):
        if isinstance(stage, interfaces.Fits) and not isinstance(stage, interfaces.Exchanges):
            raise ConfigError(
                f"stages[{number}].{config.stage_names[number]}: it measures training rows, but comes before split",
                next_step=f"move it behind stages[{split[0]}]",
            )
