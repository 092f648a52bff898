"""Columns of several dimensions come in batches of the same: kernels and plain Python, threads or none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock
from tests.loader.making import copied, prepare, same

ROWS = 300


def expected_columns() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    return {
        "board": rng.integers(-6, 7, (ROWS, 8, 8)).astype("i1"),
        "planes": rng.normal(size=(ROWS, 2, 3, 4)).astype("f2"),
        "moves": rng.random((ROWS, 4, 2)) < 0.5,
        "row": np.arange(ROWS, dtype="i8"),
    }


def to_arrow(values: np.ndarray) -> pa.Array:
    array = pa.array(values.reshape(-1))
    for size in reversed(values.shape[1:]):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array


@pytest.fixture(scope="module", params=["safetensors", "npy"])
def boards(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Prepared from Parquet, in three shards."""
    table = pa.table({name: to_arrow(values) for name, values in expected_columns().items()})
    folder = tmp_path_factory.mktemp("boards")
    return prepare(folder, table, [], format=request.param, slice_size="10kB")


@pytest.mark.proof
@pytest.mark.parametrize("plain", ["", "1"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("cache", [None, "disk", "memory"])
def test_a_batch_has_the_rows_of_the_arrays_in_their_shape(boards, monkeypatch, plain, workers, cache):
    monkeypatch.setenv("PENSTOCK_PLAIN", plain)
    columns, drawn = expected_columns(), []
    for batch in penstock.load(boards, batch_size=32, epochs=1, workers=workers, cache=cache):
        assert batch["board"].shape == (32, 8, 8)
        assert same(batch, {name: values[batch["row"]] for name, values in columns.items()})
        drawn += batch["row"].tolist()
    assert len(drawn) == len(set(drawn)) == ROWS // 32 * 32


def test_rows_that_pad_the_last_batch_are_zeros_in_every_dimension(boards, monkeypatch):
    for plain in ("", "1"):
        monkeypatch.setenv("PENSTOCK_PLAIN", plain)
        *_, last = penstock.load(boards, batch_size=32, epochs=1, remainder="pad", workers=0)
        assert not any(last[name][ROWS % 32 :].any() for name in last)


def test_batch_k_is_the_same_whoever_makes_it(boards, monkeypatch):
    found = []
    for plain in ("", "1"):
        monkeypatch.setenv("PENSTOCK_PLAIN", plain)
        for workers in (0, 2):
            loader = penstock.load(boards, batch_size=16, seed=9, workers=workers)
            found.append([copied(loader.batch(k)) for k in (0, 7, 40)])
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            assert same(other, one)


def test_one_column_of_two_dimensions_can_be_asked_for_alone(boards):
    batch = penstock.load(boards, batch_size=5, columns=["board"], workers=0).batch(0)
    assert {name: (array.shape, array.dtype.str) for name, array in batch.items()} == {"board": ((5, 8, 8), "|i1")}


def test_a_dataset_of_text_alone_says_how_it_becomes_batches(tmp_path):
    pq.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "in.parquet")
    penstock.run({"input": str(tmp_path / "in.parquet"), "output": str(tmp_path / "out"), "workers": 0})
    with pytest.raises(penstock.ConfigError, match="only text columns could be loaded: text") as caught:
        penstock.load(tmp_path / "out", batch_size=1)
    assert "tokenize" in caught.value.next_step
