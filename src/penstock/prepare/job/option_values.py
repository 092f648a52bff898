"""Option values: options of a stage in Python -> what a job file can say, so that both are one job. Part of config.py.

A tuple becomes a list, a number of numpy one of Python, a path text, a function its name. All else that JSON does not
have is refused: two options that a function can tell apart must not have one identity.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, printable
from penstock.base.user_code.carried import target_of

_IN_YAML = (type(None), bool, int, float, str, datetime.date, datetime.datetime)
_NUMBERS = (bool, int, float, str)
_NEXT_STEPS = {
    "set": "sort it into a list: a set has no order",
    "frozenset": "sort it into a list: a set has no order",
    "ndarray": "write array.tolist()",
    "bytes": "write it as text",
    "Decimal": "write it as text",
}


def written_options(options: Any, takes_functions: bool = True) -> Any:
    """The options as a job file has them. Raises ConfigError for a value that it cannot say.

    Args:
        options: Value behind the name of a stage.
        takes_functions: Whether a function among them becomes its name, which a function of the user would be given.
    """
    try:
        return _written(options, "its options are", takes_functions)
    except RecursionError:
        raise ConfigError("its options contain themselves, which a job file cannot say") from None


def _written(value: Any, place: str, takes_functions: bool) -> Any:
    if isinstance(value, dict):
        return {_key(key, place): _written(each, _inside(place, key), takes_functions) for key, each in value.items()}
    if type(value) in (list, tuple):
        return [_written(each, place, takes_functions) for each in value]
    if type(value) in _IN_YAML:
        return value
    if isinstance(value, np.generic) and type(value.item()) in _NUMBERS:
        return value.item()
    if isinstance(value, os.PathLike) and isinstance(os.fspath(value), str):
        return os.fspath(value)
    if callable(value) and takes_functions:
        return target_of(value)
    raise _refusal(f"{place} {_a(value)}", value)


def _inside(place: str, key: Any) -> str:
    """`option 'table' is`, for whatever lies in it."""
    return place if place.startswith("option ") else f"option {key!r} is"


def _key(key: Any, place: str) -> str:
    if isinstance(key, str) and type(key) in (str, np.str_):
        return str(key)
    where = place.removesuffix(" is").removesuffix("its options are") or "an option"
    raise ConfigError(
        printable(f"{where} has the key {key!r}, {_a(key)}, but keys are text"),
        next_step=f"write {str(key)!r}, with quotes" if isinstance(key, bool | int | float) else "write text",
    )


def _a(value: Any) -> str:
    kind = type(value)
    is_plain = kind.__module__ in ("builtins", "__main__")
    word = kind.__qualname__ if is_plain else f"{kind.__module__}.{kind.__qualname__}"
    return f"{'an' if word[0] in 'aeiou' else 'a'} {word}"


def _refusal(what: str, value: Any) -> ConfigError:
    usual = "write its .value" if hasattr(value, "_value_") else "capture it in a function: functools.partial(f, x=...)"
    return ConfigError(
        f"{what}, but options are what a job file can say: numbers, text, lists, and mappings with text as keys",
        next_step=_NEXT_STEPS.get(type(value).__name__, usual),
    )
