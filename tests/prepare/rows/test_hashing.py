"""Hashes are for ever: a row keeps its split on every machine, in every version, in every width of its type."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.rows.hashing import combine, hash_array, hash_positions

NAN = float("nan")
PINNED = [
    (
        pa.array([0, 1, -1, None, 2**63 - 1]),
        [16294208416658607535, 10451216379200822465, 16490336266968443936, 2361492071075283931, 3055647633038352039],
    ),
    (pa.array([5], pa.int8()), [7134611160154358618]),
    (pa.array([2**64 - 1], pa.uint64()), [16490336266968443936]),
    (
        pa.array([0.0, -0.0, 1.5, NAN, None, float("inf")]),
        [
            16294208416658607535,
            16294208416658607535,
            15481881892811333770,
            14351126860892846918,
            2361492071075283931,
            2638638862653029785,
        ],
    ),
    (pa.array([1.5], pa.float32()), [15481881892811333770]),
    (pa.array([True, False, None]), [10451216379200822465, 16294208416658607535, 2361492071075283931]),
    (
        pa.array(["", "a", "12345678", "123456789", "é", None]),
        [
            16294208416658607535,
            16122925506974462397,
            4148703232458249038,
            9110894937908719007,
            4451159977689136687,
            2361492071075283931,
        ],
    ),
    (pa.array(["x" * 64, "x" * 65, "10.0.0.1"]), [9659750625575714566, 17979550226353564146, 15854601991256862287]),
    (pa.array([b"\xff\x00"]), [6824180204617861923]),
    (pa.array([date(2020, 1, 2)]), [18292500279729543929]),
    (pa.array([datetime(2020, 1, 2, 3, 4, 5)], pa.timestamp("us")), [12780291564062338520]),
    (pa.array([7], pa.duration("ms")), [7191089600892374487]),
    (
        pa.array([Decimal("1.50"), Decimal("-0.01"), Decimal("100")], pa.decimal128(9, 2)),
        [4204241896577735024, 11729376738088706319, 6797026773005711039],
    ),
    (pa.array([[1, 2], [], None]), [9774640389693179436, 92646369016441863, 2361492071075283931]),
    (pa.array(["a", "b", None]).dictionary_encode(), [16122925506974462397, 13846287248760904046, 2361492071075283931]),
]


@pytest.mark.parametrize(("array", "hashes"), PINNED, ids=lambda value: str(getattr(value, "type", "")))
def test_these_values_hash_to_these_numbers_for_ever(array, hashes):
    assert hash_array(array).tolist() == hashes


def test_these_positions_hash_to_these_numbers_for_ever():
    assert hash_positions(["day=1/é.parquet"], None, np.array([0, 1, 2**40])).tolist() == PINNED_POSITIONS


PINNED_POSITIONS = [2534711373194281182, 4184516373881077646, 13330859065909811810]


def same(*arrays: pa.Array) -> bool:
    hashes = [hash_array(array).tolist() for array in arrays]
    return all(each == hashes[0] for each in hashes)


def test_equal_values_hash_equally_in_every_width():
    numbers = [0, 1, 100]
    integers = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
    assert same(*[pa.array(numbers, kind) for kind in integers])
    assert same(*[pa.array([-5, 7], kind) for kind in integers[:4]])
    assert same(*[pa.array(np.array([0.5, -2], kind)) for kind in ("f2", "f4", "f8")])
    texts = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
    assert same(*[pa.array(["", "abc", "x" * 100], kind) for kind in texts])
    assert same(pa.array([b"abc"], pa.binary(3)), pa.array([b"abc"]))
    assert same(pa.array([Decimal("1.50")], pa.decimal128(9, 2)), pa.array([Decimal("1.5")], pa.decimal128(38, 1)))
    assert same(pa.array(["a", None, "b", "a"]).dictionary_encode(), pa.array(["a", None, "b", "a"]))


def test_nulls_nans_and_zeros_of_either_sign_are_each_one_value():
    assert len(set(hash_array(pa.array([None, None], pa.int64())).tolist())) == 1
    assert same(*[pa.array([None], kind) for kind in (pa.int8(), pa.string(), pa.float16(), pa.null(), pa.date32())])
    payloads = np.array([0x7FF8000000000000, 0xFFF8000000000001, 0x7FF0000000000001], "u8").view("f8")
    assert len(set(hash_array(pa.array(payloads)).tolist())) == 1
    assert same(pa.array([0.0]), pa.array([-0.0]))
    assert not same(pa.array([NAN]), pa.array([None], pa.float64()))
    assert not same(pa.array([""]), pa.array([None], pa.string()))


VALUES = st.one_of(
    st.lists(st.none() | st.text(max_size=80), max_size=20).map(lambda values: pa.array(values, pa.string())),
    st.lists(st.none() | st.binary(max_size=80), max_size=20).map(lambda values: pa.array(values, pa.large_binary())),
    st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), max_size=20).map(
        lambda values: pa.array(values, pa.int64())
    ),
    st.lists(st.none() | st.floats(), max_size=20).map(lambda values: pa.array(values, pa.float64())),
    st.lists(st.none() | st.booleans(), max_size=20).map(lambda values: pa.array(values, pa.bool_())),
    st.lists(st.none() | st.integers(0, 10**9), max_size=20).map(lambda values: pa.array(values, pa.timestamp("s"))),
    st.lists(st.none() | st.dates(), max_size=20).map(lambda values: pa.array(values, pa.date32())),
    st.lists(st.lists(st.integers(0, 9)), max_size=9).map(lambda values: pa.array(values, pa.list_(pa.int64()))),
)


@given(VALUES, st.integers(0, 20), st.integers(0, 20))
def test_a_value_hashes_alike_alone_and_among_others(array, start, length):
    every = hash_array(array).tolist()
    assert hash_array(array.slice(start, length)).tolist() == every[start : start + length]
    assert [int(hash_array(array.slice(row, 1))[0]) for row in range(len(array))] == every


@given(st.lists(st.binary(max_size=140), unique=True, max_size=40))
def test_different_texts_hash_differently(texts):
    assert len(set(hash_array(pa.array(texts, pa.binary())).tolist())) == len(texts)


def test_a_hundred_thousand_numbers_and_texts_collide_nowhere_and_fill_every_bit():
    for array in (pa.array(range(100_000)), pa.array([f"user-{i}" for i in range(100_000)])):
        hashes = hash_array(array)
        assert len(np.unique(hashes)) == 100_000
        bits = np.unpackbits(hashes.view("u1").reshape(-1, 8), axis=1).mean(axis=0)
        assert bits.min() > 0.49
        assert bits.max() < 0.51


def test_the_order_of_two_keys_matters():
    left, right = hash_array(pa.array([1, 2])), hash_array(pa.array([2, 1]))
    assert combine(left, right).tolist() != combine(right, left).tolist()


def test_times_of_one_unit_hash_as_their_number():
    assert same(pa.array([datetime(1970, 1, 1, 0, 0, 5)], pa.timestamp("s")), pa.array([5]))
    assert same(pa.array([date(1970, 1, 6)], pa.date32()), pa.array([5]))
