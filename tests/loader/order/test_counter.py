"""Random numbers are arithmetic: the same key and count give the same number on every machine, for ever."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.loader.order.counter import (
    GOLDEN,
    MIX,
    ORDER,
    ROOTS,
    ROW,
    SIZING,
    below,
    draw,
    exp2,
    key,
    log2,
    log_uniform,
    mix,
    permute,
    segment_key,
)

KEY = 0xD0734750FDE362B3
WORDS = st.integers(0, 2**64 - 1)


def test_mix_is_pinned():
    assert [mix(0), mix(1), mix(2**64 - 1)] == [0, 0x5692161D100B05E5, 0xB4D055FCF2CBBD7B]


def test_draws_are_those_of_splitmix64():
    """The published numbers for seed 0: a key and its draws are that generator, asked for by place."""
    assert [draw(0, i) for i in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    assert [draw(KEY, i) for i in range(2)] == [0x12588D809DCE88A7, 0xDD034EA7D44E8739]


def test_keys_are_pinned():
    assert key() == 0
    assert key(0) == 0xE220A8397B1DCDAF
    assert key(1, 2, 3) == KEY
    assert key(0, ORDER, 0, 0) == 0xCE17814D13C799A3
    assert key(42, ROW, 0, 1, 7) == 0x9F57CF8FCA6F6EF5
    assert [MIX, ORDER, ROW, SIZING] == [1, 2, 3, 4]


def test_a_segment_has_the_key_of_one_more_word():
    assert [segment_key(KEY, j) for j in range(2)] == [0x12588D809DCE88A7, 0xA67F0349B6B7D27D]
    assert segment_key(KEY, 5) == key(1, 2, 3, 5) == mix(((KEY ^ 5) + GOLDEN) % 2**64)


@given(WORDS)
def test_mix_stays_within_64_bits(word):
    assert 0 <= mix(word) < 2**64
    assert 0 <= draw(word, 2**40) < 2**64


@given(WORDS, st.integers(1, 2**32))
def test_below_is_the_share_of_the_upper_half(word, n):
    assert below(word, n) == (word >> 32) * n // 2**32 < n


def test_below_reaches_its_first_and_its_last_number():
    assert [below(x, 10) for x in (0, 2**63, 2**64 - 1)] == [0, 5, 9]


def test_permutations_are_pinned():
    assert [permute(i, 1, KEY) for i in range(1)] == [0]
    assert [permute(i, 3, KEY) for i in range(3)] == [0, 2, 1]
    assert [permute(i, 10, KEY) for i in range(10)] == [0, 9, 7, 2, 3, 5, 6, 1, 4, 8]
    assert [permute(i, 10, 0) for i in range(10)] == [5, 8, 4, 3, 0, 7, 1, 6, 2, 9]
    assert [permute(i, 32, KEY) for i in range(8)] == [21, 13, 23, 2, 20, 24, 6, 25]
    assert [permute(i, 33, KEY) for i in range(8)] == [10, 19, 4, 18, 30, 7, 21, 24]
    assert [permute(i, 2**32 + 1, KEY) for i in range(3)] == [1298941312, 3973989329, 673163235]
    assert [permute(i, 10**12, KEY) for i in range(3)] == [637960697700, 649819688561, 931366105413]


def test_a_permutation_reaches_every_place_once():
    for n in range(1, 301):
        assert sorted(permute(i, n, key(n)) for i in range(n)) == list(range(n))


@pytest.mark.parametrize("n", [2**20 + 1, 10**9 + 7, 2**40, 2**63 + 5])
def test_a_large_permutation_sends_no_two_places_to_one(n):
    places = {below(draw(7, i), min(n, 2**32)) * (n // min(n, 2**32)) for i in range(2000)}
    found = {permute(place, n, KEY) for place in places}
    assert len(found) == len(places)
    assert all(0 <= each < n for each in found)


def test_small_permutations_come_about_equally_often():
    found = Counter(tuple(permute(i, 3, key(seed)) for i in range(3)) for seed in range(6000))
    assert len(found) == 6
    assert all(800 < count < 1200 for count in found.values())


def test_windows_are_pinned():
    assert [log_uniform(draw(KEY, i), 1000) for i in range(12)] == [1, 389, 11, 32, 63, 919, 459, 3, 23, 494, 6, 68]
    assert [log_uniform(draw(KEY, i), 4 * 10**9) for i in range(5)] == [4, 194878036, 2690, 70607, 591468]


@given(WORDS, st.integers(1, 2**32 - 1))
def test_a_window_has_one_event_at_least_and_all_at_most(word, n):
    assert 1 <= log_uniform(word, n) <= n


@given(WORDS, st.integers(1, 2**32 - 1))
def test_a_window_is_the_power_that_floating_point_gives(word, n):
    exact = n ** ((word >> 37) / 2**27)
    assert math.floor(exact * (1 - 1e-7)) <= log_uniform(word, n) <= math.floor(exact * (1 + 1e-7))


def test_each_octave_of_windows_is_as_likely_as_the_next():
    found = Counter(log_uniform(draw(KEY, i), 1024).bit_length() for i in range(20_000))
    assert sorted(found) == list(range(1, 11))
    assert all(1800 < count < 2200 for count in found.values())


def test_logarithms_and_powers_are_pinned():
    assert [log2(n) for n in (1, 2, 3, 1000, 2**32 - 1)] == [0, 2**32, 6807362105, 42802717581, 137438953470]
    assert [exp2(y) for y in (0, 2**31, 2**32, 5 * 2**32, 31 * 2**32)] == [1, 1, 2, 32, 2**31]


def test_roots_are_those_of_two():
    assert [ROOTS[0], ROOTS[1], ROOTS[15], ROOTS[31]] == [3037000499, 2553802833, 2147506361, 2147483648]
    for i, root in enumerate(ROOTS, start=1):
        assert abs(root - 2**31 * 2 ** (2**-i)) <= 1
