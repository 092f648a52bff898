"""Normalize: mean 0 and deviation 1 by the training rows, for numbers and for each element of lists."""

from __future__ import annotations

import json
import math

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, PlanError, TaskError
from penstock.prepare.stages import build_stage
from penstock.prepare.stages.normalize import Scale
from tests.prepare.stages.rows import make_rows
from tests.prepare.stages.test_statistics import measure, vectors
from tests.promises import workshop


def bound(array: pa.Array, **options: object) -> Scale:
    """Normalize of column x, as measured on these very rows."""
    stage = build_stage("normalize", {"columns": ["x"], **options})
    fit = stage.fit()
    return stage.bind(fit.finish(fit.pack(fit.update(fit.start(), pa.record_batch({"x": array})))))


def scaled(array: pa.Array, **options: object) -> pa.Array:
    return bound(array, **options)(make_rows({"x": array})).batch["x"]


def numbers(array: pa.Array, shape: tuple[int, ...]) -> np.ndarray:
    for _ in shape:
        array = array.flatten()
    return array.to_numpy(zero_copy_only=False).reshape(-1, *shape)


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


def test_each_element_of_a_list_is_shifted_and_scaled_on_its_own():
    values = np.random.default_rng(0).random((5000, 2, 3)).astype("f4") * 10.0 ** np.arange(-3, 3).reshape(2, 3)
    values = values.astype("f4")
    answer = scaled(vectors(values))
    assert answer.type == pa.list_(pa.list_(pa.float32(), 3), 2)
    wide = values.astype("f8")
    expected = (wide - wide.mean(axis=0)) / wide.std(axis=0)
    assert np.abs(numbers(answer, (2, 3)) - expected).max() < 1e-6
    for element in np.ndindex(2, 3):
        column = pa.array(values[(slice(None), *element)])
        assert numbers(answer, (2, 3))[(slice(None), *element)].tolist() == scaled(column).to_pylist()


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
def test_the_type_is_the_one_that_is_asked_for(kind):
    array = vectors(np.arange(12, dtype="i4").reshape(4, 3))
    stage = build_stage("normalize", {"columns": ["x"], "type": kind})
    schema = stage.output_schema(pa.schema([("x", array.type), ("y", pa.int8())]), None)
    assert schema == pa.schema([("x", pa.list_(getattr(pa, kind)(), 3)), ("y", pa.int8())])
    answer = scaled(array, type=kind)
    assert answer.type == schema.field("x").type
    assert numbers(answer, (3,))[:, 0].tolist() == pytest.approx([-1.3416, -0.4472, 0.4472, 1.3416], rel=1e-3)


def test_field_names_inside_of_lists_are_kept():
    kind = pa.list_(pa.field("element", pa.float64(), nullable=False), 2)
    array = pa.array([[1.0, 2.0], [3.0, 4.0]], kind)
    expected = pa.list_(pa.field("element", pa.float32(), nullable=False), 2)
    assert scaled(array).type == expected
    stage = build_stage("normalize", ["x"])
    assert stage.output_schema(pa.schema([("x", kind)]), None).field("x").type == expected


def test_nulls_nans_and_infinities_stay_where_they_are():
    values = np.array([[1.0, math.nan, 5.0], [3.0, 1.0, math.inf], [9.0, 3.0, 7.0]])
    mask = np.array([[False] * 3, [False] * 3, [True, False, False]])
    elements = vectors(values, mask)
    rows = pa.FixedSizeListArray.from_arrays(
        vectors(np.concatenate([values, values[:1]]), np.concatenate([mask, mask[:1]])).values,
        3,
        mask=pa.array([False, False, False, True]),
    )
    expected = [[-1.0, math.nan, -1.0], [1.0, -1.0, math.inf], [None, 1.0, 1.0]]
    assert str(scaled(elements).to_pylist()) == str(expected)
    assert str(scaled(rows).to_pylist()) == str([*expected, None])
    assert str(scaled(rows.slice(1)).to_pylist()[-1]) == "None"


def test_a_null_list_inside_of_a_list_stays_null():
    kind = pa.list_(pa.list_(pa.float64(), 2), 2)
    array = pa.array([[[1.0, 2.0], None], [[3.0, 2.0], [5.0, 6.0]], None, [None, [7.0, 6.0]]], kind)
    expected = [[[-1.0, 0.0], None], [[1.0, 0.0], [-1.0, 0.0]], None, [None, [1.0, 0.0]]]
    assert scaled(array).to_pylist() == expected


def test_an_element_that_never_varies_becomes_zero():
    values = np.full((3000, 4), 0.1, "f4")
    values[:, 2] = 1e16
    values[:, 3] = np.arange(3000)
    answer = numbers(scaled(vectors(values)), (4,))
    assert not answer[:, :3].any()
    assert answer[:, 3].std() == pytest.approx(1, rel=1e-6)


@pytest.mark.parametrize(
    ("size", "mean"), [(1e-2, 1e4), (1e-300, 0.0), (1e-300, 1e-299), (1e300, 0.0)], ids=lambda value: f"{value:g}"
)
def test_what_comes_out_has_mean_0_and_deviation_1(size, mean):
    values = mean + np.random.default_rng(1).random((4000, 3)) * size
    answer = numbers(scaled(vectors(values), type="float64"), (3,))
    assert answer.mean(axis=0) == pytest.approx([0] * 3, abs=1e-9)
    assert answer.std(axis=0) == pytest.approx([1] * 3, rel=1e-9)


def test_skipped_elements_keep_their_value_and_skipped_columns_their_type():
    values = np.random.default_rng(2).random((100, 2, 5)) * 1000 + 1
    rows = {"x": vectors(values), "id": pa.array(np.arange(100.0))}
    stage = build_stage("normalize", {"skip": ["id", 1, "7:9"]})
    fit = stage.fit()
    artifact = fit.finish(fit.pack(fit.update(fit.start(), pa.record_batch(rows))))
    assert list(artifact) == ["x"]
    answer = stage.bind(artifact)(make_rows(rows)).batch
    assert answer.schema == stage.output_schema(pa.record_batch(rows).schema, None)
    assert answer["id"].equals(rows["id"])
    flat = numbers(answer["x"], (2, 5)).reshape(100, 10)
    skipped = np.isin(np.arange(10), [1, 7, 8])
    assert (flat[:, skipped] == values.reshape(100, 10)[:, skipped].astype("f4")).all()
    assert np.abs(flat[:, ~skipped].mean(axis=0)).max() < 1e-6


@pytest.mark.parametrize(("type_", "most"), [("float16", 2**11), ("float32", 2**24), ("float64", 2**53)])
def test_a_skipped_whole_number_keeps_its_value_or_is_refused(type_, most):
    kept = scaled(vectors(np.array([[most, 1], [-2 * most, 2]])), skip=[0], type=type_)
    assert numbers(kept, (2,))[:, 0].tolist() == [most, -2 * most]
    with pytest.raises(TaskError, match=f"{most + 1} in element 0 of column 'x' is skipped, and {type_} cannot hold"):
        scaled(vectors(np.array([[1, 1], [most + 1, 2]])), skip=[0], type=type_)


def test_skipped_elements_need_no_training_value():
    values = np.array([[math.nan, 1.0], [math.nan, 3.0]])
    assert str(scaled(vectors(values), skip=[0]).to_pylist()) == "[[nan, -1.0], [nan, 1.0]]"


def test_an_element_without_a_training_value_is_named():
    values = np.array([[1.0, math.nan, math.inf], [2.0, math.nan, 1.0]])
    with pytest.raises(PlanError, match="normalize: element 1 of column 'x' has no training value to measure"):
        scaled(vectors(values))


def test_no_training_row_at_all_is_no_training_value():
    for options in (["x"], {"method": "standard"}):
        stage = build_stage("normalize", options)
        fit = stage.fit()
        with pytest.raises(PlanError, match="column 'x' has no training value to measure"):
            stage.bind(fit.finish(fit.start()))(make_rows({"x": vectors(np.ones((2, 3)))}))


def test_a_finite_value_that_would_become_infinite_is_an_error():
    values = np.ones((4, 3))
    values[2, 1] = 70_000.0
    with pytest.raises(TaskError) as error:
        scaled(vectors(values), skip=["0:3"], type="float16")
    assert error.value.what == (
        "normalize: the value 70000.0 of element 1 of column 'x' becomes 70000, and float16 ends at 65504"
    )
    assert scaled(vectors(values), type="float16").type == pa.list_(pa.float16(), 3)
    far = bound(pa.array([0.0, 1e-30])).apply
    with pytest.raises(TaskError, match=r"the value 1e\+30 of column 'x' becomes 2e\+60, and float32 ends"):
        far("x", np.array([1e30]))
    assert far("x", np.array([math.inf, -math.inf])).tolist() == [math.inf, -math.inf]


@pytest.mark.parametrize("shape", [(), (1,), (4,), (2, 3), (893,)], ids=str)
@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i8", "u1"])
def test_arrays_outside_of_arrow_get_the_same_bytes_however_they_are_cut(shape, kind):
    values = (np.random.default_rng(3).random((1100, *shape)) * 100).astype(kind)
    if kind[0] == "f":
        values[3] = math.nan
        values[5] = math.inf
    array = vectors(values)
    scale = bound(array, skip=[0] if shape else [])
    expected = numbers(scale(make_rows({"x": array})).batch["x"], shape)
    for rows in (1, 7, 1100):
        parts = [scale.apply("x", values[start : start + rows]) for start in range(0, 1100, rows)]
        assert all(part.shape[1:] == shape and part.dtype == "f4" for part in parts)
        assert np.concatenate(parts).tobytes() == expected.tobytes()
    assert scale.apply("x", values[:0]).shape == (0, *shape)


def test_without_columns_all_floating_point_columns_are_normalized():
    rows = {
        "a": pa.array([1.0, 3.0], pa.float16()),
        "n": pa.array([1, 3]),
        "v": vectors(np.array([[1.0, 5.0], [3.0, 5.0]])),
        "masks": vectors(np.ones((2, 4), "i1")),
        "s": pa.array(["x", "y"]),
    }
    batch = pa.record_batch(rows)
    stage = build_stage("normalize", {})
    fit = stage.fit()
    assert stage.needs(frozenset({"a"})) is None
    artifact = fit.finish(fit.pack(fit.update(fit.start(), batch)))
    assert list(artifact) == ["a", "v"]
    answer = stage.bind(artifact)(make_rows(rows)).batch
    assert answer.schema == stage.output_schema(batch.schema, batch)
    assert answer["v"].to_pylist() == [[-1.0, 0.0], [1.0, 0.0]]
    assert [answer[name].equals(batch[name]) for name in rows] == [False, True, False, True, True]


def test_named_columns_are_needed_and_those_that_are_skipped_looked_for():
    stage = build_stage("normalize", {"columns": ["x"], "skip": ["id"]})
    assert stage.needs(frozenset({"y"})) == frozenset({"x", "y", "id"})
    assert stage.needs(None) is None
    with pytest.raises(ConfigError, match="there is no column 'id'"):
        stage.output_schema(pa.schema([("x", pa.float32())]), None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "robust"}, "method: 'robust' is not one of standard"),
        ({"type": "int8"}, "type: 'int8' is not one of float32"),
        ({"skip": ["5:5"]}, "skip: '5:5' holds no element"),
        ({"skip": [-1]}, "skip: -1 holds no element"),
        ({"skip": 3}, "skip: .*got 3"),
        ({"skip": [6]}, "skip: 6 is outside of column 'short', whose elements are 0 to 5"),
        ({"skip": ["4:11"]}, "skip: '4:11' is outside of column 'long', whose elements are 0 to 9"),
        ({"columns": ["a"], "skip": [0]}, "skip: 0 names elements of a list, but no column to normalize is a list"),
        ({"skip": ["a", "long", "short"]}, "no floating-point column is left to normalize. Columns: a, long, short"),
        (None, "no columns are named"),
    ],
)
def test_options_that_mean_nothing_are_refused_with_the_numbers(options, message):
    types = {"a": pa.float32(), "long": pa.list_(pa.float32(), 10), "short": pa.list_(pa.list_(pa.float32(), 3), 2)}
    with pytest.raises(ConfigError, match=message):
        build_stage("normalize", options).output_schema(pa.schema(types), None)


def test_a_job_measures_training_rows_alone_and_gives_the_same_bytes_in_any_batches(tmp_path):
    rng = np.random.default_rng(7)
    values = (1e4 + rng.random((3000, 6)) * 1e-2).astype("f4")
    table = pa.table({"k": np.arange(3000), "x": vectors(values)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=400)
    stages = [{"split": {"by": "k", "test": 0.3}}, {"normalize": {"skip": [2]}}]
    job = workshop.write_job(tmp_path / "job.yaml", tmp_path / "a.parquet", stages=stages, workers=0, slice_size="20kB")
    seen = []
    for batch_bytes in (1 << 20, 300):
        penstock.run(workshop.with_batches(penstock.plan(job), batch_bytes), redo=True)
        seen.append(workshop.bytes_of(tmp_path / "out"))
    assert seen[0] == seen[1]
    train = penstock.open(tmp_path / "out")[:]
    keys = np.array([row["k"] for row in train.to_pylist()])
    kept = values[keys].astype("f8")
    artifact = json.loads((tmp_path / "out" / "artifacts" / "normalize.json").read_text())["x"]
    assert (artifact["shape"], artifact["count"]) == ([6], [len(keys)] * 6)
    assert artifact["mean"] == pytest.approx(kept.mean(axis=0).tolist(), rel=1e-14)
    assert artifact["std"] == pytest.approx(kept.std(axis=0).tolist(), rel=1e-9)
    answer = np.array([row["x"] for row in train.to_pylist()], "f4")
    assert (answer[:, 2] == values[keys][:, 2]).all()
    others = np.delete(answer, 2, axis=1)
    assert others.std(axis=0) == pytest.approx([1] * 5, abs=1e-5)
