"""Bins: edges that depend on the values alone, and exact counts, whatever blocks, tasks and order they come in."""

from __future__ import annotations

import io
import json
import math
import re
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import penstock
from penstock.base.errors import ConfigError
from penstock.prepare.stages import build_stage, statistics
from penstock.prepare.stages.fitting.quantiles import CELLS_PER_BIN, keys_of, values_of
from penstock.show.contents.inspect import inspect_facts
from penstock.show.contents.inspect_tables import inspect_tables
from tests.loader.making import prepare
from tests.prepare.stages.rows import make_rows

NUMBERS = st.floats() | st.floats(-3, 3) | st.sampled_from([0.0, -0.0, 1.0]) | st.none()


def fitted(parts: list[pa.Array], count: int) -> dict[str, Any]:
    """The artifact of a column; each part is a task, in blocks of seven rows."""
    fit = build_stage("bins", {"x": count}).fit()
    state = fit.pack(fit.start())
    for part in parts:
        own = fit.start()
        for start in range(0, len(part), 7):
            own = fit.update(own, pa.RecordBatch.from_arrays([part.slice(start, 7)], names=["x"]))
        state = fit.merge(state, json.loads(json.dumps(fit.pack(own))))
    return fit.finish(state)["x"]


def in_bins(values: np.ndarray, edges: list[float]) -> list[int]:
    places = np.searchsorted(edges[:-1], values, side="right") - 1
    return np.bincount(places, minlength=len(edges) - 1).tolist()


@given(st.lists(NUMBERS, max_size=300), st.integers(2, 5), st.randoms())
def test_edges_depend_on_the_values_alone(values, count, random):
    whole = fitted([pa.array(values, pa.float64())], count)
    random.shuffle(values)
    cuts = sorted(random.randrange(len(values) + 1) for _ in range(3))
    parts = [values[low:high] for low, high in zip([0, *cuts], [*cuts, len(values)], strict=True)]
    assert fitted([pa.array(part, pa.float64()) for part in parts], count) == whole


@given(st.lists(NUMBERS, max_size=200), st.integers(2, 40))
def test_every_bin_says_exactly_how_many_values_it_has(values, count):
    answer = fitted([pa.array(values, pa.float64())], count)
    finite = np.array([value for value in values if value is not None and math.isfinite(value)])
    assert answer["count"] == len(finite) == sum(answer["counts"])
    assert answer["nulls"] == values.count(None)
    assert answer["nans"] + answer["infinities"] == len(values) - len(finite) - answer["nulls"]
    if not len(finite):
        assert (answer["bins"], answer["edges"]) == (0, [])
        return
    assert answer["bins"] == len(answer["counts"]) == len(answer["edges"]) - 1 <= count
    assert 0 not in answer["counts"]
    assert (answer["edges"][0], answer["edges"][-1]) == (finite.min(), finite.max())
    assert in_bins(finite, answer["edges"]) == answer["counts"]


def test_few_different_values_are_fitted_exactly():
    values = np.random.default_rng(1).permutation(np.repeat(np.arange(100.0), 10))
    answer = fitted([pa.array(values)], 10)
    assert answer["edges"] == [*(10.0 * each for each in range(10)), 99.0]
    assert answer["counts"] == [100] * 10


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(2).lognormal(3, 2, 200_000),
        np.random.default_rng(3).normal(0, 1, 200_000),
        293 + np.random.default_rng(4).random(200_000),
        1.7e9 + np.random.default_rng(5).random(200_000) * 1000,
        -np.random.default_rng(6).gamma(2, 20, 200_000),
    ],
    ids=["lognormal", "normal", "narrow", "times", "negative"],
)
def test_shares_of_many_different_values_are_nearly_equal(values):
    fit = build_stage("bins", {"x": 256}).fit()
    state = fit.start()
    for start in range(0, len(values), 10_000):
        state = fit.update(state, pa.RecordBatch.from_arrays([pa.array(values[start : start + 10_000])], names=["x"]))
    answer = fit.finish(fit.pack(state))["x"]
    assert answer["bins"] == 256
    assert in_bins(values, answer["edges"]) == answer["counts"]
    assert max(abs(count / len(values) - 1 / 256) for count in answer["counts"]) < 0.25 / 256


def test_a_value_that_many_rows_have_is_one_bin_and_the_artifact_says_how_many_there_are():
    values = np.concatenate([np.zeros(9000), np.arange(1000.0) + 1])
    answer = fitted([pa.array(values)], 20)
    assert (answer["asked"], answer["bins"], answer["counts"][0]) == (20, 3, 9000)
    assert fitted([pa.array([5.0] * 9)], 4)["edges"] == [5.0, 5.0]


def test_a_state_has_a_bounded_number_of_cells():
    fit = build_stage("bins", {"x": 8}).fit()
    bits = np.random.default_rng(7).integers(0, 2**64, 100_000, dtype="u8")
    values = bits.view("f8")
    state = fit.pack(fit.update(fit.start(), pa.RecordBatch.from_arrays([pa.array(values)], names=["x"])))
    assert len(json.dumps(state)) < build_stage("bins", {"x": 8}).state_bytes(10**9) + 300
    edges = fit.finish(state)["x"]["edges"]
    assert in_bins(values[np.isfinite(values)], edges) == fit.finish(state)["x"]["counts"]
    assert len(edges) - 1 <= CELLS_PER_BIN * 8


@given(st.lists(st.floats(allow_nan=False), min_size=1))
def test_keys_keep_the_order_and_come_back(values):
    array = np.array(values) + 0.0
    assert values_of(keys_of(array)).tobytes() == array.tobytes()
    assert (np.argsort(keys_of(array), kind="stable") == np.argsort(array, kind="stable")).all()


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32()], ids=str)
def test_every_numeric_type_is_fitted(kind):
    array = pa.array(np.array([1, 2, 3, 4]), pa.int64()).cast(kind)
    assert fitted([array], 2)["edges"] == [1.0, 3.0, 4.0]


def test_the_values_of_lists_are_fitted_as_if_they_were_rows():
    lists = pa.array([[1.0, None], None, [], [2.0, 3.0, 4.0]])
    answer = fitted([lists], 2)
    assert (answer["edges"], answer["counts"], answer["nulls"]) == ([1.0, 3.0, 4.0], [2, 2], 1)


@pytest.mark.parametrize("written", [None, {}, {"x": 1}, {"x": 4097}, {"x": "many"}, ["x"], {"columns": {}}])
def test_impossible_options_are_refused(written):
    with pytest.raises(ConfigError):
        build_stage("bins", written)


def test_only_numbers_can_be_fitted():
    schema = pa.schema([("s", pa.list_(pa.string())), ("b", pa.bool_())])
    for column, message in (("s", "column 's' is list"), ("b", "column 'b' is bool"), ("z", "there is no column 'z'")):
        with pytest.raises(ConfigError, match=message):
            build_stage("bins", {column: 4}).output_schema(schema, None)


def test_rows_pass_unchanged():
    rows = make_rows({"x": [1.0]})
    assert build_stage("bins", {"x": 4})(rows) is rows


VISITS = pa.table(
    {
        "user": pa.array(np.arange(4000) % 37),
        "at": pa.array(np.arange(4000), pa.timestamp("s")),
        "seconds": pa.array(np.random.default_rng(8).normal(0, 50, 4000), mask=np.arange(4000) % 50 == 0),
    }
)
GROUP: dict[str, Any] = {"group": {"by": "user", "order": "at"}}


@pytest.mark.parametrize("stages", [[{"bins": {"seconds": 16}}, GROUP], [GROUP, {"bins": {"seconds": 16}}]])
def test_a_job_leaves_the_edges_of_its_rows(tmp_path, stages):
    output = prepare(tmp_path, VISITS, stages)
    artifact = json.loads((output / "artifacts/bins.json").read_text())["seconds"]
    assert artifact == fitted([VISITS["seconds"].combine_chunks()], 16)


def test_the_edges_are_the_same_for_any_memory_and_workers(tmp_path):
    stages = [GROUP, {"split": {"test": 0.2, "by": "user"}}, {"bins": {"seconds": 16}}]
    outputs = [
        prepare(tmp_path / str(number), VISITS, stages, **keys)
        for number, keys in enumerate([{}, {"workers": 2}, {"slice_size": "4kB"}])
    ]
    first, *others = ((output / "artifacts/bins.json").read_bytes() for output in outputs)
    assert all(other == first for other in others)


def test_inspect_shows_how_many_bins_a_column_has(tmp_path):
    table = VISITS.append_column("errors", pa.array(np.zeros(4000, "i4")))
    output = prepare(tmp_path, table, [{"bins": {"seconds": 16, "errors": 8}}, GROUP])
    facts = inspect_facts(output)
    assert {name: (each["asked"], each["bins"]) for name, each in facts["bins"].items()} == {
        "seconds": (16, 16),
        "errors": (8, 1),
    }
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(*inspect_tables(facts), sep="\n")
    shown = next(line for line in console.export_text().splitlines() if line.strip().startswith("errors  "))
    assert shown.split() == ["errors", "8", "1", "100.0%", "100.0%", "0", "0"]


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(2, "seconds", pc.multiply(batch["seconds"], 2.0))


class Unknown(penstock.Stage):
    def __call__(self, rows: penstock.Rows) -> penstock.Rows:
        return rows


class Statistics(statistics.Statistics):
    """Of a user: what it does to rows is not known."""


@pytest.mark.parametrize(
    ("changing", "name"),
    [
        ({"select": {"user": "user", "at": "at", "seconds": "user"}}, "select"),
        ({"normalize": ["seconds"]}, "normalize"),
        ({"cast": {"columns": {"seconds": "float32"}, "lossy": True}}, "cast"),
        ({"filter": "seconds > 0"}, "filter"),
        ({"dedup": {"column": "name"}}, "dedup"),
        ({"split": {"test": 0.1}}, "split"),
        ({"split": {"test": 10}}, "split"),
        (doubled, ".*doubled"),
        ({f"{__name__}:Unknown": {}}, ".*Unknown"),
        ({f"{__name__}:Statistics": {"columns": ["seconds"]}}, ".*Statistics"),
    ],
)
def test_bins_before_a_stage_that_may_change_values_or_rows_are_refused(tmp_path, changing, name):
    table = VISITS.append_column("name", pa.array([f"{number}" for number in range(4000)]))
    stages = [{"bins": {"seconds": 16}}, {"statistics": ["seconds"]}, changing]
    with pytest.raises(ConfigError, match=rf"stages\[0\]\.bins: .*, but comes before stages\[2\]\.{name}") as caught:
        prepare(tmp_path / "before", table, stages)
    assert re.fullmatch(rf"move `bins` after stages\[2\]\.{name}", caught.value.next_step)
    output = prepare(tmp_path / "behind", table, [*stages[1:][::-1], stages[0]])
    assert json.loads((output / "artifacts/bins.json").read_text())["seconds"]["bins"] == 16


def test_the_last_stage_that_may_change_something_is_the_one_to_move_bins_behind(tmp_path):
    stages = [{"bins": {"seconds": 16}}, {"filter": "seconds > 0"}, GROUP, {"filter": "user > 2"}]
    with pytest.raises(ConfigError, match=r"stages\[3\]\.filter"):
        prepare(tmp_path, VISITS, stages)


def test_other_measuring_stages_may_follow(tmp_path):
    stages = [{"bins": {"seconds": 16}}, {"statistics": ["seconds"]}, {"bins": {"user": 4}}, GROUP]
    output = prepare(tmp_path, VISITS, stages)
    loader = penstock.load(output, batch_size=4, length=200, fields={"at": "time", "seconds": "bins"}, workers=0)
    loader.batch(0)
    assert not loader.stats().counts["values_too_small"] + loader.stats().counts["values_too_large"]


def test_bins_of_packed_documents_are_refused_because_nothing_uses_them(tmp_path):
    table = pa.table({"tokens": pa.array([[1, 2, 3]] * 50, pa.list_(pa.uint16())), "score": np.arange(50.0)})
    with pytest.raises(ConfigError, match="for fields of events, but pack makes rows of tokens"):
        prepare(tmp_path, table, [{"bins": {"score": 4}}, {"pack": 16}])


def test_bins_of_a_column_twice_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="column 'seconds' has bins of an earlier `bins` already"):
        prepare(tmp_path, VISITS, [{"bins": {"seconds": 16}}, GROUP, {"bins": {"seconds": 8}}])
