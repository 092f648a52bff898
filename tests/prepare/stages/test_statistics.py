"""Statistics: the numbers a patient person would get, whatever blocks they came in."""

from __future__ import annotations

import itertools
import json
import math
import tracemalloc
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError, TaskError
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import make_rows


def measure(array: pa.Array, blocks: int = 1, name: str = "statistics") -> dict:
    """The artifact of one column that arrives in `blocks` blocks, merged as two tasks would."""
    fit = build_stage(name, ["x"]).fit()
    edges = [len(array) * i // blocks for i in range(blocks + 1)]
    states = [fit.start(), fit.start()]
    for number, (low, high) in enumerate(itertools.pairwise(edges)):
        block = pa.RecordBatch.from_arrays([array.slice(low, high - low)], names=["x"])
        side = int(number >= blocks // 2)
        states[side] = fit.update(states[side], block)
    return fit.finish(fit.merge(*json.loads(json.dumps([fit.pack(state) for state in states]))))["x"]


def exact(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation in fractions: no rounding until the end, and no square too small for a float."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    with localcontext(prec=50):
        return float(mean), float((Decimal(variance.numerator) / Decimal(variance.denominator)).sqrt())


FINITE = st.floats(-1e100, 1e100)


@given(st.lists(FINITE | st.none() | st.just(math.nan) | st.just(math.inf), max_size=60), st.integers(1, 7))
def test_moments_are_the_exact_ones_to_the_last_digits(values, blocks):
    answer = measure(pa.array(values, pa.float64()), blocks)
    finite = [value for value in values if value is not None and math.isfinite(value)]
    assert answer["count"] == len(finite)
    assert answer["nulls"] == values.count(None)
    assert answer["nans"] == sum(value is not None and math.isnan(value) for value in values)
    assert answer["infinities"] == values.count(math.inf)
    if not finite:
        assert [answer[key] for key in ("mean", "std", "min", "max")] == [None] * 4
        return
    mean, std = exact(finite)
    size = max(map(abs, finite))
    assert answer["mean"] == pytest.approx(mean, rel=1e-12, abs=1e-14 * size)
    assert answer["std"] == pytest.approx(std, rel=1e-9, abs=1e-14 * size)
    assert (answer["min"], answer["max"]) == (min(finite), max(finite))


def test_a_small_range_far_from_zero_keeps_its_digits():
    rng = np.random.default_rng(0)
    values = 1e4 + rng.random(50_000) * 1e-2
    answer = measure(pa.array(values), blocks=50)
    mean, std = exact(values.tolist())
    assert answer["mean"] == pytest.approx(mean, rel=1e-15)
    assert answer["std"] == pytest.approx(std, rel=1e-9)
    assert answer["mean"] == pytest.approx(math.fsum(values) / len(values), rel=1e-15)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 1e16 + 2, -7.7, 5e-324])
@pytest.mark.parametrize("count", [1, 3, 10, 8192])
def test_a_column_that_never_varies_has_a_deviation_of_exactly_zero(value, count):
    answer = measure(pa.array([value] * count), blocks=min(count, 3))
    assert (answer["mean"], answer["std"]) == (value, 0.0)


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.int64(), pa.float16(), pa.float32()], ids=str)
def test_every_numeric_type_is_measured(kind):
    array = pa.array(np.array([1, 2, 6]), pa.int64()).cast(kind)
    answer = measure(array)
    assert (answer["mean"], answer["min"], answer["max"]) == (3, 1, 6)


def test_whole_numbers_too_large_for_a_float_keep_their_ends():
    answer = measure(pa.array([2**63 - 1, 2**53 + 1, 1], pa.int64()))
    assert (answer["min"], answer["max"]) == (1, 2**63 - 1)
    assert measure(pa.array([2**64 - 1], pa.uint64()))["mean"] == 2.0**64


def test_no_rows_are_no_numbers():
    expected = {"count": 0, "nulls": 0, "nans": 0, "infinities": 0, "mean": None, "std": None, "min": None, "max": None}
    assert measure(pa.array([], pa.float32())) == expected


def test_the_artifact_is_plain_json():
    values = pa.array([1.0, math.nan, math.inf, -math.inf, None])
    assert "Infinity" not in json.dumps(measure(values), allow_nan=False)


@pytest.mark.parametrize("stage", ["statistics", "normalize"])
def test_only_numbers_can_be_measured(stage):
    schema = pa.schema([("a", pa.int64()), ("s", pa.string()), ("b", pa.bool_())])
    for column, message in (("s", "column 's' is string, not a number"), ("z", "there is no column 'z'")):
        with pytest.raises(ConfigError, match=message):
            build_stage(stage, ["a", column]).output_schema(schema, None)
    for written in (None, "a", {"columns": 5}, {"colums": ["a"]}):
        with pytest.raises(ConfigError):
            build_stage(stage, written)


def test_statistics_let_rows_pass():
    rows = make_rows({"x": [1.0]})
    stage = build_stage("statistics", ["x"])
    assert stage(rows) is rows
    assert stage.needs(frozenset({"y"})) == frozenset({"x", "y"})


KEYS = ("count", "nulls", "nans", "infinities", "mean", "std", "min", "max")


def vectors(values: np.ndarray, mask: np.ndarray | None = None) -> pa.Array:
    """Rows of (rows, *shape) as fixed-size lists; `mask` says which elements are null."""
    array = pa.array(values.reshape(-1), mask=None if mask is None else mask.reshape(-1))
    for width in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, width)
    return array


def assert_close(answer: dict, values: np.ndarray, rel: float = 1e-12) -> None:
    for element, column in enumerate(values.T.astype("f8").tolist()):
        mean, std = exact(column)
        assert answer["mean"][element] == pytest.approx(mean, rel=1e-15, abs=0), element
        assert answer["std"][element] == pytest.approx(std, rel=rel, abs=0), element
        assert (answer["min"][element], answer["max"][element]) == (min(column), max(column))


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "i8", "u8"])
def test_each_element_of_a_list_is_measured_as_a_column_of_its_own(kind):
    values = np.random.default_rng(1).integers(0, 100, (1000, 2, 3)).astype(kind)
    answer = measure(vectors(values), blocks=5)
    flat = values.reshape(1000, 6)
    assert answer.pop("shape") == [2, 3]
    assert set(answer) == set(KEYS)
    for element in range(6):
        alone = measure(pa.array(flat[:, element]), blocks=5)
        together = {key: answer[key][element] for key in KEYS}
        assert together == pytest.approx(alone, rel=1e-14)
        assert isinstance(together["max"], int) == (kind[0] != "f")


def test_a_small_range_far_from_zero_keeps_its_digits_in_float32():
    rng = np.random.default_rng(2)
    values = (1e4 + rng.random((20_000, 5)) * 1e-2).astype("f4")  # ten steps of a float32
    assert_close(measure(vectors(values), blocks=3), values, rel=1e-10)


@pytest.mark.parametrize("size", [1e-300, 1e-160, 1e-30, 1e150, 1e300])
def test_numbers_whose_squares_are_no_floats_have_a_deviation(size):
    values = np.random.default_rng(3).random((3000, 2)) * size
    assert_close(measure(vectors(values), blocks=4), values)
    values[:, 1] = size
    answer = measure(vectors(values), blocks=4)
    assert (answer["mean"][1], answer["std"][1]) == (size, 0.0)
    late = np.zeros((3000, 1))
    late[-1] = size
    assert_close(measure(vectors(late), blocks=4), late)


def test_elements_of_all_magnitudes_do_not_disturb_each_other():
    rng = np.random.default_rng(4)
    values = rng.standard_normal((5000, 9)) * 10.0 ** np.array([-300, -100, -12, 0, 3, 12, 100, 200, 300])
    values[:, 3] = 10.0 ** rng.uniform(-30, 30, 5000)  # and within one element
    finished = measure(vectors(values), blocks=7)
    for element, column in enumerate(values.T.tolist()):
        mean, std = exact(column)
        assert finished["mean"][element] == pytest.approx(mean, rel=1e-12, abs=1e-15 * std)
        assert finished["std"][element] == pytest.approx(std, rel=1e-12)


@given(st.integers(1, 40), st.integers(1, 7), st.integers(0, 2**32))
def test_nulls_nans_and_infinities_are_counted_by_element_and_left_out(rows, blocks, seed):
    rng = np.random.default_rng(seed)
    values = rng.choice([1.5, -2.25, 1e4, math.nan, math.inf, -math.inf], (rows, 3))
    mask = rng.random((rows, 3)) < 0.2
    answer = measure(vectors(values, mask), blocks)
    for element in range(3):
        alone = measure(pa.array(values[:, element], mask=mask[:, element]), blocks)
        together = {key: answer[key][element] for key in KEYS}
        assert [key for key in KEYS if together[key] is None] == [key for key in KEYS if alone[key] is None]
        known = {key: each for key, each in alone.items() if each is not None}
        assert {key: together[key] for key in known} == pytest.approx(known, rel=1e-12, abs=1e-12)


def test_a_null_list_is_a_null_of_each_element_whatever_lies_under_it():
    inner = pa.FixedSizeListArray.from_arrays(pa.array([1.0, 2.0, math.nan, 9e99, 5.0, 6.0, 7.0, 8.0]), 2)
    inner = pa.FixedSizeListArray.from_arrays(inner.values, 2, mask=pa.array([False, True, False, False]))
    array = pa.FixedSizeListArray.from_arrays(inner, 2, mask=pa.array([False, False]))
    answer = measure(array)
    assert answer["shape"] == [2, 2]
    assert (answer["nulls"], answer["nans"], answer["max"]) == ([0, 0, 1, 1], [0] * 4, [5.0, 6.0, 7.0, 8.0])
    assert measure(array.slice(1))["mean"] == [5.0, 6.0, 7.0, 8.0]


def test_one_row_is_its_own_mean():
    values = np.array([[0.1, -3e-300, 7.0]])
    answer = measure(vectors(values))
    assert (answer["mean"], answer["std"], answer["count"]) == (values[0].tolist(), [0.0] * 3, [1] * 3)


def test_an_element_without_a_finite_value_has_no_numbers_and_is_plain_json():
    answer = measure(vectors(np.array([[math.nan, 1.0, math.inf], [math.nan, 3.0, math.inf]])), blocks=2)
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer
    assert (answer["mean"], answer["min"], answer["count"]) == ([None, 2.0, None], [None, 1.0, None], [0, 2, 0])
    assert (answer["nans"], answer["infinities"]) == ([2, 0, 0], [0, 0, 2])


def test_a_block_of_any_whole_number_of_pieces_gives_the_same_state():
    values = np.random.default_rng(5).random((4096, 893)).astype("f4")
    fit = build_stage("statistics", ["x"]).fit()
    states = []
    for rows in (512, 1024, 4096):
        state = fit.start()
        for start in range(0, 4096, rows):
            state = fit.update(state, pa.record_batch({"x": vectors(values[start : start + rows])}))
        states.append(fit.pack(state))
    assert states[0] == states[1] == states[2]


def test_a_state_is_a_few_bytes_a_number_and_memory_a_few_pieces():
    block = pa.record_batch({"x": vectors(np.random.default_rng(6).random((8192, 893)).astype("f4"))})
    fit = build_stage("statistics", ["x"]).fit()
    tracemalloc.start()
    state = fit.pack(fit.update(fit.start(), block))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8e6
    assert len(json.dumps(state)) < 893 * 100
    assert sum(isinstance(each, list) for each in state["x"].values()) == 1  # the shape; all else is packed


def test_sums_that_overflow_are_refused_by_element():
    values = np.ones((100, 3))
    values[:, 1] = np.linspace(1e308, 1.5e308, 100)
    with pytest.raises(TaskError, match="element 1 of column 'x' are too large to measure"):
        measure(vectors(values))
    with pytest.raises(TaskError, match="values of column 'x' are too large to measure"):
        measure(pa.array(values[:, 1]))


def test_lists_of_any_length_and_lists_of_text_cannot_be_measured():
    schema = pa.schema([("ragged", pa.list_(pa.float32())), ("texts", pa.list_(pa.string(), 2))])
    for name in schema.names:
        with pytest.raises(ConfigError, match=f"column '{name}' is .*, not a number or a fixed-size list of numbers"):
            build_stage("statistics", [name]).output_schema(schema, None)
