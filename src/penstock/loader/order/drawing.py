"""Drawing: rows of an order -> their draws, by the kernel or in plain arithmetic. Both give the same."""

from collections.abc import Callable

import numpy as np

from penstock.loader.engine import compiled
from penstock.loader.order.counter import SIZING, key, permute
from penstock.loader.order.order import Draws, Order, empty_draws


def make_draw(order: Order) -> Callable[[int, int], Draws]:
    if not compiled():
        return order.draw
    from penstock.loader.compiled import order as kernel

    table = kernel.make_table(order)
    return lambda first, count: kernel.draw(table, first, count)


def sizing_draws(number: int, before: int, records: tuple[int, ...], most: int, rows: int, few: int) -> Draws:
    """The first `few` of `most` draws of rows that a dataset is sized by; `before` shards come before its own."""
    draws, total, starts = empty_draws(rows, few), sum(records), np.cumsum([0, *records], dtype="i8")
    if compiled():
        from penstock.loader.compiled.order import draw_sizing

        draw_sizing(number, before, starts, most, draws.shards, draws.records, draws.keys)
        return draws
    order_key = key(0, SIZING, number)
    for row in range(rows):
        draws.keys[row] = key(0, SIZING, number, row)
        for j in range(few):
            spot = permute((row * most + j) % total, total, order_key)
            shard = int(np.searchsorted(starts, spot, side="right")) - 1
            draws.shards[row, j], draws.records[row, j] = before + shard, spot - int(starts[shard])
    return draws
