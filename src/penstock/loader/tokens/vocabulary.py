"""Vocabulary: which token stands for what, when the events of a key become tokens. Next: binding.py.

A measurement is the start token, then one block per field: a marker and the bytes behind it, each byte a token of its
own. docs/reference/tokens.md gives every block exactly.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.shown import Shown
from penstock.loader.tokens.kinds.bins import Bins
from penstock.loader.tokens.kinds.category import Category
from penstock.loader.tokens.kinds.floats import Float11, Float16, Float32
from penstock.loader.tokens.kinds.ip import Ip
from penstock.loader.tokens.kinds.kind import Kind
from penstock.loader.tokens.kinds.text import Bytes
from penstock.loader.tokens.kinds.time import Time
from penstock.loader.tokens.kinds.whole import Boolean, Int

START = 0
MOST_FIELDS = 12  # the order of an event's blocks is one number below 2^32, and 12! is
_MOST_SHOWN = 120  # characters: edges may be thousands
KINDS: dict[str, type[Kind]] = {  # in the order of the numbers in compiled/plan.py
    kind.name: kind for kind in (Ip, Time, Float11, Int, Category, Bytes, Float16, Float32, Boolean, Bins)
}


@dataclass(frozen=True)
class TokenField:
    """One column of events, how it is encoded, and the marker tokens it owns, in the order of its kind."""

    name: str  # what `decode` calls it
    column: str
    kind: Kind
    tokens: tuple[int, ...]

    def describe(self) -> dict[str, Any]:
        """The field as JSON, for the recipe."""
        own = {"name": self.name, "column": self.column, "kind": self.kind.name, "tokens": self.tokens}
        return {**own, **asdict(self.kind)}


@dataclass(frozen=True, repr=False)
class Vocabulary(Shown):
    """Which token stands for what, when events become tokens. `loader.vocabulary` is that of its batches.

    Attributes:
        fields: The encoded columns in order, each with `name`, `column`, `kind` and its marker `tokens`.
        byte_base: Token of byte 0; byte b is token byte_base + b.
    """

    fields: tuple[TokenField, ...]
    byte_base: int

    def facts(self) -> dict[str, str]:
        fields = ", ".join(f"{field.name}: {field.kind.name}" for field in self.fields)
        return {"size": f"{self.size} tokens", "fields": fields}

    @property
    def size(self) -> int:
        """Number of tokens: an embedding needs so many rows."""
        return self.byte_base + 256

    @property
    def smallest_event(self) -> int:
        """Tokens of the shortest event."""
        return 1 + sum(field.kind.smallest for field in self.fields)

    def typical_event(self, address_bytes: int) -> int:
        """Tokens of a usual event.

        Args:
            address_bytes: Bytes of an IP address: 4, or 16 for IPv6.
        """
        return 1 + sum(field.kind.typical(address_bytes) for field in self.fields)

    def describe(self) -> dict[str, Any]:
        """The vocabulary as JSON, as it stands in the recipe of a loader."""
        return {"fields": tuple(field.describe() for field in self.fields), "byte_base": self.byte_base}


PINGS = Vocabulary(  # network measurements, in 267 tokens
    fields=(
        TokenField("source", "src_addr", Ip("ip_version"), (1, 2)),
        TokenField("destination", "dst_addr", Ip("ip_version"), (3, 4)),
        TokenField("time", "event_time", Time(), (5, 6, 7)),
        TokenField("rtt", "rtt", Float11(), (8, 10)),  # 9 is reserved
    ),
    byte_base=11,
)


def make_vocabulary(fields: Mapping[str, Any]) -> Vocabulary:
    """`{"dst": "ip", "at": "time", "port": {"int": 2}, "proto": {"category": ["tcp", "udp"]}}` -> a Vocabulary.

    Markers are numbered from 1 in the order of the fields, and the 256 bytes follow them.
    """
    if not 0 < len(fields) <= MOST_FIELDS:
        raise ConfigError(
            f"fields= names {len(fields)} columns; events are encoded from 1 to {MOST_FIELDS}",
            where="load(fields=...)",
            next_step="name the columns that matter: fields={'dst': 'ip', 'at': 'time'}",
        )
    made: list[TokenField] = []
    token = START + 1
    for column, asked in fields.items():
        kind = _read_kind(column, asked)
        made.append(TokenField(column, column, kind, tuple(range(token, token + kind.markers))))
        token += kind.markers
    if sum(field.kind.is_time for field in made) > 1:
        raise ConfigError(
            "fields= names two columns of kind time; a measurement has one",
            where="load(fields=...)",
            next_step="encode the other as int",
        )
    return Vocabulary(tuple(made), byte_base=token)


def _read_kind(column: str, asked: Any) -> Kind:
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
