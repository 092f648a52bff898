"""Job text: a job as Python values -> the YAML of its job file. Reading is in job_file.py."""

import os
from collections.abc import Mapping
from typing import Any

import yaml

_ONE_OR_MANY = ("path", "files", "npz")


def job_text(job: Mapping[str, Any]) -> str:
    """A job as a file: one line per stage."""
    plain = _plain(job)
    is_nested = any(isinstance(value, dict | list) for value in plain.values())
    flow = None if is_nested else False  # None puts what holds no list or mapping on one line, the whole job too
    return str(yaml.safe_dump(plain, sort_keys=False, default_flow_style=flow, width=1000, allow_unicode=True))


def shortened(job: Mapping[str, Any]) -> dict[str, Any]:
    """The job as a person writes it: one source without a list, one path without brackets."""
    short = dict(job)
    if "input" in short:
        sources = [_short_source(source) for source in short["input"]]
        short["input"] = sources[0] if len(sources) == 1 else sources
    if "stages" in short:
        short["stages"] = [_short_stage(stage) for stage in short["stages"]]
    return short


def _short_source(source: Mapping[str, Any]) -> Any:
    short = {
        key: value[0] if key in _ONE_OR_MANY and len(value) == 1 else value
        for key, value in source.items()
        if key not in _ONE_OR_MANY or value
    }
    return short["path"] if short.keys() == {"path"} and isinstance(short["path"], str) else short


def _short_stage(stage: Mapping[Any, Any]) -> Any:
    ((name, options),) = stage.items()
    return name if options is None else {name: options}


def _plain(value: Any) -> Any:
    """Values that YAML can write. A function is written by its name."""
    if isinstance(value, Mapping):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    if hasattr(value, "tolist"):  # numpy's
        return _plain(value.tolist())
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        return f"{value.__module__}:{getattr(value, '__qualname__', type(value).__qualname__)}"
    return value
