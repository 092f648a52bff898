"""Values of columns become JSON alike, one by one and at once."""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.prepare.rows.jsonable import jsonable, jsonable_values

INTS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.bool_(): st.booleans(),
    pa.float16(): st.sampled_from([np.float16(0.5), np.float16("nan")]),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): st.text(st.characters(exclude_categories=["Cs"])),
    pa.large_string(): st.just("é"),
    pa.binary(): st.binary(),
    pa.decimal128(6, 2): st.just(decimal.Decimal("12.50")),
    **{pa.timestamp(unit): INTS for unit in ("s", "ms", "us", "ns")},
    pa.timestamp("us", "Europe/Vienna"): INTS,
    pa.duration("ms"): INTS,
    pa.date32(): st.integers(-(2**20), 2**20),
    pa.time32("s"): st.integers(0, 86399),
    pa.list_(pa.float64()): st.lists(st.none() | st.floats(), max_size=3),
    pa.large_list(pa.list_(pa.timestamp("s"))): st.lists(st.none() | st.lists(st.just(5), max_size=2), max_size=3),
    pa.list_(pa.int8(), 2): st.just([1, None]),
    pa.struct([("a", pa.int8())]): st.just({"a": 1}),
    pa.map_(pa.string(), pa.int8()): st.just([("a", 1)]),
    pa.dictionary(pa.int32(), pa.string()): st.sampled_from("ab"),
    pa.null(): st.none(),
}


@pytest.mark.parametrize("kind", VALUES, ids=str)
@given(data=st.data())
def test_some_rows_of_a_column_are_what_each_value_is_by_itself(kind: pa.DataType, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.none() | VALUES[kind], max_size=6))
    array = pa.array(values, kind)
    for column in (array, pa.concat_arrays([pa.nulls(2, kind), array])[1:] if len(array) else array):
        rows = np.array(
            data.draw(st.lists(st.sampled_from(range(len(column))), max_size=6) if len(column) else st.just([])), "i8"
        )
        expected = [jsonable(column[row]) for row in rows.tolist()]
        assert repr(jsonable_values(column, rows)) == repr(expected)


@pytest.mark.parametrize(
    ("value", "kind", "as_json"),
    [
        (math.nan, pa.float32(), "nan"),
        (-math.inf, pa.float64(), "-inf"),
        (datetime.datetime(2026, 1, 2, 3), pa.timestamp("us"), "2026-01-02T03:00:00.000000"),
        (b"a\xff", pa.binary(), "a\\xff"),
        (1500, pa.duration("ms"), "1500 ms"),
        ([0.5, math.nan, None], pa.list_(pa.float64()), [0.5, "nan", None]),
        (None, pa.int8(), None),
    ],
)
def test_values_that_json_has_no_form_for_are_texts(value: Any, kind: pa.DataType, as_json: Any) -> None:
    array = pa.array([value], kind)
    assert jsonable_values(array, np.array([0])) == [jsonable(array[0])] == [as_json]
