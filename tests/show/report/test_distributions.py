"""Distributions of a report: the same numbers as counted by hand, in memory that long records do not change."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.stores import open_store
from penstock.shards.manifest import read_manifest
from penstock.show.report.gathering import distributions as module
from penstock.show.report.gathering.distributions import distributions
from penstock.show.report.gathering.histogram import Histogram
from tests.show.prepared import prepare

NUMBERS = st.lists(st.integers(0, 2**63 - 1) | st.integers(0, 200), min_size=1, max_size=60)


def found(dataset) -> dict[str, dict]:
    store = open_store(dataset)
    return {each["title"]: each for each in distributions(store, read_manifest(store))["shown"]}


@given(NUMBERS, st.integers(1, 7))
def test_every_value_is_in_the_one_bucket_that_has_room_for_it(values, at_once):
    histogram = Histogram()
    for start in range(0, len(values), at_once):
        histogram.add(np.array(values[start : start + at_once], "i8"))
    facts = histogram.facts()
    assert [facts["count"], facts["least"], facts["greatest"]] == [len(values), min(values), max(values)]
    assert facts["mean"] == pytest.approx(sum(values) / len(values))
    buckets = facts["buckets"]
    for bucket in buckets:
        assert bucket["count"] == sum(bucket["least"] <= value <= bucket["most"] for value in values)
    assert sum(bucket["count"] for bucket in buckets) == len(values)
    assert all(a["most"] + 1 == b["least"] for a, b in itertools.pairwise(buckets))


def test_bytes_of_a_record_are_those_that_its_columns_hold(tmp_path):
    columns = {
        "number": pa.array([1, 2, None], pa.int32()),
        "text": pa.array(["", "abc", "zebra"]),
        "list": pa.array([[1], [], [1, 2, 3]], pa.list_(pa.int16())),
        "words": pa.array([["a", "bcd"], None, []], pa.list_(pa.string())),
        "kind": pa.array(["x", "y", "x"]).dictionary_encode(),
        "box": pa.array([[1.0, 2.0]] * 3, pa.list_(pa.float32(), 2)),
    }
    shown = found(prepare(tmp_path, columns, []))
    # 4 + 1 (a null), 8 + text, 8 + 2 per value, 8 + 1 (a null) + 8 per word and its bytes, 4, 8
    fixed = 5 + 8 + 8 + 9 + 4 + 8
    assert shown["Bytes per record"]["least"] == fixed + 3
    assert shown["Bytes per record"]["greatest"] == fixed + 2 + 2 * 8 + 4
    assert shown["Bytes per record"]["mean"] == pytest.approx(fixed + (22 + 3 + 11) / 3)
    assert shown["Length of text: text"]["greatest"] == 5
    assert shown["Values per record: list"]["mean"] == pytest.approx(4 / 3)


def test_a_large_dataset_is_seen_in_pieces_and_the_report_says_how_many(tmp_path, monkeypatch):
    dataset = prepare(tmp_path, {"text": pa.array(["a" * (n % 50) for n in range(1000)])}, [], slice_size="1kB")
    whole = found(dataset)["Length of text: text"]
    assert whole["seen"] == "all 1,000 records"
    monkeypatch.setattr(module, "PIECE", 10)
    assert found(dataset)["Length of text: text"]["buckets"] == whole["buckets"]
    monkeypatch.setattr(module, "MOST_PIECES", 4)
    part = found(dataset)["Length of text: text"]
    assert part["seen"] == "40 of 1,000 records, in pieces spread evenly over the dataset"
    assert part["count"] == 40
    assert part == found(dataset)["Length of text: text"], "the same piece each time"


def test_long_records_take_no_more_memory_than_short_ones(tmp_path):
    lists = pa.ListArray.from_arrays(
        pa.array([0, 3_000_000, 6_000_000], pa.int32()), pa.array(np.zeros(6_000_000, "i4"))
    )
    dataset = prepare(tmp_path, {"values": lists, "text": pa.array(["x" * 10_000_000, ""])}, [])
    found(dataset)  # what is imported is not counted
    tracemalloc.start()
    shown = found(dataset)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert shown["Values per record: values"]["greatest"] == 3_000_000
    assert peak < 2_000_000
