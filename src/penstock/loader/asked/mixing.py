"""Mixing: datasets and their weights -> the order of rows, and the function that draws them. Used by load.py."""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.batches import empty_batch
from penstock.loader.engine import compiled
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws, Order, whole_shares

_ROWS = 256  # of each dataset, to learn how many tokens its rows have
_ROWS_AT_ONCE = 16


def make_order(kind: Kind, options: Mapping[str, Any]) -> Order:
    shares = _shares(kind, options["weights"], options["mix_by"], len(kind.streams))
    order = Order(kind.streams, shares, options["seed"], options["shuffle"], options["epochs"])
    rows, batch_size = order.rows, options["batch_size"]
    # An epoch that ends before its first batch is a mistake, not an empty loop.
    if rows is not None and rows < (batch_size if options["remainder"] == "drop" else 1):
        mixed = f"mixed in blocks of {order.block:,} rows, as weights= say"
        raise ConfigError(
            f"{order.epochs_have} {rows:,} rows, and a batch takes {batch_size:,}",
            where="penstock.load" if len(order.shares) == 1 else mixed,
            next_step="a smaller batch_size, more epochs, or remainder='pad'"
            if rows
            else "more epochs, or weights in the ratio of smaller numbers",
        )
    return order


def make_draw(order: Order) -> Callable[[int, int], Draws]:
    """The function that draws rows: compiled or plain, with equal results."""
    if not compiled():
        return order.draw
    from penstock.loader.compiled import order as kernel

    table = kernel.make_table(order)
    return lambda first, count: kernel.draw(table, first, count)


def refuse_weights(weights: Any, datasets: int) -> None:
    if weights is None:
        return
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)) or not np.ndim(weights):
        raise ConfigError(
            f"weights={weights!r}is not a list of numbers", where="load(weights=...)", next_step="weights=[0.3, 0.7]"
        )
    if len(weights) != datasets:
        raise ConfigError(
            f"weights= has {len(weights)} numbers for {datasets} datasets",
            where="load(weights=...)",
            next_step="one weight per dataset, in the order of the paths",
        )
    whole_shares(list(weights))


def _shares(kind: Kind, weights: Sequence[float] | None, mix_by: str, datasets: int) -> tuple[int, ...]:
    """Rows of each dataset in a block of the stream."""
    if datasets == 1:
        return (1,)
    shares = whole_shares([1.0] * datasets if weights is None else list(weights))
    if mix_by == "tokens":
        shares = whole_shares([share / _tokens_a_row(kind, number) for number, share in enumerate(shares)])
    return shares


def _tokens_a_row(kind: Kind, number: int) -> Fraction:
    """Useful tokens of the first rows of a dataset under seed 0: a fact of the data and the recipe, not of the seed."""
    shares = tuple(int(i == number) for i in range(len(kind.streams)))
    rows, order, tokens = min(_ROWS, kind.streams[number].rows), Order(kind.streams, shares, seed=0), 0
    for first in range(0, rows, _ROWS_AT_ONCE):
        draws = order.draw(first, min(_ROWS_AT_ONCE, rows - first))
        tokens += kind.fill(draws, empty_batch(kind.layout, len(draws.keys))).tokens
    return Fraction(max(1, tokens), rows)
