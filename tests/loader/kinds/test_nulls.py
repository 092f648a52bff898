"""nulls=[...]: columns with nulls come as zeros with a mask; without it they are refused, and batches are as before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.errors import PenstockError
from tests.loader.making import copied, hash_of, prepare, same

ROWS = 400


@pytest.fixture(scope="module")
def optional(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nulls in the first shards alone, so that others have no validity column."""
    rng = np.random.default_rng(1)
    missing = (rng.random(ROWS) < 0.3) & (np.arange(ROWS) < ROWS // 2)
    boards = pa.FixedSizeListArray.from_arrays(
        pa.array(rng.integers(0, 9, 4 * ROWS).astype("i1")), 4, mask=pa.array(missing)
    )
    table = pa.table(
        {
            "row": pa.array(np.arange(ROWS), pa.int64()),
            "score": pa.array(rng.normal(size=ROWS).astype("f4"), mask=missing),
            "board": boards,
        }
    )
    return prepare(tmp_path_factory.mktemp("optional"), table, [], slice_size="1kB")


@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("cache", [None, "disk", "memory"])
def test_values_are_zeros_where_the_mask_is_false(optional, monkeypatch, plain, cache):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    records = list(penstock.open(optional))
    assert any(record["score"] is None for record in records)
    loader = penstock.load(optional, batch_size=16, nulls=["score", "board"], cache=cache, workers=0, epochs=1)
    for batch in loader:
        assert list(batch) == ["row", "score", "board", "score_valid", "board_valid"]
        for row, number in enumerate(batch["row"].tolist()):
            for name in ("score", "board"):
                stored = records[number][name]
                assert batch[f"{name}_valid"][row] == (stored is not None)
                np.testing.assert_array_equal(batch[name][row], 0 if stored is None else stored)


def test_kernels_and_plain_numpy_give_the_same_bytes(optional, monkeypatch):
    hashes = []
    for plain in ("", "1"):
        monkeypatch.setenv("PENSTOCK_PLAIN", plain)
        options = {"nulls": ["score", "board"], "remainder": "pad", "epochs": 1, "workers": 0}
        hashes.append([hash_of(batch) for batch in penstock.load(optional, batch_size=24, **options)])
    assert hashes[0] == hashes[1]


def test_columns_that_are_not_named_come_as_before(optional):
    plain = penstock.load(optional, batch_size=8, columns=["row"], workers=0)
    masked = penstock.load(optional, batch_size=8, columns=["row", "score"], nulls=["score"], workers=0)
    assert same(plain.batch(3), {"row": copied(masked.batch(3))["row"]})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, r"columns 'score', 'board' have nulls(?s:.*)nulls=\['score', 'board'\]"),
        ({"nulls": ["score"]}, r"column 'board' has nulls"),
        ({"nulls": ["scores"]}, "no column 'scores'. Did you mean 'score'"),
        ({"nulls": "score"}, "nulls='score'"),
    ],
)
def test_nulls_that_nobody_asked_for_are_refused_with_the_next_step(optional, options, words):
    with pytest.raises(PenstockError, match=words):
        penstock.load(optional, batch_size=8, workers=0, **options)


def test_tokens_have_no_nulls(datasets):
    for path, length in ((datasets.rows, None), (datasets.pings, 64)):
        with pytest.raises(PenstockError, match=r"nulls=\['x'\] is an option for columns"):
            penstock.load(path, batch_size=8, length=length, nulls=["x"], workers=0)


def test_a_mask_needs_a_name_of_its_own(tmp_path):
    table = pa.table({"x": pa.array([1, None], pa.int32()), "x_valid": pa.array([1, 2], pa.int32())})
    path = prepare(tmp_path, table, [])
    with pytest.raises(PenstockError, match="the mask 'x_valid'"):
        penstock.load(path, batch_size=2, nulls=["x"], workers=0)
