"""Ranks: numbers in the order of the values, of any type; nulls and NaN behind all."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.prepare.stages.dedup.near.ranks import Rank, require_ranks
from tests.prepare.rows.making import VALUES, raw, typed
from tests.prepare.stages.near.texts import texts

RANKED = [
    "int64", "uint64", "int8", "uint16", "float64", "float32", "bool", "timestamp", "zoned", "date32", "date64",
    "time32", "time64", "duration",
]  # fmt: skip


def ranks_of(array: pa.Array, order: Any = "desc") -> list[int]:
    found = Rank("quality", order).of(pa.RecordBatch.from_arrays([array], ["quality"]))
    assert found.dtype == np.dtype("u8")
    return found.tolist()


def is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


@given(kind=st.sampled_from(RANKED), order=st.sampled_from(["asc", "desc"]), data=st.data())
def test_ranks_have_the_order_of_the_values(kind, order, data):
    """The two highest values of 64 bits share a rank, so that nulls have one of their own."""
    arrow, values = VALUES[kind]
    array = typed(data.draw(st.lists(st.none() | values, max_size=8)), arrow)
    start = data.draw(st.integers(0, len(array)))
    assert ranks_of(array.slice(start), order) == ranks_of(array, order)[start:]
    found, ranks = raw(array), ranks_of(array, order)
    for one, first in zip(found, ranks, strict=True):
        for other, second in zip(found, ranks, strict=True):
            if is_missing(one) or is_missing(other):
                assert (first < second) == (is_missing(other) and not is_missing(one))
            elif {one, other} == HIGHEST.get(kind):
                assert first == second
            else:
                assert (first < second) == (one < other if order == "asc" else one > other), (one, other)


HIGHEST = {"int64": {2**63 - 2, 2**63 - 1}, "uint64": {2**64 - 2, 2**64 - 1}}


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("kind", HIGHEST)
def test_the_two_highest_numbers_of_64_bits_share_a_rank_and_no_others_do(kind, order):
    highest = max(HIGHEST[kind])
    lowest = 0 if kind == "uint64" else -(2**63)
    ranks = ranks_of(pa.array([lowest, lowest + 1, highest - 2, highest - 1, highest, None], kind), order)
    assert ranks[3] == ranks[4] < ranks[5]
    assert len(set(ranks)) == 5


def test_whole_numbers_beyond_what_a_float_can_tell_apart_are_told_apart():
    exact = [2**53, 2**53 + 1, 2**62, 2**62 + 1]
    assert ranks_of(pa.array(exact), "asc") == sorted(set(ranks_of(pa.array(exact), "asc")))
    large = [2**63 - 1, 2**63, 2**63 + 1, 2**64 - 3]
    assert ranks_of(pa.array(large, pa.uint64()), "asc") == sorted(set(ranks_of(pa.array(large, pa.uint64()), "asc")))


def test_both_zeros_are_one_value_and_infinities_are_the_ends():
    values = pa.array([-math.inf, -1.0, -0.0, 0.0, 5e-324, 1.0, math.inf, math.nan, None])
    ranks = ranks_of(values, "asc")
    assert ranks[2] == ranks[3]
    assert ranks[7] == ranks[8]
    assert sorted(set(ranks)) == list(dict.fromkeys(ranks))


@given(documents=st.lists(st.none() | texts, max_size=8), large=st.booleans())
def test_the_longest_by_bytes_ranks_first(documents, large):
    array = pa.array(documents, pa.large_string() if large else pa.string())
    found = Rank("text", by_length=True).of(pa.RecordBatch.from_arrays([array], ["text"])).tolist()
    lengths = [len((text or "").encode()) for text in documents]
    for one, first in zip(lengths, found, strict=True):
        assert [first < second for second in found] == [one > other for other in lengths]


@pytest.mark.parametrize("kind", [pa.string(), pa.binary(), pa.list_(pa.int8()), pa.dictionary(pa.int8(), pa.string())])
def test_a_column_that_has_no_order_of_numbers_or_times_is_refused(kind):
    with pytest.raises(ConfigError, match="'quality'"):
        require_ranks(pa.schema([("quality", kind)]), "quality")


def test_a_column_without_values_so_far_is_refused_with_the_way_to_declare_it():
    with pytest.raises(ConfigError, match="quality: float64"):
        require_ranks(pa.schema([("quality", pa.null())]), "quality")


def test_a_column_of_decimals_is_refused_with_the_cast_that_ranks_it():
    with pytest.raises(ConfigError, match=r"decimal128\(10, 2\).*\n.*cast: \{columns: \{quality: float64\}\}"):
        require_ranks(pa.schema([("quality", pa.decimal128(10, 2))]), "quality")


@pytest.mark.parametrize("kind", RANKED)
def test_a_column_of_numbers_or_times_is_not(kind):
    require_ranks(pa.schema([("quality", VALUES[kind][0])]), "quality")


@pytest.mark.parametrize("kind", ["uint64", "int64"])
def test_small_numbers_have_an_order_whatever_nulls_take(kind):
    """A null has the last number of 64 bits; 0 and 1 of a uint64 are common values and must not share one with it."""
    values = [0, 1, 2] if kind == "uint64" else [-(2**63) + 2, -(2**63) + 3, 0]
    array = pa.array([*values, None], kind)
    for order, least_last in (("asc", [0, 1, 2, 3]), ("desc", [2, 1, 0, 3])):
        ranks = ranks_of(array, order)
        assert sorted(range(4), key=ranks.__getitem__) == least_last
        assert len(set(ranks)) == 4
