"""Overrides: the options of a command -> keys of the job file and what to put there. Next: asked.py.

`--set` values are YAML, and mean what they would mean inside the file. A path given to `--input` or `--output`
starts at the working directory, as on any command line; a path inside the file starts at the file's folder.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from penstock.base.errors import ConfigError
from penstock.base.paths import dataset_path, normal_path
from penstock.prepare.job.job_file import read_yaml


@dataclass(frozen=True)
class Override:
    """`keys` into the file, the value to put there, and the option that says so."""

    keys: tuple[str, ...]
    value: Any
    option: str

    @property
    def path(self) -> str:
        """The path as in errors of the config: `stages[1].split.test`."""
        return self.keys[0] + "".join(f"[{key}]" if key.isdigit() else f".{key}" for key in self.keys[1:])


def collect(
    inputs: Sequence[str] | None = None,
    output: str | None = None,
    memory: str | None = None,
    workers: str | None = None,
    strategy: str | None = None,
    format: str | None = None,
    settings: Sequence[str] | None = None,
    engine: str | None = None,
) -> list[Override]:
    """The options of a command, in the order in which they are applied."""
    found = [_parse_setting(text) for text in settings or ()]
    if inputs:
        found.append(
            Override(("input", "path"), [os.path.abspath(each) for each in inputs], f"--input {' '.join(inputs)}")
        )
    if output:
        found.append(Override(("output",), normal_path(dataset_path(output, os.getcwd())), f"--output {output}"))
    if workers:
        found.append(Override(("workers",), yaml.safe_load(workers), f"--workers {workers}"))
    words = {"memory": memory, "strategy": strategy, "format": format, "engine": engine}
    return [*found, *(Override((key,), word, f"--{key} {word}") for key, word in words.items() if word)]


def lay_over(written: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """The top-level keys that the overrides change, as they are with them."""
    replaced: dict[str, Any] = {}
    for each in overrides:
        key = each.keys[0]
        replaced[key] = _replace(replaced.get(key, written.get(key)), each.keys[1:], each)
    return replaced


def _parse_setting(text: str) -> Override:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ConfigError(
            f"cannot read `--set {text}`",
            where="the command line",
            next_step="write key=value, for example --set slice_size=16MB or --set input.format=csv",
        )
    try:
        return Override(tuple(name.split(".")), read_yaml(value), f"--set {text}")
    except yaml.YAMLError as error:
        raise ConfigError(
            f"the value is not YAML: {error}",
            where=f"--set {text}",
            next_step="quote it for the shell, and close every bracket: --set 'stages=[{filter: rtt > 0}]'",
        ) from error


def _replace(current: Any, keys: tuple[str, ...], override: Override) -> Any:
    """`current` with the entry at `keys` replaced. Short forms are spelled out where a key goes inside them."""
    if override.keys[0] == "engine" and keys == override.keys[1:]:
        name = keys[0] if keys else override.value
        is_named = isinstance(current, dict) and isinstance(name, str) and name in current
        if not keys and is_named and override.option.startswith("--engine"):
            return current  # with the options of the file
        current = current if is_named else {}
    if not keys:
        return override.value
    if override.keys[0] == "input" and keys == override.keys[1:]:
        current = _long_input(current, keys[0])
        if override.option.startswith("--input") and isinstance(current, dict):
            keys = (next((key for key in ("files", "npz") if key in current), "path"),)
    if isinstance(current, list):
        return _replace_entry(current, keys, override)
    if current is None:
        current = {}
    if not isinstance(current, dict):
        raise ConfigError(
            f"there is no {keys[0]!r} inside {current!r}",
            where=override.option,
            next_step=f"set the whole of it: --set '{override.keys[0]}=...'",
        )
    return {**current, keys[0]: _replace(current.get(keys[0]), keys[1:], override)}


def _long_input(current: Any, key: str) -> Any:
    """`input: data.csv` and `input: [data.csv]` as `{path: data.csv}`, so that an option can stand beside it."""
    if isinstance(current, list) and len(current) == 1 and not key.isdigit():
        current = current[0]
    if isinstance(current, list):
        return [{"path": each} if isinstance(each, str) else each for each in current]
    return {"path": current} if isinstance(current, str) else current


def _replace_entry(current: list[Any], keys: tuple[str, ...], override: Override) -> list[Any]:
    if not keys[0].isdigit() or int(keys[0]) >= len(current):
        place = ".".join(override.keys[: len(override.keys) - len(keys)])
        raise ConfigError(
            f"{place} is a list, and {keys[0]!r} is not the number of one of its entries",
            where=override.option,
            next_step=f"entries are numbered from 0: {place}.0"
            + (f" to {place}.{len(current) - 1}" if current[1:] else ""),
        )
    number = int(keys[0])
    return [*current[:number], _replace(current[number], keys[1:], override), *current[number + 1 :]]
