"""Presets: the name of a built-in job and a few settings -> the job file it is short for. Next: config.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import pyarrow as pa

from penstock.base.errors import ConfigError
from penstock.prepare.stages.interfaces import exchanges_of
from penstock.prepare.survey import Survey
from penstock.shards.schema import type_from_arrow

REQUIRED = object()  # in place of a default
_GROUPED = {"max_record": "8MiB", "test": 0.1, "null_keys": "set_aside"}


@dataclass(frozen=True)
class Preset:
    """A job that groups events by key. `settings` are the words it takes, with their defaults."""

    blank: ClassVar[str] = "COLUMN"  # stands for a required setting where none was given

    name: str
    settings: Mapping[str, Any]
    fixed: Mapping[str, Any] = field(default_factory=dict)  # settings that it has decided
    types: Mapping[str, str] = field(default_factory=dict)  # its columns; none named means all of the input

    def stages(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        """The stages of the job file, every setting spelled out."""
        chosen = {**self.settings, **settings, **self.fixed}
        select = [{"select": list(self.types)}] if self.types else []
        group = {name: chosen[name] for name in ("by", "order", "max_record", "null_keys") if chosen[name] is not None}
        split = [{"split": {"by": "key", "test": chosen["test"]}}] if chosen["test"] != 0 else []
        return [*select, {"group": group}, *split]

    def casts_for(self, output_format: str | None) -> bool:
        """Whether readers of the format expect certain types. The native format says its own, and takes any."""
        return output_format == "arrayrecord" and bool(self.types)


@dataclass(frozen=True)
class TextPreset(Preset):
    """A job that makes rows of tokens of documents."""

    blank: ClassVar[str] = "TOKENIZER"

    def stages(self, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
        chosen = {**self.settings, **settings}
        short = [{"filter": f"characters(text) >= {chosen['min_characters']}"}] if chosen["min_characters"] else []
        pack = {"length": chosen["length"], "method": chosen["method"]}
        return [{"clean": {}}, *short, {"dedup": {}}, {"tokenize": chosen["tokenizer"]}, {"pack": pack}]


PRESETS: Mapping[str, Preset] = MappingProxyType(
    {
        "events": Preset("events", {"by": REQUIRED, "order": None, **_GROUPED}),
        "pings": Preset(
            "pings",
            _GROUPED,
            fixed={"by": "src_addr", "order": "event_time"},
            types={
                "src_addr": "string",
                "event_time": "timestamp",
                "dst_addr": "string",
                "ip_version": "int8",
                "rtt": "float32",
            },
        ),
        "text": TextPreset("text", {"tokenizer": REQUIRED, "length": 2048, "method": "wrapped", "min_characters": 0}),
    }
)


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
