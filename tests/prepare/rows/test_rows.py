"""Rows: what is set aside is kept as a line that says the same with every library's version."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from penstock.prepare.rows.rows import Rows


def rejected(array: pa.Array):
    rows = Rows(pa.RecordBatch.from_arrays([array], names=["x"]), 2, ("a.parquet",), np.arange(5, 5 + len(array)))
    aside = rows.keep(np.zeros(len(array), bool), "why", keep_rejected=True).set_aside[0]
    assert (aside.count, aside.reason) == (len(array), "why")
    assert [(line["source"], line["file"], line["position"]) for line in aside.kept] == [
        (2, "a.parquet", 5 + row) for row in range(len(array))
    ]
    return [json.loads(json.dumps(line["row"]["x"], allow_nan=False)) for line in aside.kept]


@pytest.mark.parametrize(
    ("array", "texts"),
    [
        (pa.array([1, None]), [1, None]),
        (pa.array([0.5, float("nan"), float("inf")]), [0.5, "nan", "inf"]),
        (pa.array(["é", None]), ["é", None]),
        (pa.array([b"a\xff"]), ["a\\xff"]),
        (pa.array([True, None]), [True, None]),
        (pa.array([Decimal("1.50")]), ["1.50"]),
        (pa.array([[1, 2], None, []]), [[1, 2], None, []]),
        (pa.array([[0.5, 1.5]], pa.list_(pa.float32(), 2)), [[0.5, 1.5]]),
        (pa.array(["k", None]).dictionary_encode(), ["k", None]),
        (pa.array([date(2020, 1, 2), None]), ["2020-01-02", None]),
        (pa.array([10**7], pa.date32()), ["29349-01-26"]),
        (pa.array([date(2020, 1, 2)], pa.date64()), ["2020-01-02"]),
        (pa.array([datetime(2020, 1, 2, 3)], pa.timestamp("s")), ["2020-01-02T03:00:00"]),
        (pa.array([1], pa.timestamp("ns")), ["1970-01-01T00:00:00.000000001"]),
        (pa.array([1], pa.timestamp("us", "America/New_York")), ["1970-01-01T00:00:00.000001"]),
        (pa.array([2**62], pa.timestamp("us")), ["148108-07-06T14:00:27.387904"]),
        (pa.array([1500], pa.duration("ms")), ["1500 ms"]),
        (pa.array([61], pa.time32("s")), ["61 s"]),
        (pa.array([1], pa.time64("ns")), ["1 ns"]),
        (pa.array([[1]], pa.list_(pa.timestamp("ns"))), [["1970-01-01T00:00:00.000000001"]]),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_value_is_kept_as_json(array, texts):
    assert rejected(array) == texts


def test_keeping_all_rows_changes_nothing():
    rows = Rows(pa.RecordBatch.from_pydict({"x": [1, 2]}), 0, ("a",), np.arange(2))
    assert rows.keep(np.ones(2, bool), "why") is rows


def test_ordinals_splits_and_earlier_set_asides_go_along():
    batch, splits = pa.RecordBatch.from_pydict({"x": range(4)}), np.array([0, 1, 0, 1], "u1")
    rows = Rows(batch, 0, ("a",), np.arange(4), splits)
    rows = rows.keep(np.array([True, False, True, True]), "one").keep(np.array([False, True, True]), "two")
    assert rows.ordinals.tolist() == [2, 3]
    assert rows.splits.tolist() == [0, 1]
    assert [(aside.reason, aside.count, aside.kept) for aside in rows.set_aside] == [("one", 1, ()), ("two", 1, ())]
    assert rows.take_split(1)["x"].to_pylist() == [3]
    assert rows.take_split(0)["x"].to_pylist() == [2]
