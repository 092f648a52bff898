"""Preset job: a preset and the options of a command -> the job that they are short for."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.memory import make_budget
from penstock.prepare.job.config import Config, source_keys
from penstock.prepare.job.job_text import job_text
from penstock.prepare.job.presets import REQUIRED, Preset
from penstock.prepare.run.halves import written
from penstock.prepare.stages.interfaces import exchanges_of
from penstock.prepare.survey.scouting import scout
from penstock.prepare.survey.survey import Survey
from penstock.prepare.survey.taking import take_survey
from penstock.shards.schema import type_from_arrow
from penstock.show.asking.overrides import Override, lay_over

_KEYS = [name for name, field in Config.model_fields.items() if not field.exclude]


def preset_job(preset: Preset, overrides: Sequence[Override]) -> dict[str, Any]:
    """The job as a person would write it into a file, its keys in the usual order."""
    _refuse_unknown(preset, overrides)
    settings = {each.keys[0]: each.value for each in overrides if each.keys[0] in preset.settings}
    others = [each for each in overrides if each.keys[0] not in (*preset.settings, *preset.fixed)]
    _refuse_missing(preset, settings, others)
    stages = {"stages": preset.stages(settings)}
    keys = {**stages, **lay_over(stages, others)}
    between = {key: keys[key] for key in _KEYS if key in keys and key not in ("input", "output", "stages")}
    return {**_paths(keys), **between, "stages": keys["stages"]}


def _paths(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Input and output as a person would write them into a file that lies here."""
    source = keys["input"]
    if isinstance(source, dict) and isinstance(source.get("path"), list):
        paths = [_relative(each) for each in source["path"]]
        source = {**source, "path": paths[0] if len(paths) == 1 else paths}
        source = source["path"] if len(source) == 1 else source
    return {"input": source, "output": _relative(keys["output"])}


def _relative(path: Any) -> Any:
    here = os.path.join(os.getcwd(), "")
    return path.removeprefix(here) if isinstance(path, str) and path != here else path


def _refuse_unknown(preset: Preset, overrides: Sequence[Override]) -> None:
    for each in overrides:
        key = each.keys[0]
        if key in preset.fixed and each.value != preset.fixed[key]:
            raise ConfigError(
                f"preset {preset.name} is made for {key}: {preset.fixed[key]}",
                where=each.option,
                next_step="take the preset `events`, which groups by any columns",
            )
        known = [*preset.settings, *preset.fixed, *_KEYS]
        if key not in known or (key in preset.settings and len(each.keys) > 1):
            of_input = key in source_keys() and not each.keys[1:]
            raise ConfigError(
                f"{'.'.join(each.keys)}: preset {preset.name} takes {', '.join(preset.settings)}, and the keys of a "
                f"job file: {', '.join(_KEYS)}.{did_you_mean(key, known)}",
                where=each.option,
                next_step=f"{key} is a key of `input`: --set input.{key}={each.value}" if of_input else None,
            )


def _refuse_missing(preset: Preset, settings: Mapping[str, Any], others: Sequence[Override]) -> None:
    given = {each.keys[0] for each in others}
    blanks = {key: preset.blank for key, default in preset.settings.items() if default is REQUIRED}
    missing = [f"--{key}" for key in ("input", "output") if key not in given]
    missing += [f"--set {key}={blank}" for key, blank in blanks.items() if key not in settings]
    if not missing:
        return
    job = {"input": "PATH", "output": "PATH", "stages": preset.stages({**blanks, **settings})}
    required = " ".join(f"--set {key}={blank}" for key, blank in blanks.items())
    error = ConfigError(
        f"preset {preset.name} needs {', '.join(missing)}",
        where="the command line",
        next_step=f"penstock plan {preset.name} --input 'data/**/*.parquet' --output data/rows {required}".rstrip(),
    )
    error.add_note(f"{preset.name} is short for this job file:\n\n{job_text({**job, **lay_over(job, others)})}")
    raise error


def with_casts(preset: Preset, config: Config) -> Config:
    """The preset's job with a stage that casts, before it groups, if the format asks for certain types."""
    if not preset.casts_for(config.format):
        return config
    survey = take_survey(config, scout, make_budget(config.memory))
    casts = _casts_needed(preset, survey)
    if not casts:
        return config
    job = written(config)
    stages, group = job["stages"], exchanges_of(survey.stages)[0]
    job["stages"] = [*stages[:group], {"cast": dict(casts)}, *stages[group:]]
    return Config(job, folder=config.folder)


def _casts_needed(preset: Preset, survey: Survey) -> dict[str, str]:
    """Columns that need another type, and which: readers of pings in ArrayRecord files expect its very types.

    Numbers are cast to numbers, and times to microseconds; another difference is refused.
    """
    group = exchanges_of(survey.stages)[0]
    given = survey.given[group]
    found = {name: _plain(given.field(name).type) for name in preset.types if name in given.names}
    wrong = {name: kind for name, kind in found.items() if not _is_written_as(kind, preset.types[name])}
    refused = {name: kind for name, kind in wrong.items() if not _is_castable(kind, preset.types[name])}
    if refused:
        differences = ", ".join(f"{name} is {kind} and not {preset.types[name]}" for name, kind in refused.items())
        raise ConfigError(
            f"in ArrayRecord files, readers of {preset.name} expect exactly its types: {differences}",
            where="format: arrayrecord",
            next_step="add `- cast: {rtt: float32}` before `group` (`penstock plan` prints the job file to put it in), "
            "declare text columns (--set input.types.rtt=float32), leave the format out, or take the preset `events`, "
            "which takes any types",
        )
    return {name: _target(kind, preset.types[name]) for name, kind in wrong.items()}


def _plain(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _is_written_as(kind: pa.DataType, word: str) -> bool:
    """Text is written as plain string, and times as microseconds, which hold seconds and milliseconds too."""
    if word == "timestamp":
        return bool(pa.types.is_timestamp(kind) and kind.unit != "ns")
    return (type_from_arrow(kind) or "").removeprefix("large_") == word


def _is_castable(kind: pa.DataType, word: str) -> bool:
    if word == "timestamp":
        return bool(pa.types.is_timestamp(kind))
    is_number = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    return bool(is_number and word != "string")


def _target(kind: pa.DataType, word: str) -> str:
    if word != "timestamp":
        return word
    return f"timestamp[us, {kind.tz}]" if kind.tz else "timestamp[us]"
