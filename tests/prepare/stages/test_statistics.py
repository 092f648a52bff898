"""Statistics and normalize: the numbers a patient person would get, whatever blocks they came in."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError, PlanError
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
        states[side] = fit.update(json.loads(json.dumps(states[side])), block)
    return fit.finish(fit.merge(*json.loads(json.dumps(states))))["x"]


def exact(values: list[float]) -> tuple[float, float]:
    """Mean and standard deviation in fractions: no rounding until the end."""
    numbers = [Fraction(value) for value in values]
    mean = sum(numbers) / len(numbers)
    return float(mean), math.sqrt(sum((number - mean) ** 2 for number in numbers) / len(numbers))


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


@pytest.mark.parametrize(
    "array",
    [
        pa.array([1.0, None, math.nan, 3.0, math.inf]),
        pa.array([1, None, 3], pa.int16()),
        pa.array([1, None, 3], pa.uint64()),
        pa.array(np.array([1, 3], "f2")),
        pa.array([9, 1.0, None, 3.0], pa.float32()).slice(1),
    ],
    ids=lambda array: str(array.type),
)
def test_normalize_shifts_and_scales_to_float32(array):
    artifact = {"x": measure(array, name="normalize")}
    stage = build_stage("normalize", ["x"])
    rows = make_rows({"x": array, "y": ["kept"] * len(array)})
    answer = stage.bind(artifact)(rows)
    assert answer.batch.schema == stage.output_schema(rows.batch.schema, rows.batch)
    expected = [None if value is None else (value - 2) / 1 for value in array.to_pylist()]
    assert str(answer.batch["x"]) == str(pa.array(expected, pa.float32()))
    assert answer.batch["y"].to_pylist() == ["kept"] * len(array)


def test_a_column_that_never_varies_becomes_zero():
    array = pa.array([0.1] * 10)
    answer = build_stage("normalize", ["x"]).bind({"x": measure(array)})(make_rows({"x": array}))
    assert answer.batch["x"].to_pylist() == [0.0] * 10


def test_a_column_without_a_training_value_cannot_be_normalized():
    array = pa.array([None, math.nan], pa.float64())
    with pytest.raises(PlanError, match="column 'x' has no training value to measure"):
        build_stage("normalize", ["x"]).bind({"x": measure(array)})(make_rows({"x": array}))
