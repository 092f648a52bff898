"""Cast: every value stays what it was in another type, or its row is bad input that is named."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, InputError
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import checked_stage, make_rows

NAN, INF = float("nan"), float("inf")
MIDNIGHT = datetime(2020, 1, 1)


@pytest.mark.parametrize(
    ("given", "kind", "kept", "lossy"),
    [
        (pa.array([0.5, 0.1, NAN, INF, None, 1e39, -0.0]), "float32", [0.5, NAN, INF, None, -0.0], {1: 0.1}),
        (pa.array([2**24, 2**24 + 1, 2**30, None]), "float32", [2.0**24, 2.0**30, None], {1: 2.0**24}),
        (pa.array([2**53 + 1, 2**63 - 1, -(2**63)]), "float64", [-(2.0**63)], {0: 2.0**53, 1: 2.0**63}),
        (pa.array([0.5, 0.1, 65504.0, 70000.0]), "float16", [0.5, 65504.0], {1: float(np.float16(0.1))}),
        (pa.array([1, 300, -128, None]), "int8", [1, -128, None], {}),
        (pa.array([-1, 2**63 - 1]), "uint64", [2**63 - 1], {}),
        (pa.array([2**63, 5], pa.uint64()), "int64", [5], {}),
        (pa.array([1.0, 1.5, -0.0, NAN, INF, 1e19]), "int64", [1, 0], {1: 1}),
        (pa.array([1, 0, 300]), "bool", [True, False], {}),
        (pa.array([1.0, 0.0, NAN, 0.5, None]), "bool", [True, False, None], {}),
        (pa.array([True, None]), "int8", [1, None], {}),
        (pa.array([0, 1, 1000], pa.timestamp("ns")), "timestamp[us]", [0, 1], {1: 0}),
        (pa.array([0, 2**62], pa.timestamp("s")), "timestamp[ns]", [0], {}),
        (pa.array([MIDNIGHT], pa.timestamp("us", "UTC")), "timestamp[us]", [MIDNIGHT], {}),
        (pa.array([Decimal("1.50"), Decimal("1.25")]), "decimal128(5, 1)", [Decimal("1.5")], {1: Decimal("1.2")}),
        (pa.array([Decimal("0.10"), None]), "float64", [0.1, None], {}),
        (pa.array(["1", "007", "x", "", "9223372036854775808", None]), "int64", [1, 7, None], {}),
        (pa.array(["0x1f", "31"]), "int64", [31], {}),
        (pa.array(["0.1", "11400714819323198487", "1e400", "nan"]), "float64", [0.1, NAN], {1: 11400714819323198487.0}),
        (pa.array(["0.1", "0.123456789012", "1e39"]), "float32", [0.1], {1: 0.123456789012}),
        (pa.array(["a", None], pa.large_string()), "string", ["a", None], {}),
        (pa.array([b"a", b"\xff"]), "string", ["a"], {}),
        (pa.array(["a", "b", "a"]), "dictionary<string>", ["a", "b", "a"], {}),
        (pa.array([5, 6, 5]).dictionary_encode(), "int32", [5, 6, 5], {}),
        (pa.array([None, None]), "string", [None, None], {}),
        (pa.array([[0.5], [0.1, 0.5], [], None, [1e39]]), "list<float32>", [[0.5], [], None], {1: [0.1, 0.5]}),
        (pa.array([[1, 2], [1, 300]], pa.list_(pa.int64(), 2)), "int8[2]", [[1, 2]], {}),
        (pa.array([[1, 2], None], pa.list_(pa.int64())), "large_list<int64>", [[1, 2], None], {}),
        (pa.array([[1.5, 2.0], [1.0], None, [], [NAN]]), "list<int8>", [[1], None, []], {0: [1, 2]}),
        (pa.array([[1.5, 2.0], [1.0, 300.0], None], pa.list_(pa.float64(), 2)), "int8[2]", [None], {0: [1, 2]}),
        (pa.array([[1, 2], [3], None, [1, 300]]), "int8[2]", [[1, 2], None], {}),
        (pa.array([["1", "0x1"], ["2", None], []]), "list<int8>", [[2, None], []], {}),
        (
            pa.array([[Decimal("1.50")], [Decimal("1.25")]]),
            "list<decimal128(5, 1)>",
            [[Decimal("1.5")]],
            {1: [Decimal("1.2")]},
        ),
        (pa.array([0.1, 1.0]), "string", ["0.1", "1"], {}),
        (pa.array([19723, None], pa.date32()), "timestamp[s]", [datetime(2024, 1, 1), None], {}),
    ],
)
def test_a_value_stays_what_it_was_or_its_row_is_bad_input(given, kind, kept, lossy):
    rows = make_rows({"x": given, "id": range(len(given))})
    answer = checked_stage("cast", {"x": kind}, rows)(rows)
    wanted = checked_stage("cast", {"x": kind}, rows).output_schema(rows.batch.schema, rows.batch)
    assert answer.batch.schema == wanted
    assert values_of(answer.batch["x"]) == values_of(pa.array(kept, wanted.field("x").type))
    assert sum(each.count for each in answer.set_aside) == len(given) - len(kept)
    rounded = checked_stage("cast", {"columns": {"x": kind}, "lossy": True}, rows)(rows)
    expected = [kept[answer.ordinals.tolist().index(i)] if i in answer.ordinals else lossy[i] for i in rounded.ordinals]
    assert set(rounded.ordinals) == {*answer.ordinals.tolist(), *lossy}
    assert values_of(rounded.batch["x"]) == values_of(pa.array(expected, wanted.field("x").type))


def values_of(array: pa.Array) -> str:
    if pa.types.is_timestamp(array.type):
        array = array.view(pa.int64())
    return repr(array.to_pylist())


def test_what_is_rejected_says_column_value_and_types():
    rows = make_rows({"x": pa.array([1, 300])}, "a.parquet")
    (aside,) = checked_stage("cast", {"x": "int8"}, rows)(rows).set_aside
    assert aside.kept[0]["position"] == 1
    assert aside.kept[0]["detail"] == "column 'x' has 300 of int64, and int8 has no such value"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"x": "float33"}, "'float33' is not a type"),
        ({"x": "struct<a>"}, "is not a type"),
        ({}, "name a column and its type"),
        (None, "name a column and its type"),
        (["x"], "expected options as a mapping"),
        ({"columns": {"x": "int8"}, "losy": True}, "unknown option 'losy'. Options: columns, lossy"),
    ],
)
def test_what_is_no_cast_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("cast", written)
    assert message in caught.value.what


def test_types_that_do_not_become_each_other_are_refused_before_a_row_is_read():
    rows = make_rows({"x": pa.array([{"a": 1}])})
    with pytest.raises(ConfigError, match="column 'x' is struct<a: int64>, which cannot be cast to int8"):
        checked_stage("cast", {"x": "int8"}, rows)
    with pytest.raises(ConfigError, match="there is no column 'y'"):
        checked_stage("cast", {"y": "int8"}, rows)


@pytest.mark.parametrize(("value", "rounds"), [(1.5, True), (300.0, False), (300.5, False), (NAN, False)])
def test_rounding_is_advised_where_it_helps(value, rounds):
    rows = make_rows({"x": pa.array([1.0, value, 1.5])})
    (aside,) = checked_stage("cast", {"x": "int8"}, rows)(rows).set_aside
    assert ("lossy: true" in aside.advice) == rounds


def test_a_bad_value_stops_the_job_by_file_row_and_value_or_is_kept_in_rejected(tmp_path):
    pq.write_table(pa.table({"k": ["a", "b", "c"], "x": [0.5, 0.1, 2.0]}), tmp_path / "in.parquet")
    job = {"input": str(tmp_path / "in.parquet"), "workers": 0, "stages": [{"cast": {"x": "float32"}}]}
    with pytest.raises(InputError, match=r"column 'x' has 0.1 of double, and float has no such value") as caught:
        penstock.run({**job, "output": str(tmp_path / "a")})
    assert caught.value.where == "in.parquet, row 1"
    assert "lossy: true" in str(caught.value.next_step)
    penstock.run({**job, "output": str(tmp_path / "b"), "on_bad_input": "set_aside"})
    assert penstock.open(tmp_path / "b")[:]["x"].to_pylist() == [0.5, 2.0]
    (line,) = map(json.loads, (tmp_path / "b" / "rejected" / "00000.jsonl").read_text().splitlines())
    assert (line["file"], line["position"], line["row"]) == ("in.parquet", 1, {"k": "b", "x": 0.1})
    step = json.loads((tmp_path / "b" / "manifest.json").read_text())["account"][2]
    assert step["set_aside"] == {"value does not fit the type it is cast to": 1}


def test_lists_that_group_made_are_cast_too(tmp_path):
    pq.write_table(pa.table({"k": ["a", "b", "a"], "x": [0.5, 0.1, 2.0]}), tmp_path / "in.parquet")
    stages = [{"group": {"by": "k"}}, {"cast": {"x": "list<float32>"}}]
    job = {"input": str(tmp_path / "in.parquet"), "workers": 0, "stages": stages}
    with pytest.raises(InputError, match=r"column 'x' has \[0.1\] of list<.*double>"):
        penstock.run({**job, "output": str(tmp_path / "a")})
    penstock.run({**job, "output": str(tmp_path / "b"), "on_bad_input": "set_aside"})
    assert penstock.open(tmp_path / "b")[:].to_pydict() == {"k": ["a"], "x": [[0.5, 2.0]]}
