"""Select: these columns, in this order, under these names."""

from __future__ import annotations

import pyarrow as pa
import pytest

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
