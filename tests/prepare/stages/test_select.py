"""Select: these columns, in this order, under these names."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import make_rows

ROWS = make_rows({"a": [1, 2], "b": ["x", "y"], "c": [0.5, 1.5]})


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["c", "a"], {"c": [0.5, 1.5], "a": [1, 2]}),
        ("b", {"b": ["x", "y"]}),
        ({"new": "a", "b": "b"}, {"new": [1, 2], "b": ["x", "y"]}),
        ({"a": "b", "b": "a"}, {"a": ["x", "y"], "b": [1, 2]}),
        ({"one": "a", "two": "a"}, {"one": [1, 2], "two": [1, 2]}),
    ],
)
def test_columns_are_chosen_ordered_and_renamed(written, expected):
    stage = build_stage("select", written)
    assert list(stage(ROWS).batch.to_pydict().items()) == list(expected.items())
    assert stage.output_schema(ROWS.batch.schema, ROWS.batch) == stage(ROWS).batch.schema
    assert stage(ROWS).ordinals is ROWS.ordinals


def test_a_column_that_is_not_there_is_named_with_a_close_one():
    stage = build_stage("select", ["rtt", "colunm"])
    schema = pa.schema([("rtt", pa.int64()), ("column", pa.int64())])
    with pytest.raises(ConfigError, match=r"there is no column 'colunm'. Columns: rtt, column. Did you mean 'column'"):
        stage.output_schema(schema, None)


@pytest.mark.parametrize("written", [None, {}, [], 5, {"a": 5}, ["a", "b", "a"]])
def test_what_is_not_a_choice_of_columns_is_refused(written):
    with pytest.raises(ConfigError):
        build_stage("select", written)


def test_columns_that_are_not_chosen_are_not_read():
    stage = build_stage("select", {"new": "a"})
    assert stage.needs(None) == stage.needs(frozenset({"new"})) == frozenset({"a"})


DEVICES = pa.struct({"os": pa.struct({"name": pa.string(), "build.no": pa.int32()}), "cpu": pa.int8()})
NESTED = make_rows(
    {
        "device": pa.array(
            [{"os": {"name": "a", "build.no": 1}, "cpu": 4}, None, {"os": None, "cpu": 8}, {"os": {"name": None}}],
            DEVICES,
        ),
        "device.cpu": [1, 2, 3, 4],
        "tags": pa.array([[{"k": "v"}]] * 4, pa.list_(pa.struct({"k": pa.string()}))),
    }
)


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ({"os": "device.os.name"}, {"os": ["a", None, None, None]}),
        ({"n": "device.os.build.no"}, {"n": [1, None, None, None]}),
        (["device.os.name"], {"device.os.name": ["a", None, None, None]}),
        ({"cpu": "device.cpu"}, {"cpu": [1, 2, 3, 4]}),  # a column of that very name comes first
    ],
)
def test_a_field_of_a_struct_is_a_column(written, expected):
    stage = build_stage("select", written)
    assert stage(NESTED).batch.to_pydict() == expected
    assert stage.output_schema(NESTED.batch.schema, NESTED.batch) == stage(NESTED).batch.schema


def test_a_field_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(ConfigError, match=r"there is no column 'device.gpu'") as caught:
        build_stage("select", ["device.gpu"]).output_schema(NESTED.batch.schema, None)
    assert caught.value.next_step == "its fields are: os, cpu"
    with pytest.raises(ConfigError, match=r"'tags' is list<.*>, and only structs have fields"):
        build_stage("select", ["tags.k"]).output_schema(NESTED.batch.schema, None)


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl"])
def test_a_job_selects_fields_of_structs_from_every_format(tmp_path, ending):
    table = pa.table({"device": NESTED.batch.column("device"), "id": [1, 2, 3, 4]})
    file = tmp_path / f"rows.{ending}"
    if ending == "parquet":
        pq.write_table(table, file)
    elif ending == "arrow":
        with pa.OSFile(str(file), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))
    stages = [{"select": {"os": "device.os.name", "id": "id"}}, {"filter": "os is not null"}]
    penstock.run({"input": str(file), "output": str(tmp_path / "out"), "workers": 0, "stages": stages})
    assert penstock.open(tmp_path / "out")[:].to_pydict() == {"os": ["a"], "id": [1]}
