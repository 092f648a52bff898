"""Stages by name: a built-in, an entry point of an installed package, or `module:name` of the user's own code."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.user_code import load_object, load_user_object
from penstock.prepare.stages import interfaces
from penstock.prepare.stages.function import FunctionStage
from penstock.prepare.stages.stage import Stage

if TYPE_CHECKING:
    from pydantic import ValidationError

BUILT_IN = {
    "cast": "penstock.prepare.stages.cast:Cast",
    "clean": "penstock.prepare.stages.text.clean:Clean",
    "dedup": "penstock.prepare.stages.dedup.dedup:Dedup",
    "filter": "penstock.prepare.stages.filter:Filter",
    "group": "penstock.prepare.stages.group:Group",
    "normalize": "penstock.prepare.stages.normalize:Normalize",
    "pack": "penstock.prepare.stages.text.pack:Pack",
    "select": "penstock.prepare.stages.select:Select",
    "split": "penstock.prepare.stages.split:Split",
    "statistics": "penstock.prepare.stages.statistics:Statistics",
    "tokenize": "penstock.prepare.stages.text.tokenize:Tokenize",
}
ENTRY_POINTS = "penstock.stages"
_METHODS: dict[str, type[Stage]] = {  # those of an earlier Stage, too: given, keyed_by and placed
    "adapted": interfaces.Adapts,
    "bind": interfaces.Binds,
    "ended": interfaces.Ends,
    "exchange": interfaces.Exchanges,
    "fit": interfaces.Fits,
    "given": interfaces.Adapts,
    "keyed_by": interfaces.Compares,
    "leave": interfaces.Leaves,
    "located": interfaces.Locates,
    "opened": interfaces.Opens,
    "placed": interfaces.Settles,
    "settled": interfaces.Settles,
    "splits": interfaces.Splits,
}


def build_stage(name: str, written: Any) -> Stage:
    """The stage that `- name: written` asks for. A ConfigError says what is wrong; config.py adds where."""
    target = name if ":" in name else _target(name)
    found = load_object(target) if name in BUILT_IN else load_user_object(target)
    if inspect.isclass(found) and issubclass(found, Stage):
        return _build_class(found, written)
    if not callable(found):
        raise ConfigError(f"{name} is neither a function nor a Stage")
    return _build_function(found, target, written)


def _target(name: str) -> str:
    if name in BUILT_IN:
        return BUILT_IN[name]
    installed = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name in installed:
        return installed[name]
    known = sorted([*BUILT_IN, *installed])
    raise ConfigError(
        f"unknown stage {name!r}. Stages: {', '.join(known)}.{did_you_mean(name, known)}",
        next_step="name a function of your own as module:function",
    )


def _build_class(kind: type[Stage], written: Any) -> Stage:
    from pydantic import TypeAdapter, ValidationError  # here: workers build no stage, they are sent them

    _refuse_uncalled(kind)
    options = kind.options_from_yaml(written)
    names = [each.name for each in dataclasses.fields(kind)]
    for option in options:
        if option not in names:
            raise ConfigError(f"unknown option {option!r}. Options: {', '.join(names)}.{did_you_mean(option, names)}")
    try:
        return TypeAdapter(kind).validate_python(options)
    except ValidationError as error:
        raise ConfigError(first_problem(error)) from error


def _refuse_uncalled(kind: type[Stage]) -> None:
    """Refuse a method that only stages with an interface have: nobody would call it, and rows would come out wrong."""
    for method, interface in _METHODS.items():
        if callable(getattr(kind, method, None)) and not issubclass(kind, interface):
            name, asked = interface.__name__, " and ".join(f"`{each}`" for each in sorted(_asked(interface)))
            raise ConfigError(
                f"{kind.__name__} has a method `{method}`, which is called only where a stage is a `{name}`",
                next_step=f"derive it from penstock.prepare.stages.interfaces.{name}, which asks for {asked}, "
                "or rename the method",
            )
    if missing := _asked(kind):
        raise ConfigError(f"{kind.__name__} lacks what its interfaces ask for: {', '.join(sorted(missing))}")


def _asked(kind: type[Stage]) -> frozenset[str]:
    """Methods that are still to be written."""
    return getattr(kind, "__abstractmethods__", frozenset())


def first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] in ("missing", "missing_argument"):
        return f"option {path!r} is required"
    if not path:
        return str(message)
    return f"{path}: {message}" if first["type"] == "value_error" else f"{path}: {message}, got {first['input']!r}"


def _build_function(function: Callable[..., Any], target: str, written: Any) -> Stage:
    options = Stage.options_from_yaml(written)
    try:
        inspect.signature(function).bind(None, **options)
    except TypeError as error:
        raise ConfigError(f"{target} does not take these options: {error}") from error
    return FunctionStage(target=target, options=options)
