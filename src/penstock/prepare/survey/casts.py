"""Casts: a preset and a survey -> the columns that readers of its format expect in another type."""

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.job.presets import Preset
from penstock.prepare.stages.interfaces import exchanges_of
from penstock.prepare.survey.survey import Survey
from penstock.shards.schema import type_from_arrow


def casts_needed(preset: Preset, survey: Survey) -> dict[str, str]:
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
            f"in ArrayRecord files, readers of {preset.name} expect its very types: {differences}",
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
