"""Objects: functions, classes and stages of a job in Python -> the words that a job file has. Part of config.py."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.user_code.carried import target_of
from penstock.base.user_code.identity import name_of
from penstock.prepare.job.option_values import written_options
from penstock.prepare.job.stage_list import stage_errors
from penstock.prepare.stages import BUILT_IN
from penstock.prepare.stages.stage import Stage


def stage_mappings(stages: Any) -> list[dict[str, Any]]:
    """Each stage as `{name: options}`. A function may stand wherever its name may."""
    if stages is None:  # the key with nothing under it
        return []
    if not isinstance(stages, list | tuple):
        raise ValueError("stages: is a list, each entry one stage such as `- filter: rtt > 0`")
    return [_stage_mapping(number, entry) for number, entry in enumerate(stages)]


def named_source(number: int, source: Any) -> Any:
    """The source with its function by name."""
    function = source.get("function") if isinstance(source, Mapping) else None
    if function is None or isinstance(function, str):
        return source
    if not callable(function):
        raise ValueError(f"input[{number}].function: expected module:name, or in Python a function; got {function!r}")
    with _prefixed(f"input[{number}].function"):
        return {**source, "function": target_of(source["function"])}


def _stage_mapping(number: int, entry: Any) -> dict[str, Any]:
    if isinstance(entry, str) or callable(entry):
        entry = _ready_stage(number, entry) if isinstance(entry, Stage) else {entry: None}
    if not isinstance(entry, dict) or len(entry) != 1:
        raise ValueError(f"stages[{number}]: one stage with its options, such as `- filter: rtt > 0`")
    ((name, options),) = entry.items()
    with stage_errors(number, name_of(name) if callable(name) else str(name)):
        is_function = callable(name) and not isinstance(name, type)
        return {target_of(name) if callable(name) else str(name): written_options(options, not is_function)}


def _ready_stage(number: int, stage: Stage) -> dict[str, Any]:
    """A stage that was made in Python, as its name and its fields."""
    kind = type(stage)
    own = {target: name for name, target in BUILT_IN.items()}
    with stage_errors(number, kind.__name__):
        target = target_of(kind)
        fields = [each.name for each in dataclasses.fields(stage) if each.init]
        try:
            return {own.get(target, target): {name: _field(getattr(stage, name)) for name in fields}}
        except RecursionError:
            raise ConfigError("its fields contain themselves, which a job file cannot say") from None


def _field(value: Any) -> Any:
    """Value of a field as its type reads it from a job file."""
    if isinstance(value, enum.Enum):
        return value.value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: _field(getattr(value, each.name)) for each in dataclasses.fields(value) if each.init}
    if isinstance(value, set | frozenset):
        return sorted(map(_field, value), key=repr)
    if type(value) in (list, tuple):
        return [_field(each) for each in value]
    return {key: _field(each) for key, each in value.items()} if isinstance(value, dict) else value


@contextmanager
def _prefixed(place: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        error.what = f"{place}: {error.what}"
        raise
