"""Orders are fair: over seeds and epochs every record is as likely at every place, and every order as likely."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from penstock.loader.compiled import order as compiled_order
from penstock.loader.order.order import Order, Stream
from tests.promises import workshop

SEEDS = 20_000
LIMIT = 4.0  # standard deviations: with the seeds fixed, a test that passes always passes
SIZES = range(2, 65) if workshop.THOROUGH else [2, 5, 7, 12, 33, 64]
LARGER = [65, 96, 100, 127, 128, 129, 200, 255, 256, 257, 300, 1000] if workshop.THOROUGH else [65, 128]


@cache
def orders_of_seeds(records: int) -> np.ndarray:
    """The first epoch of 20,000 seeds, one row per seed."""
    table = compiled_order.make_table(Order((Stream((records,)),), (1,), seed=0))
    found = np.empty((SEEDS, records), "i4")
    for seed in range(SEEDS):
        own = table._replace(seed=np.uint64(seed))
        found[seed] = compiled_order.draw(own, 0, records).records[:, 0]
    return found


@cache
def orders_of_epochs(records: int) -> np.ndarray:
    """20,000 epochs of one seed, one row per epoch."""
    table = compiled_order.make_table(Order((Stream((records,)),), (1,), seed=7))
    return compiled_order.draw(table, 0, SEEDS * records).records.reshape(SEEDS, records).astype("i4")


def excess(counts: np.ndarray, expected: float, freedom: int) -> float:
    """How many standard deviations a chi-square lies above its mean."""
    return float(((counts - expected) ** 2 / expected).sum() - freedom) / math.sqrt(2 * freedom)


def excess_of_places(orders: np.ndarray) -> float:
    count, records = orders.shape
    places = orders + records * np.arange(records, dtype="i4")
    return excess(np.bincount(places.ravel(), minlength=records**2), count / records, (records - 1) ** 2)


def excess_of_odd(orders: np.ndarray) -> float:
    """An order is odd if it has an odd number of pairs the wrong way round."""
    odd = np.zeros(len(orders), bool)
    small = np.ascontiguousarray(orders.T.astype("i2"))
    for place in range(1, len(small)):
        odd ^= np.logical_xor.reduce(small[:place] > small[place], axis=0)
    return float(2 * np.count_nonzero(odd) - len(odd)) / math.sqrt(len(odd))


def excess_of_pairs(first: np.ndarray, second: np.ndarray, records: int, distinct: bool) -> float:
    """Whether two places hold any two records equally often; one order has no record twice."""
    counts = np.bincount(records * first + second, minlength=records**2).reshape(records, records)
    cells = counts[~np.eye(records, dtype=bool)] if distinct else counts.ravel()
    return excess(cells, len(first) / len(cells), len(cells) - 1)


def of_one_order(orders: np.ndarray) -> Iterator[tuple[str, float]]:
    records = orders.shape[1]
    yield "places", excess_of_places(orders)
    yield "odd", excess_of_odd(orders)
    halves = 2 ** ((records - 1).bit_length() // 2)
    others = {1, min(halves, records - 1), records - 1} if records > 2 else set()
    for other in sorted(others):
        yield f"places 0 and {other}", excess_of_pairs(orders[:, 0], orders[:, other], records, distinct=True)


@pytest.mark.proof
@pytest.mark.parametrize("records", SIZES)
def test_few_records_come_in_every_order_equally_often(records):
    found = dict(of_one_order(orders_of_seeds(records)))
    assert all(abs(each) < LIMIT for each in found.values()), found


@pytest.mark.parametrize("records", [5, 12, 33, *LARGER])
def test_epochs_come_in_every_order_equally_often(records):
    found = dict(of_one_order(orders_of_epochs(records)))
    assert all(abs(each) < LIMIT for each in found.values()), found


@pytest.mark.proof
@pytest.mark.parametrize("records", [5, 12, 33])
@pytest.mark.parametrize("orders", [orders_of_seeds, orders_of_epochs])
def test_an_order_tells_nothing_of_the_next_seed_or_epoch(orders, records):
    made = orders(records)
    for place in (0, records - 1):
        found = excess_of_pairs(made[:-1, 0], made[1:, place], records, distinct=False)
        assert abs(found) < LIMIT, place


def test_two_of_three_hundred_small_datasets_are_not_ordered_alike():
    """Each dataset of a mix has an order of its own: the places of their records are independent."""
    order = Order((Stream((5,)),) * 300, (1,) * 300, seed=3)
    draws = compiled_order.draw(compiled_order.make_table(order), 0, 300 * 5 * 20)
    sets, records = draws.shards[:, 0], draws.records[:, 0]
    orders = np.stack([records[sets == each].reshape(20, 5) for each in range(300)])
    assert abs(excess_of_places(orders.reshape(-1, 5))) < LIMIT
    assert abs(excess_of_pairs(orders[:-1, :, 0].ravel(), orders[1:, :, 0].ravel(), 5, distinct=False)) < LIMIT
