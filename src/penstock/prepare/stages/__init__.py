"""Stages by name: built-in, from an entry point of an installed package, or `module:name` of the user."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args, get_type_hints

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.fingerprint import canonical_json
from penstock.base.user_code import load_object, load_user_object
from penstock.base.user_code.carried import is_carried, shown_name
from penstock.prepare.stages import interfaces
from penstock.prepare.stages.function import FunctionStage
from penstock.prepare.stages.problems import problem
from penstock.prepare.stages.stage import Stage

if TYPE_CHECKING:
    from pydantic import ValidationError

_NEAR_DEDUP_ELSEWHERE = {"minhash", "minhash_dedup", "fuzzy_dedup", "lsh"}
BUILT_IN = {
    "bins": "penstock.prepare.stages.fitting.bins:Bins",
    "cast": "penstock.prepare.stages.cast:Cast",
    "clean": "penstock.prepare.stages.text.clean:Clean",
    "dedup": "penstock.prepare.stages.dedup.dedup:Dedup",
    "filter": "penstock.prepare.stages.filter:Filter",
    "group": "penstock.prepare.stages.group:Group",
    "near_dedup": "penstock.prepare.stages.dedup.near.near_dedup:NearDedup",
    "normalize": "penstock.prepare.stages.normalize:Normalize",
    "pack": "penstock.prepare.stages.text.pack:Pack",
    "select": "penstock.prepare.stages.select:Select",
    "split": "penstock.prepare.stages.split:Split",
    "statistics": "penstock.prepare.stages.statistics:Statistics",
    "tokenize": "penstock.prepare.stages.text.tokenize:Tokenize",
}
ENTRY_POINTS = "penstock.stages"
_POSITIONAL = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
    inspect.Parameter.VAR_POSITIONAL,
)
_COLLECTING = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_METHODS: dict[str, type[Stage]] = {
    "adapted": interfaces.Adapts,
    "bind": interfaces.Binds,
    "ended": interfaces.Ends,
    "exchange": interfaces.Exchanges,
    "fit": interfaces.Fits,
    "leave": interfaces.Leaves,
    "located": interfaces.Locates,
    "opened": interfaces.Opens,
    "settled": interfaces.Settles,
    "splits": interfaces.Splits,
}


def build_stage(name: str, written: Any) -> Stage:
    """The stage that `- name: written` asks for. A ConfigError says what is wrong; config.py adds where."""
    target = name if ":" in name or is_carried(name) else _target(name)
    found = load_object(target) if name in BUILT_IN else load_user_object(target)
    if inspect.isclass(found) and issubclass(found, Stage):
        return _build_class(found.variant(written), written)
    if not callable(found):
        raise ConfigError(f"{shown_name(name)} is neither a function nor a Stage")
    return _build_function(found, target, written)


def _target(name: str) -> str:
    if name in BUILT_IN:
        return BUILT_IN[name]
    import importlib.metadata  # here: it takes longer than all built-in stages

    installed = {entry.name: entry.value for entry in importlib.metadata.entry_points(group=ENTRY_POINTS)}
    if name in installed:
        return installed[name]
    known = sorted([*BUILT_IN, *installed])
    meant = " Did you mean 'near_dedup'?" if name in _NEAR_DEDUP_ELSEWHERE else did_you_mean(name, known)
    raise ConfigError(
        f"unknown stage {name!r}. Stages: {', '.join(known)}.{meant}",
        next_step="name a function of your own as module:function",
    )


def _build_class(kind: type[Stage], written: Any) -> Stage:
    from pydantic import TypeAdapter, ValidationError  # here: workers build no stage, they are sent them

    _refuse_uncalled(kind)
    _refuse_undecorated(kind)
    options = kind.options_from_yaml(written)
    names = [each.name for each in dataclasses.fields(kind)]
    for option in options:
        if option not in names:
            raise ConfigError(f"unknown option {option!r}. Options: {', '.join(names)}.{did_you_mean(option, names)}")
    _refuse_booleans(kind, options)
    try:
        stage: Stage = TypeAdapter(kind).validate_python(options)
    except ValidationError as error:
        raise ConfigError(first_problem(error)) from error
    if kind.describe is Stage.describe:
        _refuse_unwritable(stage.describe(), "give the field a type that JSON has, or return JSON from `describe`")
    return stage


def _refuse_booleans(kind: type[Stage], options: Mapping[str, Any]) -> None:
    """Refuse a boolean where a number is expected: pydantic would take it for 0 or 1."""
    for name in [name for name, value in options.items() if isinstance(value, bool)]:
        hint = get_type_hints(kind)[name]
        taken = {hint, *get_args(hint)}
        if taken & {int, float} and bool not in taken:
            raise ConfigError(f"{name}: expected a number, got {str(options[name]).lower()}")


def _refuse_uncalled(kind: type[Stage]) -> None:
    """Refuse a method that only stages with an interface have: nobody would call it, and rows would come out wrong."""
    for method, interface in _METHODS.items():
        if callable(getattr(kind, method, None)) and not issubclass(kind, interface):
            name, asked = interface.__name__, " and ".join(f"`{each}`" for each in sorted(_asked(interface)))
            raise ConfigError(
                f"{kind.__name__} has a method `{method}`, which is called only if the stage is a `{name}`",
                next_step=f"derive it from penstock.prepare.stages.interfaces.{name}, which requires {asked}, "
                "or rename the method",
            )
    if missing := _asked(kind):
        raise ConfigError(f"{kind.__name__} lacks methods that its interfaces require: {', '.join(sorted(missing))}")


def _refuse_undecorated(kind: type[Stage]) -> None:
    """Refuse a stage class without @dataclass: its attributes are not fields, so no job could set them."""
    if "__dataclass_fields__" in vars(kind):
        return
    written = [name for name, each in vars(kind).get("__annotations__", {}).items() if "ClassVar" not in str(each)]
    if written or "__init__" in vars(kind):
        options = (
            f", so {', '.join(written)} {'are no options' if len(written) > 1 else 'is no option'}" if written else ""
        )
        raise ConfigError(
            f"{kind.__name__} is a Stage without @dataclass{options}",
            next_step=f"write @dataclass(frozen=True, kw_only=True) above class {kind.__name__}, and its options as "
            "fields, such as `column: str`",
        )


def _asked(kind: type[Stage]) -> frozenset[str]:
    """Methods that are still to be written."""
    return getattr(kind, "__abstractmethods__", frozenset())


def first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    if first["type"] in ("missing", "missing_argument"):
        return f"option {path!r} is required"
    return problem(path, first)


def _build_function(function: Callable[..., Any], target: str, written: Any) -> Stage:
    options = Stage.options_from_yaml(written)
    _refuse_no_stage(function, shown_name(target))
    try:
        signature = inspect.signature(function)
        names = [each.name for each in list(signature.parameters.values())[1:] if each.kind not in _COLLECTING]
        _refuse_unknown(options, names, [*signature.parameters.values()])
        signature.bind(None, **options)
    except (TypeError, ValueError) as error:  # ValueError: a function in C that does not tell its parameters
        raise ConfigError(f"{shown_name(target)} does not take these options: {error}") from error
    _refuse_unwritable(options, "write it as text, and read it in the function")
    return FunctionStage(target=target, options=dict(sorted(options.items())))  # as JSON, which has no order of them


def _refuse_unknown(options: dict[str, Any], names: list[str], parameters: list[inspect.Parameter]) -> None:
    if any(each.kind == inspect.Parameter.VAR_KEYWORD for each in parameters):
        return
    for option in options:
        if option not in names:
            listed = f"Options: {', '.join(names)}." if names else "It has no options."
            raise ConfigError(f"unknown option {option!r}. {listed}{did_you_mean(str(option), names)}")


def _refuse_no_stage(function: Callable[..., Any], name: str) -> None:
    """Refuse what can be called, but not with a record batch."""
    if inspect.isclass(function):
        raise ConfigError(
            f"{name} is a class, but not a Stage",
            next_step=f"derive it: class {name.rpartition(':')[2]}(penstock.Stage), or give a function of a batch",
        )
    plain = function.func if isinstance(function, functools.partial) else function
    if inspect.isgeneratorfunction(plain) or inspect.iscoroutinefunction(plain):
        raise ConfigError(
            f"{name} yields, but a stage returns one record batch with as many rows as it was given",
            next_step="for a function that yields samples, write input: {files: ..., function: ...}; to drop rows, "
            "write filter: with a function that returns one True or False per row",
        )
    try:
        required = [each for each in inspect.signature(function).parameters.values() if _is_required(each)]
    except ValueError:
        return
    takes_one = any(each.kind in _POSITIONAL for each in inspect.signature(function).parameters.values())
    if not takes_one or len([each for each in required if each.kind in _POSITIONAL]) > 1:
        raise ConfigError(
            f"{name} is called as {name.rpartition(':')[2]}{inspect.signature(function)}, but a stage is called "
            "differently",
            next_step="a stage takes a record batch, then options as keywords: def my_stage(batch, *, option=1)",
        )


def _is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is inspect.Parameter.empty and parameter.kind not in _COLLECTING


def _refuse_unwritable(options: dict[str, Any], next_step: str) -> None:
    """Options are written into the manifest: only what JSON holds."""
    for name, value in options.items():
        try:
            canonical_json(value)
        except ValueError as error:
            raise ConfigError(
                f"option {name!r} is {value!r}, which the manifest cannot hold: {error}",
                next_step="write NaN and infinities as text, and read them in the code: float('inf')",
            ) from error
        except TypeError as error:
            raise ConfigError(
                f"option {name!r} is a {type(value).__name__}, but the manifest holds numbers, text, lists and "
                "mappings",
                next_step=next_step,
            ) from error
