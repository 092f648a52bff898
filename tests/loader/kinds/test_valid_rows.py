"""`valid` tells the rows of a padded last batch from data: every kernel, rank and way of making a batch."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import penstock
from tests.loader.making import copied, prepare

ROWS = 50


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows that are zeros themselves, so that no value tells them from padding."""
    table = pa.table({"x": np.zeros(ROWS, "f4"), "label": np.zeros(ROWS, "i2")})
    return prepare(tmp_path_factory.mktemp("zeros"), table, [])


@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_padded_batch_says_which_rows_are_data(zeros, monkeypatch, plain, workers):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    batches = [copied(each) for each in penstock.load(zeros, batch_size=8, epochs=1, remainder="pad", workers=workers)]
    assert {tuple(batch) for batch in batches} == {("x", "label", "valid")}
    assert {(batch["valid"].dtype, batch["valid"].shape) for batch in batches} == {(np.dtype("?"), (8,))}
    assert all(batch["valid"].all() for batch in batches[:-1])
    assert batches[-1]["valid"].tolist() == [True] * 2 + [False] * 6


def test_the_ranks_together_have_every_row_once(zeros):
    counts = []
    for rank in range(4):
        loader = penstock.load(zeros, batch_size=8, epochs=1, remainder="pad", rank=rank, world=4, workers=0)
        counts.append([int(batch["valid"].sum()) for batch in loader])
    assert np.sum(counts, axis=0).tolist() == [8, 8, 8, 8, 8, 8, 2]
    assert [each[-1] for each in counts] == [2, 0, 0, 0]


def test_batches_without_padding_have_no_such_array(zeros):
    assert list(penstock.load(zeros, batch_size=8, epochs=1, workers=0).batch(0)) == ["x", "label"]


def test_a_map_function_sees_which_rows_are_data(zeros):
    def count(batch):
        return {"rows": np.array([batch["valid"].sum()])}

    loader = penstock.load(zeros, batch_size=8, epochs=1, remainder="pad", workers=0).map(count)
    assert sum(int(batch["rows"][0]) for batch in loader) == ROWS


def test_a_state_is_resumed_with_or_without_padding(zeros):
    padded = penstock.load(zeros, batch_size=8, epochs=1, remainder="pad", workers=0)
    next(padded)
    dropped = penstock.load(zeros, batch_size=8, epochs=1, workers=0)
    dropped.restore(padded.state())
    assert dropped.step == 1
    padded.restore(dropped.state())
    *_, last = padded
    assert int(last["valid"].sum()) == 2


def test_a_column_that_is_called_valid_is_not_replaced(tmp_path):
    made = prepare(tmp_path, pa.table({"valid": [1, 2, 3], "x": [4, 5, 6]}), [])
    with pytest.raises(penstock.ConfigError, match="the dataset has a column of this name") as caught:
        penstock.load(made, batch_size=2, epochs=1, remainder="pad")
    assert "columns=" in caught.value.next_step
    assert list(penstock.load(made, batch_size=2, workers=0).batch(0)) == ["valid", "x"]
    batch = penstock.load(made, batch_size=2, epochs=1, remainder="pad", columns=["x"], workers=0).batch(1)
    assert batch["valid"].tolist() == [True, False]
