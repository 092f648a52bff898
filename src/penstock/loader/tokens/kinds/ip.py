"""Ip: the text of an address -> 4 or 16 bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.loader.tokens import counts
from penstock.loader.tokens.address import NO_ADDRESS, UNREADABLE, format_address, parse_address
from penstock.loader.tokens.kinds.kind import Block, Kind, is_text
from penstock.shards.schema import Type

_IPV4, _IPV6 = range(2)


@dataclass(frozen=True)
class Ip(Kind):
    """Markers: IPv4, IPv6."""

    name = "ip"
    usage = "{'ip': 'version_column'} or 'ip'"
    takes = "text"
    smallest = 5
    is_address = True
    text_bytes = 17
    markers = 2

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        return cls(version=option) if option is None or isinstance(option, str) else None

    def typical(self, address_bytes: int) -> int:
        return 1 + address_bytes

    def fits(self, column: Type, of_events: bool) -> bool:  # noqa: ARG002
        return is_text(column)

    def encode(self, value: Any, version: int | None = None) -> Block:
        """Encode an address by its own version. A missing or unreadable one is zeros, of the stated version or IPv4."""
        family, packed = (UNREADABLE, NO_ADDRESS) if value is None else parse_address(value)
        noted = None
        if family == UNREADABLE:
            noted = counts.NULLS if value is None else counts.UNREADABLE
            family = 6 if version == 6 else 4
        elif version is not None and version != family:
            noted = counts.OTHER_VERSION
        return Block(_IPV6, packed, noted) if family == 6 else Block(_IPV4, packed[:4], noted)

    def size(self, marker: int, payload: bytes) -> int:  # noqa: ARG002
        return 16 if marker == _IPV6 else 4

    def decode(self, marker: int, payload: bytes) -> str:  # noqa: ARG002
        return format_address(payload)

    @classmethod
    def show(cls, value: Any) -> str:
        return str(value)
