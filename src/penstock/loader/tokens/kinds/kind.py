"""Kind: how the values of one field become tokens, and back. One subclass per kind; vocabulary.KINDS has them all.

A block is a marker and the bytes behind it. A kind counts its markers from 0; the vocabulary gives them tokens. The
kernel (compiled/fields.py) has a branch per kind, which gives the same blocks as `encode`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from penstock.shards.schema import NUMBERS, Type

VALUE, MISSING = range(2)  # markers of a kind that has two


class Block(NamedTuple):
    marker: int  # its place among the markers of the kind
    payload: bytes = b""
    noted: int | None = None  # what it adds one to: a place in counts.COUNTED


@dataclass(frozen=True)
class Kind(ABC):
    """A kind with its options. The three options are part of every recipe; most kinds leave them as they are."""

    version: str | None = None  # ip: the column that says 4 or 6
    values: tuple[str | int | float, ...] = ()  # category: the values it tells apart; bins: the edges
    width: int = 0  # bytes of a value, or the most of them

    name: ClassVar[str]
    usage: ClassVar[str]  # how it is written in fields=
    takes: ClassVar[str]  # columns, in words
    smallest: ClassVar[int] = 1  # tokens of the shortest block
    is_time: ClassVar[bool] = False  # its block depends on the event before, and an event may have none
    is_address: ClassVar[bool] = False
    text_bytes: ClassVar[int] = 0  # bytes of what the kernel holds for each text of a column; 0: nothing
    is_number: ClassVar[bool] = False  # decodes to a number
    absent: ClassVar[str] = "missing"  # word for a value that is not there

    @classmethod
    def of(cls, option: Any) -> Kind | None:
        """The kind with the option that fields= gives, None for none. Returns None for what is not an option."""
        return cls() if option is None else None

    @property
    @abstractmethod
    def markers(self) -> int:
        """Number of marker tokens."""

    @abstractmethod
    def typical(self, address_bytes: int) -> int:
        """Tokens of a block in a usual event, to size a window by."""

    @abstractmethod
    def fits(self, column: Type, of_events: bool) -> bool:
        """Whether it can encode a column of this type."""

    def settled(self, column: Type) -> Kind:  # noqa: ARG002
        """The kind with the options that depend on the column."""
        return self

    def ordered(self) -> list[tuple[int | bytes, int]]:
        """`values` as the kernel searches them, ascending: an int64 or the bytes of a text, and its place."""
        return []

    @abstractmethod
    def encode(self, value: Any, version: int | None = None) -> Block:
        """The block of a value as it lies in its column; None is a null.

        Args:
            value: A number, or the bytes of a text.
            version: Version that a column states for an address.
        """

    @abstractmethod
    def size(self, marker: int, payload: bytes) -> int:
        """Bytes behind a marker, as far as the first of them tell. ValueError says which cannot be there."""

    @abstractmethod
    def decode(self, marker: int, payload: bytes) -> Any:
        """The value that a block stands for."""

    @classmethod
    def show(cls, value: Any) -> str | None:
        """A decoded value for people; None: as any other value."""
        return f"{value:,}" if cls.is_number else None


def is_text(column: Type) -> bool:
    return column.is_text or column.is_dictionary


def is_plain_number(column: Type) -> bool:
    """Whether it is an integer or a float: no time, and no boolean."""
    return column.name.startswith(("int", "uint", "float"))


def is_whole(column: Type) -> bool:
    return column.is_number and not NUMBERS[column.name].startswith("f")
