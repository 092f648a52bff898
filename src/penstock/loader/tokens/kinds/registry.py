"""Registry: what fields= says of a column -> its Kind. To add a kind, add it here and to compiled/plan.py."""

from collections.abc import Mapping
from typing import Any

from penstock.base.errors import ConfigError, did_you_mean
from penstock.loader.tokens.kinds.bins import Bins
from penstock.loader.tokens.kinds.category import Category
from penstock.loader.tokens.kinds.floats import Float11, Float16, Float32
from penstock.loader.tokens.kinds.ip import Ip
from penstock.loader.tokens.kinds.kind import Kind
from penstock.loader.tokens.kinds.text import Bytes
from penstock.loader.tokens.kinds.time import Time
from penstock.loader.tokens.kinds.whole import Boolean, Int

_MOST_SHOWN = 120  # characters: edges may be thousands
KINDS: dict[str, type[Kind]] = {  # in the order of the kernel's numbers
    kind.name: kind for kind in (Ip, Time, Float11, Int, Category, Bytes, Float16, Float32, Boolean, Bins)
}


def read_kind(column: str, asked: Any) -> Kind:
    """`"ip"` or `{"ip": "version_column"}` -> the kind with its option, checked."""
    name, option = next(iter(asked.items())) if isinstance(asked, Mapping) and len(asked) == 1 else (asked, None)
    where = f"load(fields={{{column!r}: {_shown(asked)}}})"
    if not isinstance(name, str) or name not in KINDS:
        raise ConfigError(
            f"{name!r} is not an encoding.{did_you_mean(str(name), list(KINDS))}",
            where=where,
            next_step=f"one of: {', '.join(KINDS)}",
        )
    if kind := KINDS[name].of(option):
        return kind
    what = f"{name} needs an option" if option is None else f"{_shown(option)} is not an option of {name}"
    raise ConfigError(what, where=where, next_step=f"write it as {KINDS[name].usage}")


def _shown(given: Any) -> str:
    text = repr(given)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."
