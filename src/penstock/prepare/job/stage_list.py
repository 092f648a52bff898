"""Stage list: `stages:` of a job, and the functions of its sources, as written -> Stages. Part of config.py."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.base.errors import ConfigError
from penstock.base.user_code import code_identity, forget_modules, load_user_object, refuse_set_values
from penstock.base.user_code.carried import is_carried, shown_name
from penstock.prepare.job.source_config import SourceConfig
from penstock.prepare.samples.schema import declared_schema
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.interfaces import Settles
from penstock.prepare.stages.stage import Stage


def build_stages(
    written: tuple[dict[str, Any], ...], sources: tuple[SourceConfig, ...], folder: str
) -> tuple[Stage, ...]:
    """Modules are looked for in `folder` first. Functions of sources are checked on the way."""
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)
    functions = {number: source.function for number, source in enumerate(sources) if source.function}
    forget_modules(folder, _imported(written, functions.values()))
    for number, function in functions.items():
        _find_function(number, function)
        _check_schema(number, sources[number])
    stages: tuple[Stage, ...] = ()
    for number, each in enumerate(written):
        ((name, options),) = each.items()
        with stage_errors(number, name):
            stage = build_stage(name, options)
        stages = (*stages, stage.settled(stages) if isinstance(stage, Settles) else stage)
    for target in _imported(written, functions.values()):
        refuse_set_values(target)
    return stages


def _imported(written: tuple[dict[str, Any], ...], functions: Iterable[str]) -> list[str]:
    """Words that may be `module:name`."""
    return [word for word in (*_words(written), *functions) if ":" in word]


def carried_targets(written: tuple[dict[str, Any], ...], sources: Iterable[SourceConfig]) -> list[str]:
    """Functions and classes of this session that a job uses."""
    words = [*_words(written), *(source.function or "" for source in sources)]
    return [word for word in words if is_carried(word)]


def shown_names(written: tuple[dict[str, Any], ...]) -> tuple[str, ...]:
    """Names of the stages for people."""
    return tuple(shown_name(next(iter(each))) for each in written)


def describe_stage(name: str, stage: Stage) -> dict[str, Any]:
    """A stage in the manifest: its options, and what else decides its bytes."""
    described: dict[str, Any] = {name: stage.describe()}
    if stage.code():
        described["code"] = [code_identity(target) for target in stage.code()]
        keys = [list(each) for each in _mappings(list(stage.describe().values()))]
        described |= {"keys": keys} if any(each != sorted(each) for each in keys) else {}
    if stage.version > 1:
        described["version"] = stage.version
    return described


def _mappings(described: Any) -> Iterator[dict[str, Any]]:
    """Mappings among the options, by the order of their keys, which a function can tell and JSON does not count."""
    if isinstance(described, dict):
        yield described
        yield from _mappings([described[key] for key in sorted(described)])
    elif isinstance(described, list | tuple):
        yield from (each for inner in described for each in _mappings(inner))


@contextmanager
def stage_errors(number: int, name: str) -> Iterator[None]:
    """`with stage_errors(2, "filter"):` puts `stages[2].filter: ` before what a ConfigError says."""
    try:
        yield
    except ConfigError as error:
        if not error.what.startswith("stages["):
            error.what = f"stages[{number}].{shown_name(name)}: {error.what}"
        raise


def _words(written: Any) -> Iterator[str]:
    """Every string in the stages as written: one of them may name a module."""
    if isinstance(written, str):
        yield written
    elif isinstance(written, dict):
        yield from (word for pair in written.items() for each in pair for word in _words(each))
    elif isinstance(written, list | tuple):
        yield from (word for each in written for word in _words(each))


def _find_function(number: int, function: str) -> None:
    try:
        found = load_user_object(function)
    except ConfigError as error:
        error.what = f"input[{number}].function: {error.what}"
        raise
    if not callable(found):
        raise ConfigError(f"input[{number}].function: {shown_name(function)} is not a function")


def _check_schema(number: int, source: SourceConfig) -> None:
    if source.samples is None:
        return
    try:
        declared_schema(source.samples, source.missing)
    except ConfigError as error:
        place = "" if error.what.startswith("missing") else f"{error.where or 'schema'}: "
        error.what, error.where = f"input[{number}].{place}{error.what}", None
        raise
