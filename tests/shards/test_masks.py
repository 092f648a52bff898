"""A label says which class, its mask which classes were allowed; verify names every label that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock
from penstock.shards.schema import schema_from_arrow
from penstock.shards.verify import MaskViolation, Verification, masked_heads
from tests.shards.making import write_dataset

MASK = pa.list_(pa.int8(), 3)
KINDS = {"labels": pa.int16(), "masks": MASK}


def make_batch(labels: list[Any], masks: list[Any], kind: pa.DataType = MASK, head: str = "a") -> pa.RecordBatch:
    columns = {f"labels_{head}": pa.array(labels, pa.int16()), f"masks_{head}": pa.array(masks, kind)}
    return pa.RecordBatch.from_pydict(columns)


def found_in(path: Path, *batches: pa.RecordBatch) -> Verification:
    """What verify finds in a split whose shards are these batches."""
    write_dataset(path, {"train": [[batch] for batch in batches]})
    return penstock.verify(path)


def test_a_label_of_minus_one_is_no_label_whatever_the_mask(tmp_path):
    found = found_in(tmp_path, make_batch([-1, -1, 2], [[0, 0, 0], [1, 1, 1], [0, 0, 1]]))
    assert (found.ok, found.heads, found.labels, found.violation_count) == (True, ("a",), 1, 0)


def test_a_label_that_its_mask_forbids_is_named_with_the_classes_that_were_allowed(tmp_path):
    found = found_in(tmp_path, make_batch([0, 1, 0], [[1, 0, 0], [1, 0, 7], [0, 0, 0]]))
    assert not found.ok
    assert not found.problems
    assert found.violations == (MaskViolation("train", 1, "a", 1, (0, 2)), MaskViolation("train", 2, "a", 0, ()))


@pytest.mark.parametrize("label", [-2, 3, 300, -32768])
def test_a_label_that_is_no_class_is_not_allowed(tmp_path, label):
    found = found_in(tmp_path, make_batch([label], [[1, 1, 1]]))
    assert found.violations == (MaskViolation("train", 0, "a", label, (0, 1, 2)),)


def test_the_largest_label_is_not_taken_for_minus_one(tmp_path):
    labels = pa.array([2**64 - 1, 1], pa.uint64())
    batch = pa.RecordBatch.from_pydict({"labels_a": labels, "masks_a": pa.array([[1, 1, 1]] * 2, MASK)})
    assert found_in(tmp_path, batch).violations == (MaskViolation("train", 0, "a", 2**64 - 1, (0, 1, 2)),)


@pytest.mark.parametrize("number", [pa.bool_(), pa.int8(), pa.uint16(), pa.float16(), pa.float64()], ids=str)
def test_a_mask_is_of_bools_or_of_any_number(tmp_path, number):
    mask = pa.array([1, 0, 1, 0], pa.int8()).cast(pa.float32()).cast(number)
    columns = {"labels_a": pa.array([0, 1]), "masks_a": pa.FixedSizeListArray.from_arrays(mask, 2)}
    found = found_in(tmp_path, pa.RecordBatch.from_pydict(columns))
    assert [each.row for each in found.violations] == [1]


def test_a_null_is_no_label_and_a_null_mask_allows_none(tmp_path):
    found = found_in(tmp_path, make_batch([None, 1, None], [[0, 0, 0], None, None]))
    assert (found.labels, found.violations) == (1, (MaskViolation("train", 1, "a", 1, ()),))


def test_rows_are_counted_over_the_shards_of_a_split(tmp_path):
    good, bad = ([1], [[0, 1, 0]]), ([0], [[0, 1, 0]])
    shards = [[make_batch(*good)], [make_batch(*good), make_batch(*bad)], [make_batch([], [])], [make_batch(*bad)]]
    write_dataset(tmp_path, {"train": shards, "test": [[make_batch(*bad)]]})
    found = penstock.verify(tmp_path)
    assert [(each.split, each.row) for each in found.violations] == [("train", 2), ("train", 3), ("test", 0)]
    assert found.labels == 5


def test_every_head_is_held_against_its_own_mask(tmp_path):
    columns = {
        "labels_move": pa.array([0, 1], pa.int8()),
        "masks_target": pa.array([[False, True], [False, True]], pa.list_(pa.bool_(), 2)),
        "masks_move": pa.array([[1, 0, 0], [1, 0, 0]], MASK),
        "labels_target": pa.array([0, 1], pa.int64()),
        "labels_alone": pa.array([7, 7], pa.int64()),
    }
    found = found_in(tmp_path, pa.RecordBatch.from_pydict(columns))
    assert (found.heads, found.labels) == (("move", "target"), 4)
    assert [(each.row, each.head) for each in found.violations] == [(0, "target"), (1, "move")]


@pytest.mark.parametrize(
    ("labels", "masks"),
    [
        (pa.float32(), MASK),
        (pa.timestamp("us"), MASK),
        (pa.bool_(), MASK),
        (pa.string(), MASK),
        (pa.list_(pa.int8(), 2), MASK),
        (pa.int8(), pa.int8()),
        (pa.int8(), pa.list_(pa.int8())),
        (pa.int8(), pa.list_(MASK, 2)),
        (pa.int8(), pa.list_(pa.date32(), 2)),
    ],
    ids=str,
)
def test_columns_of_other_types_are_no_head(labels, masks):
    assert masked_heads(schema_from_arrow(pa.schema([("labels_a", labels), ("masks_a", masks)]), "here")) == ()


def test_a_dataset_without_heads_has_nothing_to_hold(tmp_path):
    found = found_in(tmp_path, pa.RecordBatch.from_pydict({"x": [1, 2]}))
    assert (found.ok, found.heads, found.labels) == (True, (), 0)


@given(seed=st.integers(0, 2**32), chunk=st.integers(1, 9), shards=st.integers(1, 3))
def test_what_is_found_is_what_a_loop_over_rows_finds(tmp_path_factory, seed, chunk, shards):
    rng = np.random.default_rng(seed)
    labels, masks = rng.integers(-2, 4, (2, 20)), rng.integers(0, 2, (2, 20, 3))
    parts = [
        pa.RecordBatch.from_pydict(
            {
                **{f"labels_{head}": pa.array(labels[head][rows], pa.int32()) for head in (0, 1)},
                **{f"masks_{head}": pa.array(masks[head][rows].tolist(), MASK) for head in (0, 1)},
            }
        )
        for rows in np.array_split(np.arange(20), shards)
    ]
    expected = [
        MaskViolation("train", row, str(head), label, tuple(np.flatnonzero(mask).tolist()))
        for row in range(20)
        for head in (0, 1)
        for label, mask in [(int(labels[head, row]), masks[head, row])]
        if label != -1 and not (0 <= label < 3 and mask[label])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("penstock.shards.verify._CHUNK", chunk)
        found = found_in(tmp_path_factory.mktemp("masks"), *parts)
    assert list(found.violations) == expected
    assert (found.violation_count, found.labels) == (len(expected), int((labels != -1).sum()))


def test_the_first_thousand_are_listed_and_all_are_counted(tmp_path):
    both = [make_batch([0] * 900, [[0, 1, 0]] * 900, head=head) for head in "ab"]
    batch = pa.RecordBatch.from_arrays(
        [*both[0].columns, *both[1].columns], [*both[0].schema.names, *both[1].schema.names]
    )
    found = found_in(tmp_path, batch, batch)
    assert (found.violation_count, len(found.violations)) == (3600, 1000)
    assert [(each.row, each.head) for each in found.violations[:4]] == [(0, "a"), (0, "b"), (1, "a"), (1, "b")]
    assert found.violations[-1].row == 499


def test_labels_of_a_damaged_shard_are_not_judged(tmp_path):
    bad = make_batch([0], [[0, 1, 0]])
    found_in(tmp_path, bad, bad)
    shard = tmp_path / "train" / "00000-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1] + b"\7")
    found = penstock.verify(tmp_path)
    assert len(found.problems) == 1
    assert [each.row for each in found.violations] == [1]
