"""Windows: the number of events of a record -> how many rows it gives, and where each begins. Used by raw.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_whole
from penstock.loader.batches import Array
from penstock.loader.order.counter import GOLDEN

_MOST = 2**31 - 1


class Window(Protocol):
    """Rows of at most `length` events, cut out of records."""

    cuts: bool  # whether events of longer records are in no row of an epoch
    gives_one: bool  # whether every record gives one row

    @property
    def word(self) -> str | None:
        """Name of the window, for the recipe."""

    def rows(self, events: Array, length: int) -> Array:
        """Rows that each record gives in an epoch."""

    def starts(self, events: Array, numbers: Array, keys: Array, length: int) -> Array:
        """First event of each row: the row is number `numbers` of its record, and has a key of its own."""


@dataclass(frozen=True)
class Whole:
    """The record as it is; longer ones are refused."""

    cuts, gives_one = False, True
    word: ClassVar[str | None] = None

    def rows(self, events: Array, length: int) -> Array:  # noqa: ARG002
        return np.ones(len(events), "i8")

    def starts(self, events: Array, numbers: Array, keys: Array, length: int) -> Array:  # noqa: ARG002
        return np.zeros(len(events), "i8")


@dataclass(frozen=True)
class Last(Whole):
    """The last events."""

    cuts, word = True, "last"

    def starts(self, events: Array, numbers: Array, keys: Array, length: int) -> Array:  # noqa: ARG002
        starts: Array = np.maximum(events - length, 0)
        return starts


@dataclass(frozen=True)
class Random(Whole):
    """A random position that has `length` events, by the row's key: another one in every epoch."""

    cuts, word = True, "random"

    def starts(self, events: Array, numbers: Array, keys: Array, length: int) -> Array:  # noqa: ARG002
        positions = np.maximum(events - length, 0).astype("u8") + np.uint64(1)
        return below(first_draw(keys), positions).astype("i8")


@dataclass(frozen=True)
class Sliding:
    """Windows that begin every `stride` events, each a row. The last reaches the end, and may be shorter."""

    stride: int
    cuts = gives_one = False

    @property
    def word(self) -> str:
        return f"sliding {self.stride}"

    def rows(self, events: Array, length: int) -> Array:
        rows: Array = 1 - (np.minimum(length - events, 0) // self.stride)
        return rows

    def starts(self, events: Array, numbers: Array, keys: Array, length: int) -> Array:  # noqa: ARG002
        return numbers * self.stride


def make_window(given: Any, length: int) -> Window:
    """The window that load(window=...) asks for."""
    if given is None:
        return Whole()
    if isinstance(given, str) and given in ("last", "random"):
        return Last() if given == "last" else Random()
    if not isinstance(given, Mapping) or list(given) != ["sliding"] or not is_whole(given["sliding"], 1, _MOST):
        raise ConfigError(
            f"load() cannot take window={given!r}",
            where="load(window=...)",
            next_step="give 'last', 'random' or {'sliding': 64}, where 64 is the stride in events",
        )
    stride = int(given["sliding"])
    if stride > length:
        raise ConfigError(
            f"a stride of {stride:,} with windows of {length:,} events would skip {stride - length:,} events between "
            "two windows",
            where="load(window=...)",
            next_step=f"a stride of at most {length:,}, or a larger length",
        )
    return Sliding(stride)


def first_draw(keys: Array) -> Array:
    """The first random number of each key: order.counter.draw(key, 0), for arrays."""
    x = keys.astype("u8") + np.uint64(GOLDEN)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def below(x: Array, n: Array) -> Array:
    """order.counter.below for arrays; each n is at most 2^32."""
    return ((x >> np.uint64(32)) * n) >> np.uint64(32)
