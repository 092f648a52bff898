"""The order of rows is arithmetic: pinned, every record once an epoch, every dataset its share of every block."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.order.order import Order, Stream, contexts_of, whole_shares
from tests.loader.making import Datasets


def drawn(order: Order, first: int, count: int) -> list[list[tuple[int, int]]]:
    draws = order.draw(first, count)
    pairs = zip(draws.shards.tolist(), draws.records.tolist(), strict=True)
    return [list(zip(shards, records, strict=True)) for shards, records in pairs]


# One dataset.


def test_orders_are_pinned():
    """A change of these is a change of what every saved state means."""
    one = Order((Stream((4, 3)),), (1,), seed=0)
    assert [row for (row,) in drawn(one, 0, 14)] == ORDER_PINNED
    three = Order((Stream((5, 7), draws=3),), (1,), seed=42)
    assert drawn(three, 0, 5) == THREE_PINNED
    contexts = Order((Stream((2, 1), contexts=np.array([1, 3, 2], "u1")),), (1,), seed=7)
    assert [row for (row,) in drawn(contexts, 0, 12)] == CONTEXTS_PINNED
    mixed = Order((Stream((9,)), Stream((9,)), Stream((9,))), (3, 2, 1), seed=1)
    assert [shard for ((shard, _),) in drawn(mixed, 0, 18)] == MIXED_PINNED
    assert [one.row_key(row) for row in range(3)] == KEYS_PINNED


ORDER_PINNED = [
    (0, 2),
    (1, 2),
    (0, 1),
    (1, 1),
    (1, 0),
    (0, 3),
    (0, 0),
    (0, 0),
    (0, 1),
    (0, 2),
    (1, 1),
    (0, 3),
    (1, 2),
    (1, 0),
]
THREE_PINNED = [
    [(1, 1), (0, 4), (0, 1)],
    [(0, 2), (0, 3), (1, 4)],
    [(1, 6), (1, 5), (1, 3)],
    [(1, 2), (1, 0), (0, 0)],
    [(1, 5), (0, 4), (1, 2)],
]
CONTEXTS_PINNED = [(0, 1), (1, 0), (0, 0), (0, 1), (1, 0), (0, 1), (0, 1), (0, 1), (1, 0), (0, 1), (0, 0), (1, 0)]
MIXED_PINNED = [0, 2, 1, 0, 1, 0, 0, 0, 2, 1, 1, 0, 0, 2, 1, 1, 0, 0]
KEYS_PINNED = [0x93C0B1883E054742, 0x8612C72551F12372, 0x2F2CE98901F76BCB]


@given(st.lists(st.integers(0, 30), min_size=1, max_size=5), st.integers(0, 2**64 - 1), st.integers(0, 10**6))
def test_an_epoch_has_every_record_once(shards, seed, epoch):
    shards[-1] += 1
    records = [(shard, record) for shard, count in enumerate(shards) for record in range(count)]
    order = Order((Stream(tuple(shards)),), (1,), seed)
    found = [row for (row,) in drawn(order, epoch * len(records), len(records))]
    assert sorted(found) == records


@given(st.integers(1, 40), st.integers(1, 6), st.integers(0, 2**32))
def test_packed_rows_share_no_record_within_an_epoch(records, draws, seed):
    order = Order((Stream((records,), draws=min(draws, records)),), (1,), seed)
    rows = order.streams[0].rows
    found = [pair for row in drawn(order, 3 * rows, rows) for pair in row]
    assert len(set(found)) == len(found) == rows * order.draws
    assert records - len(found) < order.draws  # what an epoch leaves out is less than a row


@given(st.lists(st.integers(0, 700), min_size=1, max_size=20), st.integers(0, 2**32))
def test_an_epoch_has_every_context_once(events, seed):
    contexts = contexts_of(np.array(events))
    order = Order((Stream((len(events),), contexts=contexts),), (1,), seed)
    found = Counter(record for ((_, record),) in drawn(order, 0, order.streams[0].rows))
    assert [found[record] for record in range(len(events))] == contexts.tolist()


def test_a_record_has_a_context_for_thirty_events_and_sixteen_at_most():
    events = [0, 1, 30, 31, 60, 61, 480, 481, 10**6]
    assert contexts_of(np.array(events)).tolist() == [1, 1, 1, 2, 2, 3, 16, 16, 16]


def test_epochs_and_seeds_have_orders_of_their_own():
    def epoch(seed: int, number: int) -> list:
        return drawn(Order((Stream((100,)),), (1,), seed), 100 * number, 100)

    orders = [epoch(seed, number) for seed in range(3) for number in range(3)]
    assert all(one != other for i, one in enumerate(orders) for other in orders[:i])


def test_two_datasets_of_one_size_do_not_share_their_order():
    order = Order((Stream((50,)), Stream((50,))), (1, 1), seed=3)
    rows = drawn(order, 0, 100)
    first, second = ([record for ((shard, record),) in rows if shard == own] for own in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second


def test_without_shuffling_rows_come_as_they_lie():
    order = Order((Stream((3, 0, 2)),), (1,), seed=9, shuffle=False)
    lying = [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1)]
    assert [row for (row,) in drawn(order, 0, 10)] == lying * 2
    packed = Order((Stream((3, 2), draws=2),), (1,), seed=9, shuffle=False)
    assert drawn(packed, 0, 3) == [[(0, 0), (0, 1)], [(0, 2), (1, 0)], [(0, 0), (0, 1)]]


def test_without_shuffling_each_of_several_datasets_comes_as_it_lies_block_by_block():
    for shares in ((1, 1), (3, 7)):
        order = Order((Stream((30,)), Stream((70,))), shares, seed=9, shuffle=False)
        rows = [row for (row,) in drawn(order, 0, 10 * sum(shares))]
        for dataset, share in enumerate(shares):
            own = [record for shard, record in rows if shard == dataset]
            blocks = [own[first : first + share] for first in range(0, len(own), share)]
            assert [record for block in blocks for record in sorted(block)] == list(range(10 * share))


def test_rows_behind_the_end_draw_nothing():
    order = Order((Stream((5,)),), (1,), seed=0, epochs=2)
    rows = drawn(order, 8, 4)
    assert [row[0][0] for row in rows] == [0, 0, -1, -1]
    assert order.draw(8, 4).keys.tolist()[2:] == [0, 0]


def test_a_permutation_mixes_shards_well():
    """The first hundredth of an epoch comes from all shards, about evenly."""
    order = Order((Stream((10_000,) * 10),), (1,), seed=0)
    found = Counter(shard for ((shard, _),) in drawn(order, 0, 1000))
    assert all(60 < found[shard] < 150 for shard in range(10))


# Several datasets.


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ([0.1, 0.2, 0.7], (1, 2, 7)),
        ([0.7, 0.3], (7, 3)),
        ([1 / 3, 1 / 3, 1 / 3], (1, 1, 1)),
        ([0.333, 0.333, 0.334], (333, 333, 334)),
        ([1, 1], (1, 1)),
        ([5], (1,)),
        ([2, 4, 6], (1, 2, 3)),
        ([1.5, 1], (3, 2)),
        ([0.99985, 0.00015], (6666, 1)),
        ([1, 1e-9], (10**9, 1)),
        ([1e-300, 3e-300], (1, 3)),
        ([6e-13, 9e-13], (2, 3)),
        ([1 / 7, 2 / 7, 4 / 7], (1, 2, 4)),
        (list(range(1, 51)), tuple(range(1, 51))),
        ([1] * 2000, (1,) * 2000),
        ([0.501, 0.499], (501, 499)),
        ([Fraction(1, 3), Fraction(1, 6)], (2, 1)),
    ],
)
def test_weights_become_whole_numbers(weights, shares):
    assert whole_shares(weights) == shares


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=60))
def test_every_weight_is_kept_to_a_thousandth(weights):
    shares = whole_shares(weights)
    least = weights.index(min(weights))
    for weight, share in zip(weights, shares, strict=True):
        assert math.isclose(share / shares[least], weight / weights[least], rel_tol=2.1e-3)
    assert math.gcd(*shares) == 1


@pytest.mark.parametrize("wrong", [0, -1, math.nan, math.inf, "1", True, None, np.True_, np.float32("nan"), [1]])
def test_a_weight_that_is_none_is_refused(wrong):
    with pytest.raises(ConfigError, match="above 0"):
        whole_shares([1, wrong])


@pytest.mark.parametrize("weights", [[1e-320, 1], [1, 5e-324], [1e-13, 1], [1e308, 1e-308], [10**400, 1]])
def test_weights_that_are_too_far_apart_are_refused_with_the_numbers(weights):
    with pytest.raises(ConfigError, match="too far apart"):
        whole_shares(weights)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int8, np.uint64, Fraction])
def test_weights_may_be_of_any_type_of_number(kind):
    assert whole_shares([kind(2), kind(6)]) == (1, 3)
    assert whole_shares(np.array([2, 6], dtype=kind if kind is not Fraction else "f8")) == (1, 3)


@given(st.lists(st.integers(1, 9), min_size=2, max_size=4), st.integers(0, 2**32), st.integers(0, 1000))
def test_every_block_has_each_dataset_by_its_share(shares, seed, block):
    order = Order(tuple(Stream((7,)) for _ in shares), tuple(shares), seed)
    found = Counter(shard for ((shard, _),) in drawn(order, block * sum(shares), sum(shares)))
    assert [found[shard] for shard in range(len(shares))] == shares


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 5)), min_size=2, max_size=4), st.integers(1, 3))
def test_no_dataset_is_passed_more_often_than_there_are_epochs(datasets, epochs):
    streams = tuple(Stream((records,)) for records, _ in datasets)
    order = Order(streams, tuple(share for _, share in datasets), seed=5, epochs=epochs)
    found = Counter(pair for (pair,) in drawn(order, 0, order.rows or 0))
    assert all(count <= epochs for count in found.values())
    assert sum(found.values()) == order.rows
    if order.rows:  # one more block, and a dataset would be
        more = (order.rows // order.block + 1) * np.array(order.shares)
        assert any(more > epochs * np.array([stream.rows for stream in streams]))


@pytest.mark.proof
def test_mixing_by_tokens_gives_each_dataset_its_share_of_the_tokens(datasets: Datasets):
    options = {"batch_size": 50, "length": 100, "weights": [1, 3], "workers": 0}
    paths = [datasets.pings, datasets.more_pings]
    with penstock.load(paths, fill="one_key", mix_by="tokens", **options) as loader:
        tokens = Counter[int]()
        order = loader._parts.phases.first.order
        for k in range(40):
            useful = np.count_nonzero(loader.batch(k)["targets_segmentation"], axis=1)
            for row in range(50):
                tokens[order.place(k * 50 + row)[0]] += int(useful[row])
    assert tokens[1] / tokens[0] == pytest.approx(3, rel=0.1)


def test_mixing_by_examples_gives_each_dataset_its_share_of_the_rows(datasets: Datasets):
    with penstock.load([datasets.rows, datasets.more_rows], batch_size=20, weights=[0.7, 0.3], workers=0) as loader:
        own = {row.tobytes() for row in tokens_of(datasets.rows)}
        for k in range(5):
            found = [
                row.tobytes() in own for row in np.c_[loader.batch(k)["inputs"], loader.batch(k)["targets"][:, -1]]
            ]
            assert sum(found) == 14


def tokens_of(path) -> np.ndarray:
    return np.stack(penstock.open(path)[:]["tokens"].to_numpy()).astype("i4")
