"""Checking: the stages of a job against the columns they will be given, before a row is used. Called by survey.py."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from dataclasses import replace

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.config import Config, stage_errors
from penstock.prepare.exchange.order import sort_rows
from penstock.prepare.exchange.spill import with_codes
from penstock.prepare.rows import Rows
from penstock.prepare.stage import FunctionStage, Stage
from penstock.shards.arrayrecord import refuse_unfit
from penstock.shards.schema import Schema, schema_from_arrow


def check_stages(
    config: Config, stages: tuple[Stage, ...], sample: pa.RecordBatch, schema: pa.Schema, columns: tuple[str, ...]
) -> tuple[tuple[Stage, ...], Schema, tuple[pa.Schema, ...]]:
    """Let every stage check the columns it is given; the answer is the stages, the columns they write and are given."""
    _refuse_order(config, stages)
    rows = Rows(sample, 0, "", np.arange(sample.num_rows))
    schema = pa.schema([schema.field(name) for name in schema.names if name in columns])
    checked: list[Stage] = []
    given: list[pa.Schema] = []
    for number, (name, stage) in enumerate(zip(config.stage_names, stages, strict=True)):
        given.append(schema)
        with stage_errors(number, name), redirect_stdout(sys.stderr):  # a user's function may print
            schema = stage.output_schema(schema, rows.batch)
        if isinstance(stage, FunctionStage):
            stage = replace(stage, expected=schema)
        checked.append(stage)
        if stage.uses_artifact:
            rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, "", np.arange(0))
        else:
            with redirect_stdout(sys.stderr):
                rows = _reduced(stage, stage(rows), schema)
    return tuple(checked), schema_from_arrow(schema, "the columns that the stages give"), tuple(given)


def refuse_unfit_format(
    config: Config, stages: tuple[Stage, ...], output: Schema, given: tuple[pa.Schema, ...]
) -> None:
    """An ArrayRecord file holds the records of `group`, as it made them, and nothing else."""
    if config.format != "arrayrecord":
        return
    groups = [number for number, stage in enumerate(stages) if stage.exchange()]
    if not groups:
        raise ConfigError("format: arrayrecord holds grouped events, and there is no `group` among the stages")
    exchange = stages[groups[-1]].exchange()
    assert exchange
    refuse_unfit(given[groups[-1]], exchange.by, exchange.order)
    if stages[groups[-1]].describe().get("null_keys") == "group":
        raise ConfigError("format: arrayrecord names records by their key, and null_keys: group makes one without")
    made = stages[groups[-1]].output_schema(given[groups[-1]], pa.RecordBatch.from_pylist([], given[groups[-1]]))
    if schema_from_arrow(made, "group") != output:
        raise ConfigError(
            "format: arrayrecord holds records as `group` makes them, and a stage behind it changes their columns",
            next_step="do that before `group`, or leave `format:` out",
        )


def _reduced(stage: Stage, rows: Rows, schema: pa.Schema) -> Rows:
    """What a stage with an exchange makes of the first rows, as if there were no others."""
    exchange = stage.exchange()
    if exchange is None:
        return rows
    runs = [sort_rows([with_codes(rows.batch)], exchange)] if len(rows) else []
    records = list(stage.reduce(iter(runs)))
    batch = records[0] if records else pa.RecordBatch.from_pylist([], schema=schema)
    return Rows(batch, 0, "", np.arange(batch.num_rows))


def _refuse_order(config: Config, stages: tuple[Stage, ...]) -> None:
    """One split at most, and nothing measured before it: statistics of test rows would leak into training."""
    split = [number for number, stage in enumerate(stages) if stage.splits()]
    if len(split) > 1:
        raise ConfigError(f"stages[{split[1]}]: a second split would overrule the first; name all shares in one")
    exchanges = [number for number, stage in enumerate(stages) if stage.exchange()]
    if split and exchanges and split[0] < exchanges[-1]:
        raise ConfigError(
            f"stages[{split[0]}].split: it stands before {config.stage_names[exchanges[-1]]}, "
            "which would bring rows of both splits together",
            next_step=f"move it behind stages[{exchanges[-1]}]: there it decides by key",
        )
    for number, stage in enumerate(stages[: split[0]] if split else ()):
        if stage.exchange() is None and stage.fit() is not None:
            raise ConfigError(
                f"stages[{number}].{config.stage_names[number]}: it measures training rows, but stands before split",
                next_step=f"move it behind stages[{split[0]}]",
            )
