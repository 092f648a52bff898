"""Split: a row's split is decided by a hash that never changes, in exactly the shares asked for."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ConfigError
from penstock.prepare.stages import build_stage
from tests.prepare.stages.rows import checked_stage, make_rows

HALVES = {"by": "key", "test": 0.3, "val": 0.2}


def splits_of(written, columns, path: str = "part-0.parquet") -> list[str]:
    rows = make_rows(columns, path)
    stage = checked_stage("split", written, rows)
    return [stage.splits()[number] for number in stage(rows).splits]


def test_these_keys_and_positions_have_their_split_for_ever():
    keys = ["10.0.0.1", "10.0.0.2", "user é", "", None, "x" * 100, "a", "b", "c", "d"]
    assert splits_of(HALVES, {"key": keys}) == PINNED_KEYS
    assert splits_of({"test": 0.3, "val": 0.2}, {"a": range(10)}, "day=1/part-3.parquet") == PINNED_POSITIONS
    assert splits_of({"by": ["key", "n"], "test": 0.5}, {"key": keys, "n": range(10)}) == PINNED_PAIRS


PINNED_KEYS = ["train", "train", "test", "train", "test", "train", "train", "train", "train", "val"]
PINNED_POSITIONS = ["val", "train", "train", "test", "test", "train", "train", "test", "train", "val"]
PINNED_PAIRS = ["train", "test", "train", "train", "test", "test", "train", "train", "train", "train"]


@pytest.mark.parametrize("written", [{"test": 0.1, "val": 0.05}, {"by": "key", "test": 0.1, "val": 0.05}])
def test_shares_are_what_was_asked_for(written):
    names, counts = np.unique(splits_of(written, {"key": [f"user-{i}" for i in range(100_000)]}), return_counts=True)
    shares = dict(zip(names.tolist(), (counts / 100_000).tolist(), strict=True))
    assert shares == pytest.approx({"train": 0.85, "test": 0.1, "val": 0.05}, abs=0.004)


def test_a_key_has_one_split_wherever_its_rows_are():
    keys = [f"user-{i % 50}" for i in range(1000)]
    by_key = dict(zip(keys, splits_of(HALVES, {"key": keys}), strict=True))
    other_order = list(reversed(keys[:137])) + ["new"]
    assert splits_of(HALVES, {"key": other_order}, "another.csv")[:-1] == [by_key[key] for key in other_order[:-1]]


def test_a_position_has_one_split_when_rows_and_files_are_added():
    few, many = splits_of({"test": 0.5}, {"a": range(10)}), splits_of({"test": 0.5}, {"a": range(1000)})
    assert many[:10] == few
    assert splits_of({"test": 0.5}, {"a": range(1000)}, "part-1.parquet") != many


@given(st.lists(st.integers(0, 127), min_size=1, max_size=20))
def test_equal_keys_of_different_types_have_one_split(values):
    kinds = [pa.int8(), pa.int16(), pa.int64(), pa.uint8(), pa.uint64(), pa.duration("s"), pa.timestamp("us")]
    answers = [splits_of(HALVES, {"key": pa.array(values, kind)}) for kind in kinds]
    assert all(answer == answers[0] for answer in answers)
    texts = [str(value) for value in values]
    kinds = [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.binary()]
    answers = [splits_of(HALVES, {"key": pa.array(texts, kind)}) for kind in kinds]
    assert all(answer == answers[0] for answer in answers)


def test_the_edges_of_the_shares_are_exact():
    stage = build_stage("split", {"a": 0.1, "b": 0.2})
    tenth, three_tenths = -(-(2**64) // 10), -(-3 * 2**64 // 10)
    hashes = np.array([0, tenth - 2, tenth - 1, three_tenths - 2, three_tenths - 1, 2**64 - 1], "u8")
    assert stage.decide(hashes).tolist() == [1, 1, 2, 2, 0, 0]


def test_named_splits_take_their_ranges_in_order_of_name_whatever_the_order_in_the_job():
    one, other = build_stage("split", {"val": 0.2, "test": 0.3}), build_stage("split", {"test": 0.3, "val": 0.2})
    assert one == other
    assert one.splits() == ("train", "test", "val")
    assert one.describe() == {"fractions": {"test": 0.3, "val": 0.2}, "by": ()}


def test_the_columns_it_is_decided_by_are_read():
    stage = build_stage("split", {"by": ["a", "b"], "test": 0.1})
    assert stage.needs(frozenset({"c"})) == frozenset({"a", "b", "c"})
    assert stage.needs(None) is None
    with pytest.raises(ConfigError, match="there is no column 'b'"):
        stage.output_schema(pa.schema([("a", pa.int64())]), None)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (0.1, "expected fractions, such as {test: 0.1}"),
        ({}, "name at least one split"),
        ({"by": "a"}, "name at least one split"),
        ({"train": 0.9}, "'train' cannot be a split's name"),
        ({"artifacts": 0.1}, "'artifacts' cannot be a split's name"),
        ({"a/b": 0.1}, "'a/b' cannot be a split's name"),
        ({"../x": 0.1}, "cannot be a split's name"),
        ({"": 0.1}, "cannot be a split's name"),
        ({"test": 0.0}, "test: 0.0 is not a share between 0 and 1"),
        ({"test": 1.0}, "not a share between 0 and 1"),
        ({"test": float("nan")}, "not a share between 0 and 1"),
        ({"test": -0.1}, "not a share between 0 and 1"),
        ({"test": "a lot"}, "expected a number"),
        ({"a": 0.7, "b": 0.1, "c": 0.2}, "the shares add up to 1, which leaves nothing for train"),
        ({"a": 0.5, "b": 0.6}, "add up to 1.1"),
    ],
)
def test_what_cannot_be_a_split_is_refused(written, message):
    with pytest.raises(ConfigError) as caught:
        build_stage("split", written)
    assert message in caught.value.what


def test_shares_that_leave_a_little_are_fine():
    assert build_stage("split", {"a": 0.7, "b": 0.1, "c": 0.1999999}).splits() == ("train", "a", "b", "c")


def test_another_seed_makes_another_split_in_the_same_shares():
    """What one split put together, the next divides again: the two are independent."""
    keys = {"key": [f"user-{i}" for i in range(100_000)]}
    first = np.array(splits_of({"by": "key", "test": 0.1}, keys))
    second = np.array(splits_of({"by": "key", "test": 0.1, "seed": 1}, keys))
    third = np.array(splits_of({"by": "key", "test": 0.1, "seed": 2}, keys))
    assert (second == "test").mean() == pytest.approx(0.1, abs=0.004)
    for one, other in ((first, second), (second, third)):
        assert ((one == "test") & (other == "test")).mean() == pytest.approx(0.01, abs=0.002)


def test_without_a_seed_a_split_is_the_one_that_it_always_was():
    assert build_stage("split", {"test": 0.1}).describe() == build_stage("split", {"test": 0.1, "seed": 0}).describe()
    assert "seed" not in build_stage("split", {"test": 0.1}).describe()
    assert build_stage("split", {"test": 0.1, "seed": 7}).describe()["seed"] == 7


@pytest.mark.parametrize("seed", [0.1, -1, 2**63, True, "a"])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(ConfigError, match=r"seed: .* is not a whole number"):
        build_stage("split", {"test": 0.1, "seed": seed})
