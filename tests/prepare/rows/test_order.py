"""Order: rows in the order of (hash of key, key, order columns, position), in memory and by words."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.rows import order
from penstock.prepare.rows.order import Exchange, sort_words
from tests.prepare.rows import making

COLLISIONS = {
    "real": order.hash_keys,
    "constant": lambda columns: np.full(len(columns[0]), 7, "u8"),
    "two values": lambda columns: order.hash_distinct(columns[0]) & np.uint64(1),
}


@st.composite
def cases(draw: Any) -> tuple[pa.Table, Exchange]:
    """A table with one or two key columns, up to two order columns, and a column that names each row's position."""
    rows = draw(st.integers(0, 30))
    keys, orders = draw(st.integers(1, 2)), draw(st.integers(0, 2))
    by, ordered = [f"k{n}" for n in range(keys)], [f"o{n}" for n in range(orders)]
    table = {name: draw(making.columns(rows)) for name in (*by, *ordered)}
    return pa.table({**table, "position": range(rows)}), Exchange(tuple(by), tuple(ordered))


@contextmanager
def hashing(name: str) -> Iterator[None]:
    """Keys that hash alike must still be told apart, and stand in the order of their values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(order, "hash_keys", COLLISIONS[name])
        yield


@pytest.mark.parametrize("name", COLLISIONS)
@given(case=cases())
def test_rows_come_in_the_order_of_a_naive_sort(name, case):
    table, exchange = case
    with hashing(name):
        found = making.sorted_rows(table, exchange)
        expected = making.in_order(table, exchange)
    assert found.batch.column("position").to_pylist() == expected
    assert making.values_of(found.batch) == making.values_of(table.take(pa.array(expected, pa.int64())))


@pytest.mark.proof
@pytest.mark.parametrize("name", COLLISIONS)
@given(case=cases())
def test_a_key_starts_where_its_first_row_stands(name, case):
    table, exchange = case
    with hashing(name):
        found = making.sorted_rows(table, exchange)
    rows = zip(*(making.raw(found.batch.column(name)) for name in exchange.by), strict=True)
    keys = [tuple(map(making.place, row)) for row in rows]
    assert found.starts.tolist() == [row for row in range(len(keys)) if not row or keys[row] != keys[row - 1]]
    assert len(found.starts) == len(set(keys)), "rows of a key do not stand together"


@pytest.mark.parametrize("name", COLLISIONS)
@given(case=cases())
def test_words_one_after_the_other_order_rows_as_the_sort_does(name, case):
    table, exchange = case
    batches = making.coded(table).combine_chunks().to_batches()
    with hashing(name):
        named = [(word.name, word.of_rows()) for batch in batches for word in sort_words(batch, exchange)]
        expected = making.in_order(table, exchange)
    assert [name for name, _ in named] == sorted(name for name, _ in named)
    assert all(words.dtype == np.uint64 for _, words in named)
    words = list(zip(*(word.tolist() for _, word in named), strict=True))
    by_words = sorted(range(table.num_rows), key=lambda row: words[row])
    assert by_words == expected


@given(st.lists(st.text(max_size=20), min_size=1, max_size=20), st.integers(1, 10))
def test_words_of_a_text_that_other_batches_lack_count_as_zero(texts, cut):
    """gather.py compares words of different batches, of which one may have longer texts than the other."""
    exchange = Exchange(("k",), ("t",))
    table = making.coded(pa.table({"k": [1] * len(texts), "t": texts}))
    found = []
    for batch in (table.slice(0, cut), table.slice(cut)):
        for piece in batch.combine_chunks().to_batches():
            named = {word.name: word.of_rows().tolist() for word in sort_words(piece, exchange)}
            found += [{name: words[row] for name, words in named.items()} for row in range(piece.num_rows)]
    names = sorted(set().union(*found))
    ordered = sorted(range(len(texts)), key=lambda row: [found[row].get(name, 0) for name in names])
    assert ordered == sorted(range(len(texts)), key=lambda row: texts[row].encode())


def test_many_rows_with_few_distinct_values_keep_their_positions_within_a_tie():
    rng = np.random.default_rng(1)
    table = pa.table({"k": rng.integers(0, 50, 20_000), "t": rng.integers(0, 3, 20_000), "position": range(20_000)})
    found = making.sorted_rows(table, Exchange(("k",), ("t",)))
    assert found.batch.column("position").to_pylist() == making.in_order(table, Exchange(("k",), ("t",)))


def test_columns_too_wide_for_one_word_are_sorted_by_all_of_them():
    rng = np.random.default_rng(2)
    wide = {name: rng.integers(-(2**63), 2**63 - 1, 2000) >> 8 << 8 for name in ("a", "b", "c")}
    table = pa.table({"k": rng.integers(0, 3, 2000), **wide, "position": range(2000)})
    exchange = Exchange(("k",), ("a", "b", "c"))
    assert making.sorted_rows(table, exchange).batch.column("position").to_pylist() == making.in_order(table, exchange)


def test_rows_from_several_chunks_with_dictionaries_of_their_own_are_one_order():
    pieces = [
        pa.table({"k": pa.array(keys), "position": pa.array([n])}) for n, keys in enumerate([["b"], ["a"], ["b"]])
    ]
    table = pa.concat_tables(pieces)
    found = making.sorted_rows(table, Exchange(("k",)))
    rows = zip(making.raw(found.batch.column("k")), found.batch.column("position").to_pylist(), strict=True)
    assert list(rows) in ([("a", 1), ("b", 0), ("b", 2)], [("b", 0), ("b", 2), ("a", 1)])
    assert len(found.starts) == 2


def test_this_order_holds_for_ever():
    """Buckets, shards and every resume lean on it: another order would be another format."""
    table = pa.table({"k": ["ada", "ben", "cleo", "dora", None, ""], "position": range(6)})
    assert making.sorted_rows(table, Exchange(("k",))).batch.column("position").to_pylist() == PINNED


PINNED = [0, 4, 2, 3, 1, 5]


def test_buckets_one_after_the_other_are_in_the_order_of_the_hash():
    rng = np.random.default_rng(3)
    hashes = np.sort(rng.integers(0, 2**64, 5000, "u8"))
    hashes[:2], hashes[-1] = (0, 1), 2**64 - 1
    for buckets in (1, 2, 3, 7, 64, 4095, 4096):
        numbers = order.bucket_numbers(hashes, buckets).tolist()
        assert numbers == sorted(numbers)
        assert (numbers[0], numbers[-1]) == (0, buckets - 1)
        assert all(a <= b for a, b in itertools.pairwise(numbers))


def test_buckets_take_even_shares_of_keys():
    hashes = order.hash_keys([pa.array([f"user {n}" for n in range(64_000)])])
    counts = np.bincount(order.bucket_numbers(hashes, 64), minlength=64)
    assert counts.min() > 800
    assert counts.max() < 1200


def test_the_number_of_buckets_comes_from_the_size_of_the_data():
    count = order.bucket_count
    assert count(0, 64_000_000) == 1
    assert count(1, 64_000_000) == 1
    assert count(64_000_000, 64_000_000) == order.BUCKETS_IN_A_SLICE
    assert count(10**15, 64_000_000) == order.MOST_BUCKETS
    sizes = [count(size, 1000) for size in range(0, 5000, 7)]
    assert sizes == sorted(sizes)


def test_keys_hash_as_split_hashes_them_so_that_a_split_by_key_is_a_range_of_buckets():
    from penstock.prepare.stages import build_stage
    from tests.prepare.stages.rows import make_rows

    rows = make_rows({"a": ["x", "y", None], "b": [1, 2, 3]})
    stage = build_stage("split", {"by": ["a", "b"], "test": 0.5})
    hashes = order.hash_keys([rows.batch.column("a"), rows.batch.column("b")])
    assert stage.decide(hashes).tolist() == stage(rows).splits.tolist()
