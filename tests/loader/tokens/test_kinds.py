"""Every kind over its whole range: the kernel and the plain code give the same blocks, and decode gives values back."""

from __future__ import annotations

import itertools
import math
import struct
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.loader.order.order import Draws
from penstock.loader.tokens.binding import TokenOptions
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.decode import decode
from penstock.loader.tokens.vocabulary import START, make_vocabulary
from tests.loader.compiled.test_kernel_equals_reference import by_kernel
from tests.loader.tokens.test_reference import make_data

HALVES = np.arange(1 << 16, dtype="u2").view("f2")
LARGEST = {"float16": 65504.0, "float32": float(np.finfo("f4").max)}


def through(asked: Any, word: str, values: Sequence[Any]) -> tuple[list[Any], dict[str, int]]:
    """The values of a column as tokens of the kernel, and back; what was counted besides events.

    The plain code of the kind must give the same tokens and counts. Rows of both: test_kernel_equals_reference.py.
    """
    data = make_data([[{"a": list(values)}]], {"a": f"list<{word}>"})
    vocabulary = TokenOptions(make_vocabulary({"a": asked}), 1, "packed", False).bind(data.schema, "a test").vocabulary
    field = vocabulary.fields[0]
    blocks = [field.kind.encode(value) for value in values]
    expected = [
        token
        for block in blocks
        for token in (START, field.tokens[block.marker], *(vocabulary.byte_base + byte for byte in block.payload))
    ]
    draws = Draws(np.zeros((1, 1), "i4"), np.zeros((1, 1), "i8"), np.zeros(1, "u8"))
    found = by_kernel(data, draws, vocabulary, "packed", False, len(values) * vocabulary.typical_event(4) + 1, 0)
    tokens = found.arrays["inputs"][0][found.arrays["inputs_segmentation"][0] > 0].tolist()
    assert tokens == expected
    counts = {name: count for name, count in zip(COUNTED, found.counts, strict=True) if count}
    assert (counts.pop("events"), counts.pop("segments")) == (len(values), 1)
    assert counts == Counter(COUNTED[block.noted] for block in blocks if block.noted is not None)
    return [event["a"] for event in decode([*tokens, *[START] * 2], vocabulary)], counts


def bits(values: Sequence[float | None]) -> list[bytes | None]:
    """Numbers by their bits: -0.0 is not 0.0, and a NaN is itself."""
    return [None if each is None else struct.pack(">d", math.nan if math.isnan(each) else each) for each in values]


def boundaries(dtype: str) -> list[float]:
    """float64 numbers at which rounding to `dtype` changes: some of its numbers, the middles between, and next to
    them."""
    if dtype == "f2":
        numbers = np.concatenate([HALVES[::9], HALVES[1::9]]).astype("f8")  # neighbours
    else:  # every sign and exponent, with mantissas of 0, 1, half and all ones
        tops = np.arange(512, dtype="u4") << 23
        numbers = np.concatenate([tops, tops + 1, tops + (1 << 22), tops + (1 << 23) - 1]).view("f4").astype("f8")
    numbers = np.unique(numbers[np.isfinite(numbers)])
    with np.errstate(over="ignore"):
        middles = (numbers[1:] + numbers[:-1]) / 2
        largest = float(np.finfo(dtype).max)
        ends = [largest * (1 + 2.0 ** -(np.finfo(dtype).nmant + 2)), largest * 2, 1e300, math.inf]
        smallest = float(np.finfo(dtype).smallest_subnormal)
        ends += [smallest / 2, smallest, smallest * 1.5, 5e-324, 2.0**-1022]
        some = np.concatenate([numbers, middles, ends, np.negative(ends)])
        return [*some.tolist(), *np.nextafter(some, np.inf).tolist(), *np.nextafter(some, -np.inf).tolist(), math.nan]


def test_every_float16_comes_back_bit_by_bit():
    for word in ("float16", "float64"):
        values = HALVES.astype(word).tolist()
        answer, counts = through("float16", word, values)
        assert bits(answer) == bits(values)
        assert counts == {}


@pytest.mark.parametrize(("asked", "dtype"), [("float16", "f2"), ("float32", "f4")])
def test_every_other_number_is_the_nearest_one_and_what_is_beyond_is_counted(asked, dtype):
    values = boundaries(dtype)
    with np.errstate(over="ignore"):
        nearest = np.array(values).astype(dtype).astype("f8")
    overflows = np.isinf(nearest) & np.isfinite(values)
    vanishes = (nearest == 0) & (np.array(values) != 0)
    expected = np.where(overflows, np.copysign(LARGEST[asked], values), nearest)
    answer, counts = through(asked, "float64", values)
    assert bits(answer) == bits(expected.tolist())
    assert counts == {"values_too_large": overflows.sum(), "values_too_small": vanishes.sum()}


@given(st.lists(st.floats() | st.floats(width=16) | st.none(), min_size=1, max_size=50))
def test_a_float32_column_is_kept_bit_by_bit(values):
    with np.errstate(over="ignore"):
        singles = [None if each is None else float(np.float32(each)) for each in values]
    answer, counts = through("float32", "float32", singles)
    assert bits(answer) == bits(singles)
    assert counts == ({"nulls": values.count(None)} if None in values else {})


@pytest.mark.parametrize("word", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_whole_numbers_are_floats_as_near_as_can_be(word):
    limits = np.iinfo(word)
    values = sorted({limits.min, limits.max, *(each for bit in range(64) for each in _around(bit, limits))})
    for asked in ("float16", "float32"):
        answer, counts = through(asked, word, values)
        with np.errstate(over="ignore"):
            near = np.array([float(value) for value in values]).astype(asked).astype("f8")
        assert answer == np.clip(near, -LARGEST[asked], LARGEST[asked]).tolist()
        assert counts.get("values_too_large", 0) == np.isinf(near).sum()


def _around(bit: int, limits: Any) -> list[int]:
    near = [sign * (1 << bit) + step for sign in (1, -1) for step in (-1, 0, 1, 1 << bit >> 11, (1 << bit >> 53) + 1)]
    return [each for each in near if limits.min <= each <= limits.max]


@pytest.mark.parametrize("width", [1, 2, 4, 8])
@pytest.mark.parametrize("word", ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_an_int_is_itself_or_the_nearest_that_fits(word, width):
    limits, most = np.iinfo(word), 2 ** (8 * width - 1)
    values = sorted({limits.min, limits.max, *(each for bit in range(64) for each in _around(bit, limits))})
    answer, counts = through({"int": width}, word, [*values, None])
    assert answer == [*(min(max(value, -most), most - 1) for value in values), None]
    beyond = sum(not -most <= value < most for value in values)
    assert counts == {"nulls": 1} | ({"ints_out_of_range": beyond} if beyond else {})


def test_a_boolean_is_a_token_and_null_another():
    answer, counts = through("boolean", "bool", [True, False, None, True])
    assert answer == [True, False, None, True]
    assert counts == {"nulls": 1}


EDGES = [-2.5, -0.0, 1e-300, 1.0, math.nextafter(1.0, 2.0), 1e308]


def test_a_bin_is_the_range_that_a_value_is_in():
    inside = [-2.5, -1e-320, 0.0, -0.0, 1e-300, 0.5, 1.0, EDGES[4], 7.0, 1e308]
    answer, counts = through({"bins": EDGES}, "float64", inside)
    for value, (low, high) in zip(inside, answer, strict=True):
        assert low <= value < high or value == high == EDGES[-1]
    assert counts == {}


def test_what_is_beyond_the_edges_is_in_the_next_bin_and_counted():
    values = [math.nextafter(-2.5, -9), -math.inf, math.nextafter(1e308, math.inf), math.inf, None, math.nan]
    answer, counts = through({"bins": EDGES}, "float64", values)
    assert answer == [(-2.5, 0.0), (-2.5, 0.0), (EDGES[4], 1e308), (EDGES[4], 1e308), None, None]
    assert counts == {"values_too_small": 2, "values_too_large": 2, "nulls": 1, "values_not_a_number": 1}


def test_the_last_bin_may_hold_one_value():
    answer, counts = through({"bins": [0, 3, 3]}, "int8", [0, 2, 3, 4])
    assert answer == [(0.0, 3.0), (0.0, 3.0), (3.0, 3.0), (3.0, 3.0)]
    assert counts == {"values_too_large": 1}
    assert through({"bins": [5, 5]}, "int8", [5])[0] == [(5.0, 5.0)]


@given(st.data())
def test_every_value_is_in_the_bin_that_a_search_finds(data):
    edges = sorted(set(data.draw(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40))))
    if len(edges) < 2:
        return
    values = data.draw(st.lists(st.floats(allow_nan=False) | st.sampled_from(edges), min_size=1, max_size=40))
    answer, counts = through({"bins": edges}, "float64", values)
    for value, (low, high) in zip(values, answer, strict=True):
        first = np.clip(np.searchsorted(edges, value, side="right") - 1, 0, len(edges) - 2)
        assert (low, high) == (edges[first], edges[first + 1])
    assert counts.get("values_too_small", 0) == sum(value < edges[0] for value in values)
    assert counts.get("values_too_large", 0) == sum(value > edges[-1] for value in values)


def test_thousands_of_bins_have_a_token_each():
    edges = [float(each) for each in range(4097)]
    vocabulary = make_vocabulary({"a": {"bins": edges}})
    assert vocabulary.size == 1 + 4097 + 256
    answer, _ = through({"bins": edges}, "int16", range(4096))
    assert answer == list(itertools.pairwise(edges))


@pytest.mark.parametrize("value", [2**63 + 1025, 2**63 + 1023, 2**64 - 1025, 2**64 - 1])
def test_the_upper_half_of_uint64_is_rounded_once(value):
    edges = [2.0**63, 2.0**63 + 2048, 2.0**64 - 2048, 2.0**64]
    (answer,), _ = through({"bins": edges}, "uint64", [value])
    assert answer[0] <= float(value) <= answer[1]


@pytest.mark.parametrize(
    ("asked", "word", "takes"),
    [
        ("float16", "string", "integers and floats"),
        ("float32", "bool", "integers and floats"),
        ({"bins": [0, 1]}, "timestamp[s]", "integers and floats"),
        ({"bins": [0, 1]}, "bool", "integers and floats"),
        ("boolean", "int8", "booleans"),
    ],
)
def test_a_column_of_another_type_is_refused_by_name(asked, word, takes):
    data = make_data([[{"a": []}]], {"a": f"list<{word}>"})
    with pytest.raises(ConfigError, match=takes) as refused:
        TokenOptions(make_vocabulary({"a": asked}), 1, "packed", False).bind(data.schema, "a test")
    assert "column 'a' has type" in refused.value.what
    assert "boolean" in str(refused.value.next_step)


@pytest.mark.parametrize("word", ["string", "dictionary<string>"])
def test_text_that_shall_be_times_names_types_as_the_next_step(word):
    data = make_data([[{"when": []}]], {"when": f"list<{word}>"})
    with pytest.raises(ConfigError) as refused:
        TokenOptions(make_vocabulary({"when": "time"}), 1, "packed", False).bind(data.schema, "a test")
    assert "types: {when: 'timestamp[us]'}" in str(refused.value.next_step)
