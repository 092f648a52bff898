"""Vocabulary: which token stands for what, when the events of a key become tokens. Next: binding.py.

A measurement is the start token, then one block per field: a marker and the bytes behind it, each byte a token of its
own. docs/reference/tokens.md gives every block exactly.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from penstock.base.errors import ConfigError, did_you_mean

Kind = Literal["ip", "time", "float11", "int", "category", "bytes"]
KINDS = get_args(Kind)
START = 0
MOST_FIELDS = 12  # the order of an event's blocks is one number below 2^32, and 12! is
_MARKERS = {"ip": 2, "time": 3, "float11": 2, "int": 2, "bytes": 2}  # a category has one per value, and one for others
_SMALLEST = {"ip": 5, "time": 0, "float11": 1, "int": 1, "category": 1, "bytes": 1}


@dataclass(frozen=True)
class TokenField:
    """One column of events, how it is encoded, and the marker tokens it owns.

    Markers: ip (IPv4, IPv6), time (absolute, short delta, long delta), float11 (value, failed), int (value, missing),
    category (one per value, then others), bytes (value, missing).
    """

    name: str  # what `decode` calls it
    column: str
    kind: Kind
    tokens: tuple[int, ...]
    version: str | None = None  # ip: the column that says 4 or 6
    values: tuple[str | int, ...] = ()  # category: what it tells apart
    width: int = 0  # int: bytes of a value; bytes: the most of one value

    def typical(self, address_bytes: int) -> int:
        """Tokens of its block in a usual event, to size a window by."""
        sizes = {"ip": 1 + address_bytes, "time": 2, "float11": 3, "int": 1 + self.width, "category": 1}
        return sizes.get(self.kind, 2 + min(self.width, 8))


@dataclass(frozen=True)
class Vocabulary:
    fields: tuple[TokenField, ...]
    byte_base: int  # byte b is token byte_base + b

    @property
    def size(self) -> int:
        return self.byte_base + 256

    @property
    def smallest_event(self) -> int:
        return 1 + sum(_SMALLEST[field.kind] for field in self.fields)

    def typical_event(self, address_bytes: int) -> int:
        return 1 + sum(field.typical(address_bytes) for field in self.fields)


PINGS = Vocabulary(  # network measurements, in 267 tokens
    fields=(
        TokenField("source", "src_addr", "ip", (1, 2), version="ip_version"),
        TokenField("destination", "dst_addr", "ip", (3, 4), version="ip_version"),
        TokenField("time", "event_time", "time", (5, 6, 7)),
        TokenField("rtt", "rtt", "float11", (8, 10)),  # 9 is reserved
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
        kind, option = _kind(column, asked)
        values = tuple(option) if kind == "category" else ()
        count = len(values) + 1 if kind == "category" else _MARKERS[kind]
        made.append(
            TokenField(
                name=column,
                column=column,
                kind=kind,
                tokens=tuple(range(token, token + count)),
                version=option if kind == "ip" else None,
                values=values,
                width=option or 0 if kind in ("int", "bytes") else 0,
            )
        )
        token += count
    if sum(field.kind == "time" for field in made) > 1:
        raise ConfigError(
            "fields= names two columns of kind time; a measurement has one",
            where="load(fields=...)",
            next_step="encode the other as int",
        )
    return Vocabulary(tuple(made), byte_base=token)


def _kind(column: str, asked: Any) -> tuple[Kind, Any]:
    """`"ip"` or `{"ip": "version_column"}` -> the kind and its option, checked."""
    kind, option = next(iter(asked.items())) if isinstance(asked, Mapping) and len(asked) == 1 else (asked, None)
    where = f"load(fields={{{column!r}: {asked!r}}})"
    if kind not in KINDS:
        raise ConfigError(
            f"{kind!r} is not an encoding.{did_you_mean(str(kind), list(KINDS))}",
            where=where,
            next_step=f"one of: {', '.join(KINDS)}",
        )
    _refuse_option(kind, option, where)
    return kind, 32 if kind == "bytes" and option is None else option


def _refuse_option(kind: Kind, option: Any, where: str) -> None:
    fits: dict[str, tuple[bool, str]] = {
        "ip": (option is None or isinstance(option, str), "{'ip': 'version_column'} or 'ip'"),
        "time": (option is None, "'time', without an option"),
        "float11": (option is None, "'float11', without an option"),
        "int": (option in (None, 1, 2, 4, 8), "{'int': bytes} with 1, 2, 4 or 8, or 'int'"),
        "bytes": (option is None or (isinstance(option, int) and 0 < option < 256), "{'bytes': most} from 1 to 255"),
        "category": (_are_values(option), "{'category': [values]}, all text or all whole numbers, none twice"),
    }
    good, usage = fits[kind]
    if not good:
        what = f"{kind} needs an option" if option is None else f"{option!r} is not an option of {kind}"
        raise ConfigError(what, where=where, next_step=f"write it as {usage}")


def _are_values(option: Any) -> bool:
    if not isinstance(option, Sequence) or isinstance(option, str) or not option or len(set(option)) != len(option):
        return False
    return all(type(value) is str for value in option) or all(type(value) is int for value in option)
