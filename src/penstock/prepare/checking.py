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
from penstock.prepare.placing import columns_of
from penstock.prepare.rows import Rows
from penstock.prepare.stage import FunctionStage, Stage
from penstock.prepare.stages.normalize import Normalize
from penstock.prepare.stages.pack import Pack
from penstock.prepare.stages.split import Split
from penstock.shards.arrayrecord import refuse_unfit
from penstock.shards.batch_file import refuse_unfit as refuse_unfit_batches
from penstock.shards.feature_names import FeatureNames, feature_names
from penstock.shards.placed import file_of
from penstock.shards.schema import Schema, schema_from_arrow


def check_stages(
    config: Config,
    stages: tuple[Stage, ...],
    sample: pa.RecordBatch,
    schema: pa.Schema,
    columns: tuple[str, ...],
    made_from: str = "",
) -> tuple[tuple[Stage, ...], Schema, tuple[pa.Schema, ...], FeatureNames]:
    """Let every stage check the columns it is given; the answer is the stages, the columns they write and are given,
    and the names of features in what they write."""
    _refuse_order(config, stages)
    rows = Rows(sample, 0, ("",), np.arange(sample.num_rows))
    chosen = set(columns)
    schema = pa.schema([field for field in schema if field.name in chosen])
    checked: list[Stage] = []
    given: list[pa.Schema] = []
    for number, (name, stage) in enumerate(zip(config.stage_names, stages, strict=True)):
        given.append(schema)
        with stage_errors(number, name), redirect_stdout(sys.stderr):  # a user's function may print
            stage = stage.located(config.folder, config.output_path, tuple(checked), made_from)
            schema = stage.output_schema(schema, rows.batch)
            stage = stage.given(given[-1])
        if isinstance(stage, FunctionStage):
            schema = pa.schema([field.remove_metadata() for field in schema])  # it may have put features elsewhere
            stage = replace(stage, expected=schema)
        checked.append(stage)
        if stage.uses_artifact or isinstance(stage, Pack) or not stage.is_tried:
            rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, ("",), np.arange(0))
        else:
            with redirect_stdout(sys.stderr):
                rows = _reduced(stage, stage(rows), schema)
    output = schema_from_arrow(schema, "the columns that the stages give")
    return tuple(checked), output, tuple(given), feature_names(schema)


def _refuse_text_order(config: Config, stages: tuple[Stage, ...], exchanges: list[int]) -> None:
    """Documents are compared and packed as they were read, not as records; and nothing stands behind a packed row."""
    for number, stage in enumerate(stages):
        name = f"stages[{number}].{config.stage_names[number]}"
        if (stage.keyed_by() or isinstance(stage, Pack)) and exchanges and exchanges[0] < number:
            raise ConfigError(f"{name}: it stands behind `{config.stage_names[exchanges[0]]}`, which makes records")
        if isinstance(stage, Pack) and number < len(stages) - 1:
            raise ConfigError(
                f"{name}: it makes the rows of the dataset, and {config.stage_names[number + 1]} stands behind it",
                next_step="move it to the end",
            )
        if stage.keyed_by() and config.format in ("arrays", "npz"):
            raise ConfigError(
                f"{name}: documents are compared as they are read, and format: {config.format} holds samples",
                next_step="format: safetensors",
            )
        if isinstance(stage, Pack) and config.format in ("arrayrecord", "arrays", "npz"):
            raise ConfigError(
                f"{name}: packed rows are kept in format: safetensors or npy",
                next_step="leave `format:` out; `penstock export` writes other formats",
            )


def refuse_unfit_format(
    config: Config, stages: tuple[Stage, ...], output: Schema, given: tuple[pa.Schema, ...]
) -> None:
    """An ArrayRecord file holds the records of `group`, as it made them, and nothing else; arrays hold samples."""
    if config.format in ("arrays", "npz"):
        _refuse_unfit_arrays(config, stages, output)
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


def _refuse_unfit_arrays(config: Config, stages: tuple[Stage, ...], output: Schema) -> None:
    for number, stage in enumerate(stages):
        name = f"stages[{number}].{config.stage_names[number]}"
        if config.format == "npz":
            raise ConfigError(f"{name}: batch files hold samples as they come; stages are for the merge")
        if stage.exchange():
            raise ConfigError(f"{name}: it makes records of many rows, and format: arrays holds samples")
        if stage.uses_artifact and not isinstance(stage, Normalize):
            raise ConfigError(f"{name}: in format: arrays only `normalize` may need what it measures")
        if any(isinstance(before, Normalize) for before in stages[:number]) and not isinstance(stage, Normalize):
            raise ConfigError(
                f"{name}: it stands behind `normalize`, which in format: arrays is done last, as arrays are placed",
                next_step="move it before `normalize`",
            )
    if config.format == "npz":
        refuse_unfit_batches(output, "intermediate_dir")
    coded = [field.name for field in output if "dictionary" in field.type]
    if coded:
        raise ConfigError(f"format: {config.format}: column {coded[0]!r} is a dictionary; cast it to string")
    _refuse_without_groups(stages, output)
    splits = next((stage.splits() for stage in stages if stage.splits()), ("train",))
    files = [file_of(column, split) for split in splits for column, _, _ in columns_of(output)]
    for file in files:
        if files.count(file) > 1:
            raise ConfigError(
                f"two columns would both be {file}", next_step="rename one: `select: {new_name: old_name, ...}`"
            )


def _refuse_without_groups(stages: tuple[Stage, ...], output: Schema) -> None:
    names = [field.name for field in output]
    for stage in stages:
        lost = [name for name in stage.by if name not in names] if isinstance(stage, Split) else []
        if lost:
            raise ConfigError(
                f"split by: {lost[0]}: a later stage drops that column, and the proof that no group is in two splits "
                "needs it",
                next_step=f"keep {lost[0]}: penstock.load leaves text out of batches by itself",
            )


def _reduced(stage: Stage, rows: Rows, schema: pa.Schema) -> Rows:
    """What a stage with an exchange makes of the first rows, as if there were no others."""
    exchange = stage.exchange()
    if exchange is None:
        return rows
    runs = [sort_rows([with_codes(rows.batch)], exchange)] if len(rows) else []
    records = list(stage.reduce(iter(runs)))
    batch = records[0] if records else pa.RecordBatch.from_pylist([], schema=schema)
    return Rows(batch, 0, ("",), np.arange(batch.num_rows))


def _refuse_order(config: Config, stages: tuple[Stage, ...]) -> None:
    """One split at most, and nothing measured before it: statistics of test rows would leak into training."""
    split = [number for number, stage in enumerate(stages) if stage.splits()]
    if len(split) > 1:
        raise ConfigError(f"stages[{split[1]}]: a second split would overrule the first; name all shares in one")
    exchanges = [number for number, stage in enumerate(stages) if stage.exchange()]
    _refuse_text_order(config, stages, exchanges)
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
