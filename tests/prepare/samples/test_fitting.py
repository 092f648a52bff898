"""Which values fit which types: exactly, value by value, and the same in whole arrays."""

from __future__ import annotations

import datetime
import enum
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.prepare.samples.fitting import Misfit, exact, exact_text, held, together

NAN, INF = float("nan"), float("inf")
TYPES = [np.dtype(f"{kind}{bits}") for kind in ("int", "uint") for bits in (8, 16, 32, 64)]
TYPES += [np.dtype("float16"), np.dtype("float32"), np.dtype("float64"), np.dtype("bool")]
EDGES = [2**bits + near for bits in (7, 8, 11, 15, 16, 24, 31, 32, 53, 63, 64, 70) for near in (-1, 0, 1)]


class Colour(enum.IntEnum):
    RED = 3


FITS = [
    ("int8", -128, -128),
    ("int8", 127.0, 127),
    ("int8", np.uint64(5), 5),
    ("int8", True, 1),
    ("int8", Colour.RED, 3),
    ("int8", -0.0, 0),
    ("uint64", 2**64 - 1, 2**64 - 1),
    ("int64", -(2.0**63), -(2**63)),
    ("float16", 2048, 2048.0),
    ("float32", 2**24, 2.0**24),
    ("float32", 2**100, 2.0**100),
    ("float32", 0.1, np.float32(0.1)),
    ("float64", 2**53, 2.0**53),
    ("float64", np.bool_(True), 1.0),
    ("float16", INF, INF),
    ("float16", 65519.0, 65504.0),
    ("float32", np.longdouble("0.1"), np.float32("0.1")),
    ("bool", 0, False),
    ("bool", np.int8(1), True),
]
DOES_NOT_FIT = [
    ("int8", 128),
    ("int8", -129),
    ("uint8", -1),
    ("int8", 1.5),
    ("int8", NAN),
    ("int64", INF),
    ("int64", 2.0**63),
    ("uint64", 2**64),
    ("int32", np.uint32(2**31)),
    ("int16", np.longdouble("40000")),
    ("float16", 2049),
    ("float16", 65520.0),
    ("float32", 2**24 + 1),
    ("float32", 1e39),
    ("float32", 10**400),
    ("float64", 2**53 + 1),
    ("float64", np.uint64(2**64 - 1)),
    ("float64", np.longdouble("1e400")),
    ("bool", 2),
    ("bool", -1),
]
WRONG_TYPE = [
    None,
    "1",
    b"1",
    1j,
    np.complex64(1),
    Decimal(1),
    Fraction(1),
    datetime.date(2020, 1, 1),
    np.datetime64(1, "s"),
    np.timedelta64(1, "s"),
    np.str_("1"),
    np.bytes_(b"1"),
    {"a": 1},
    {1},
    object(),
    np.array("1"),
    np.array(1, object),
    np.ma.masked_array(1, mask=True),
]


@pytest.mark.parametrize(("kind", "value", "expected"), FITS)
def test_a_value_that_fits_keeps_its_value(kind: str, value: Any, expected: Any) -> None:
    number = np.dtype(kind)
    assert exact(value, (), number)[()] == expected
    assert exact(value, (), number).dtype == number


@pytest.mark.parametrize(("kind", "value"), DOES_NOT_FIT)
def test_a_value_that_does_not_fit_is_refused_both_ways(kind: str, value: Any) -> None:
    with pytest.raises(Misfit, match="value does not fit its type"):
        exact(value, (), np.dtype(kind))
    assert together([value], (), np.dtype(kind)) is None
    assert together([[value], [value]], (1,), np.dtype(kind)) is None
    assert together([np.array([value]), np.array([value])], (1,), np.dtype(kind)) is None


@pytest.mark.parametrize("value", WRONG_TYPE, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("number", TYPES, ids=str)
def test_what_is_no_number_is_refused_by_type(value: Any, number: np.dtype[Any]) -> None:
    for given_value, shape in [(value, ()), ([value], (1,))]:
        with pytest.raises(Misfit, match="wrong type"):
            exact(given_value, shape, number)
        assert together([given_value], shape, number) is None


def test_a_float_is_no_bool() -> None:
    for value in (1.0, np.float32(0)):
        with pytest.raises(Misfit, match="wrong type"):
            exact(value, (), np.dtype("bool"))
    assert together([[0, 1.0]], (2,), np.dtype("bool")) is None
    assert together([np.ones(2)], (2,), np.dtype("bool")) is None


def test_an_int_too_long_to_print_is_still_described() -> None:
    with pytest.raises(Misfit, match="int of 33220 bits"):
        exact(10**10000, (), np.dtype("int64"))


@pytest.mark.parametrize(
    ("value", "shape", "detail"),
    [
        ([1, 2, 3], (2,), "3 values"),
        (np.zeros(900), (893,), "900 values"),
        (np.zeros((2, 3)), (3, 2), "shape [2, 3]"),
        (np.zeros((2, 1)), (2,), "shape [2, 1]"),
        ([[1, 2], [3]], (2, 2), "a list inside has 1 values"),
        ([[1, 2], 3], (2, 2), "a single int 3"),
        (5, (2,), "a single int 5"),
        ([5], (), "1 values"),
        (np.zeros(1), (), "1 values"),
        ([], (2,), "0 values"),
    ],
)
def test_another_shape_is_refused_with_its_size(value: Any, shape: tuple[int, ...], detail: str) -> None:
    with pytest.raises(Misfit) as caught:
        exact(value, shape, np.dtype("float32"))
    assert (caught.value.reason, caught.value.detail) == ("wrong shape", detail)
    assert together([value], shape, np.dtype("float32")) is None


def test_ints_among_floats_never_go_through_float64() -> None:
    mixed = [[2**53 + 1, 0.5]]
    assert together(mixed, (2,), np.dtype("float64")) is None
    with pytest.raises(Misfit, match=r"int 9007199254740993 at \[0\]"):
        exact(mixed[0], (2,), np.dtype("float64"))
    assert together([2**53 + 1, 1.0], (), np.dtype("int64")) is None
    assert exact(2**53 + 1, (), np.dtype("int64"))[()] == 2**53 + 1
    assert together([[2**24 + 1, 0.5]], (2,), np.dtype("float32")) is None
    assert together([-1, 2**63], (), np.dtype("int64")) is None
    assert together([np.array([2**53 + 1]), np.array([0.5])], (1,), np.dtype("float64")) is None


def test_ints_among_floats_are_still_gathered_in_one_array() -> None:
    together_ = together([[0, 0.5], [True, NAN]], (2,), np.dtype("float32"))
    assert together_ is not None
    assert together_[:1].tolist() == [[0.0, 0.5]]


def test_bits_of_nan_and_minus_zero_are_preserved() -> None:
    for bits, kind in [("u2", "f2"), ("u4", "f4"), ("u8", "f8")]:
        size = np.dtype(kind).itemsize * 8
        quiet = {16: 0x7E01, 32: 0x7FC00001, 64: 0x7FF8000000000001}[size]
        loud = {16: 0xFC01, 32: 0xFF800001, 64: 0xFFF0000000000001}[size]
        values = np.array([quiet, loud, 1 << (size - 1)], bits).view(kind)
        fast = together([values], (3,), np.dtype(kind))
        assert fast is not None
        assert fast.tobytes() == values.tobytes()
        assert exact(values, (3,), np.dtype(kind)).tobytes() == values.tobytes()
        assert exact(list(values), (3,), np.dtype(kind)).tobytes() == values.tobytes()
        swapped = values.astype(values.dtype.newbyteorder(">"))
        assert exact(swapped, (3,), np.dtype(kind)).tobytes() == values.tobytes()
        assert together([swapped], (3,), np.dtype(kind)).tobytes() == values.tobytes()  # type: ignore[union-attr]


def test_text_is_text_only_where_it_can_be_written() -> None:
    assert exact_text(np.str_("k\0ö")) == "k\0ö"
    assert exact_text(np.array("king")) == "king"
    with pytest.raises(Misfit, match="value does not fit its type"):
        exact_text("\ud83d")
    for other in (1, b"king", None, ["king"], np.array(["king"])):
        with pytest.raises(Misfit, match="wrong type"):
            exact_text(other)


def test_what_is_held_does_not_change_with_the_original() -> None:
    zero, inner, array = np.array(1), [1, 2], np.arange(2)
    sample: list[Any] = [zero, inner, array, (3, [4])]
    kept = held(sample, 3)
    zero[()], inner[0], array[0], sample[3][1][0] = 9, 9, 9, 9
    sample[0] = 9
    assert kept[0] == 1
    assert (kept[1], kept[2].tolist(), kept[3]) == ((1, 2), [0, 1], (3, (4,)))


def test_a_list_in_itself_is_held_and_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(Misfit, match="wrong shape"):
        exact(held(endless, 2), (1, 1), np.dtype("int8"))


def test_a_row_of_a_memmap_is_a_plain_array_and_a_mask_is_not_forgotten(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "rows", np.float32, "w+", shape=(2, 3))
    assert type(held(mapped[0], 1)) is np.ndarray
    with pytest.raises(Misfit, match="masked array"):
        exact(held(np.ma.masked_array([1, 2], mask=[0, 1]), 1), (2,), np.dtype("int8"))


def _fitting(cast: Any, low: int, high: int) -> st.SearchStrategy[Any]:
    return st.integers(low, high).map(cast)


numbers = st.one_of(
    st.booleans(),
    st.integers(-2, 2),
    st.sampled_from(EDGES + [-edge for edge in EDGES]),
    st.floats(),
    st.floats(width=16),
    st.sampled_from([0.0, -0.0, 1.0, 0.5, 65520.0, 2.0**63, 1e300]),
    st.floats(width=32).map(np.float32),
    st.floats(width=16).map(np.float16),
    st.floats().map(np.float64),
    st.booleans().map(np.bool_),
    st.sampled_from([np.longdouble("0.1"), np.longdouble(3), np.longdouble("1e4000")]),
    *(_fitting(kind.type, int(np.iinfo(kind).min), int(np.iinfo(kind).max)) for kind in TYPES[:8]),
)
odd = st.sampled_from([None, "1", 1j, np.datetime64(1, "s"), np.timedelta64(1, "s"), Colour.RED, b"", {}])


edges = st.sampled_from([0.5, 1.0, 2.0**31, 2.0**63, NAN, -0.0, *EDGES])
LEAVES = [numbers, edges, edges | st.floats(), st.integers(0, 1) | odd]
few_dtypes = st.lists(
    st.sampled_from([*TYPES, np.dtype("longdouble"), np.dtype("complex64"), np.dtype("O")]), min_size=1, max_size=2
)


@st.composite
def arrays(draw: st.DrawFn, shape: tuple[int, ...], dtypes: list[np.dtype[Any]]) -> Any:
    dtype = draw(st.sampled_from(dtypes))
    if dtype.kind in "iu":
        lowest, highest = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
        near = st.integers(-3, 300).map(lambda each: min(max(each, lowest), highest))
        one: Any = near | st.sampled_from([lowest, highest])
    else:
        one = st.floats() | st.sampled_from([0.0, 1.0, -1.0, 2.0**31, 2.0**63, NAN])
    size = int(np.prod(shape))
    with np.errstate(all="ignore"):
        array = np.array(draw(st.lists(one, min_size=size, max_size=size)), dtype if dtype.kind in "iu" else "f8")
        array = array.astype(dtype).reshape(shape)
    laid_out: list[Any] = [
        lambda: array,
        lambda: array.astype(array.dtype.newbyteorder(">")),
        lambda: np.asfortranarray(array),
        lambda: np.stack([array, array], -1)[..., 0],
        lambda: array.reshape(-1),
    ]
    return draw(st.sampled_from(laid_out))()


def samples(shape: tuple[int, ...], leaf: st.SearchStrategy[Any], dtypes: list[np.dtype[Any]]) -> Any:
    if not shape:
        return leaf | arrays((), dtypes)
    inner = samples(shape[1:], leaf, dtypes)
    lists = st.lists(inner, min_size=shape[0], max_size=shape[0])
    return lists | lists.map(tuple) | arrays(shape, dtypes) | st.lists(inner, max_size=3) | leaf


SHAPES: list[tuple[int, ...]] = [(), (2,), (2, 2)]


@pytest.mark.proof
@settings(max_examples=1500, deadline=None)
@given(st.data())
def test_whole_arrays_agree_with_value_by_value(data: st.DataObject) -> None:
    shape, number = data.draw(st.sampled_from(SHAPES)), data.draw(st.sampled_from(TYPES))
    leaf, dtypes = LEAVES[data.draw(st.integers(0, 3))], data.draw(few_dtypes)
    kinds = [leaf, st.lists(leaf, min_size=2, max_size=2), arrays(shape, dtypes), samples(shape, leaf, dtypes)]
    values = data.draw(st.lists(kinds[data.draw(st.integers(0, 3))], max_size=3))
    rounds = data.draw(st.booleans())
    fast = together(values, shape, number, rounds)
    if fast is not None:
        _assert_exact(fast, values, shape, number, rounds)


def _assert_exact(
    fast: Any, values: list[Any], shape: tuple[int, ...], number: np.dtype[Any], rounds: bool = True
) -> None:
    slow = np.array([exact(value, shape, number, rounds) for value in values], number).reshape(-1, *shape)
    assert fast.dtype == number
    assert fast.shape == slow.shape
    assert fast.tobytes() == slow.tobytes()


@pytest.mark.parametrize("number", TYPES, ids=str)
def test_whole_arrays_agree_with_value_by_value_at_the_edge_of_every_type(number: np.dtype[Any]) -> None:
    taken = 0
    for edge in [sign * each for each in EDGES for sign in (1, -1)]:
        whole = float(edge)
        written = [[edge], [whole], [edge, 0.5], [edge, 1.0], [whole, 1], [True, edge], [np.float64(whole), 1]]
        fitting = [kind for kind in TYPES[:8] if np.iinfo(kind).min <= edge <= np.iinfo(kind).max]
        arrays_ = [np.array([edge], kind) for kind in fitting] + [np.array([whole]), np.array([whole], "f4")]
        for value in [*written, *arrays_, *map(list, arrays_)]:
            fast = together([value], (len(value),), number)
            if fast is not None:
                _assert_exact(fast, [value], (len(value),), number)
                taken += 1
    assert taken > 20 or number.kind == "b"


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TYPES), numbers)
def test_without_rounding_an_accepted_value_is_the_same_number(number: np.dtype[Any], value: Any) -> None:
    try:
        taken = exact(value, (), number, rounds=False)[()]
    except Misfit:
        return
    if isinstance(value, float | np.floating) and np.isnan(value):
        assert np.isnan(taken)
    elif isinstance(value, np.floating) or not np.isfinite(taken):
        assert np.longdouble(taken) == np.longdouble(value)
    else:
        assert taken.item() == value


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(TYPES), numbers)
def test_an_accepted_value_is_the_same_number_or_the_nearest(number: np.dtype[Any], value: Any) -> None:
    try:
        taken = exact(value, (), number)[()]
    except Misfit:
        return
    is_float = isinstance(value, float | np.floating)
    if is_float and not np.isfinite(value):
        assert number.kind == "f"
        assert str(float(taken)) == str(float(value))
    elif not is_float or number.kind != "f":
        assert int(taken) == int(value) == value
    elif isinstance(value, np.longdouble):
        assert abs(taken - value) <= abs(np.spacing(taken)) / 2
    else:
        around = [np.nextafter(taken, -number.type(INF)), np.nextafter(taken, number.type(INF))]
        distance = abs(Fraction(float(taken)) - Fraction(float(value)))
        others = [Fraction(float(each)) for each in around if np.isfinite(each)]
        assert all(distance <= abs(each - Fraction(float(value))) for each in others)
        assert np.signbit(taken) == np.signbit(value)
