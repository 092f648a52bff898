"""Columns that `pack` kept beside the tokens: two arrays each, with the value of the token in the same place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import ConfigError
from penstock.loader.engine import PLAIN
from penstock.loader.kinds.rows import Rows
from tests.loader.making import KEPT, TOKEN_NAMES, Datasets, copied, make_kept_documents, prepare, same
from tests.loader.tokens.test_reference import make_data

SHAPES: list[Any] = [("kept_rows", {}), ("kept_rows", {"length": 20, "overflow": "truncate"})]
SHAPES += [("kept_ragged_rows", {"length": 40}), ("kept_ragged_rows", {"length": 11, "overflow": "truncate"})]


def values_by_token(table: Any) -> dict[str, np.ndarray]:
    """The value of each token in each column: every token is there once."""
    sizes = [len(each) for each in table["tokens"].to_pylist()]
    found = {name: np.repeat(table[name].to_numpy(), sizes) for name in ("source", "weight")}
    lists = {name: table[name].combine_chunks().flatten().to_numpy(zero_copy_only=False) for name in ("mask", "score")}
    return {**found, **lists}


@pytest.mark.parametrize(("name", "options"), SHAPES)
@pytest.mark.parametrize("plain", [False, True])
def test_each_place_of_a_batch_has_the_value_of_its_token_and_padding_is_zero(
    datasets: Datasets, monkeypatch, name, options, plain
):
    monkeypatch.setenv(PLAIN, "1" if plain else "0")
    most = 90 if name == "kept_rows" else 30
    expected = values_by_token(make_kept_documents(300, most, 9))
    places = 0
    with penstock.load(getattr(datasets, name), batch_size=8, seed=3, epochs=1, workers=0, **options) as loader:
        for batch in loader:
            assert set(batch) == {*TOKEN_NAMES, *(f"{of}_{each}" for of in ("inputs", "targets") for each in KEPT)}
            filled = batch["inputs_segmentation"] > 0
            followed = np.zeros_like(filled)
            followed[:, :-1] = filled[:, 1:]
            followed[:, -1] = (batch["targets"][:, -1] > 0) | (batch["targets_segmentation"][:, -1] > 0)
            for of, there in (("inputs", filled), ("targets", followed)):
                for column, values in expected.items():
                    array = batch[f"{of}_{column}"]
                    assert (array.shape, array.dtype) == (batch[of].shape, values.dtype)
                    assert np.array_equal(array[there], values[batch[of][there]]), (of, column)
                    assert not array[~there].any()
            places += int(filled.sum())
    assert places > 1000


@pytest.mark.parametrize(("name", "options"), SHAPES)
def test_a_batch_is_the_same_alone_in_order_by_rank_and_read_from_disk(datasets: Datasets, name, options):
    path = getattr(datasets, name)
    with penstock.load(path, batch_size=8, seed=3, workers=2, **options) as loader:
        batches = [copied(next(loader)) for _ in range(6)]
        state = loader.state()
        following = copied(next(loader))
    with penstock.load(path, batch_size=8, seed=3, workers=0, cache="disk", **options) as loader:
        assert same(loader.batch(4), batches[4])
        loader.restore(state)
        assert same(next(loader), following)
    for rank in (0, 1):
        with penstock.load(path, batch_size=8, seed=3, workers=0, rank=rank, world=2, **options) as loader:
            own = {key: array[4 * rank : 4 * rank + 4] for key, array in batches[2].items()}
            assert same(loader.batch(2), own)


def test_a_state_of_rows_with_kept_columns_is_not_one_of_rows_without(datasets: Datasets, tmp_path: Path):
    without = prepare(tmp_path, make_kept_documents(300, 90, 9), [{"pack": 33}])
    with penstock.load(without, batch_size=8) as loader, penstock.load(datasets.kept_rows, batch_size=8) as kept:
        assert set(loader.batch(0)) == set(TOKEN_NAMES)
        with pytest.raises(ConfigError, match="other data"):
            kept.restore(loader.state())


def test_the_tokens_are_those_of_a_dataset_without_kept_columns(datasets: Datasets, tmp_path: Path):
    without = prepare(tmp_path, make_kept_documents(300, 90, 9), [{"pack": 33}])
    with penstock.load(without, batch_size=8) as loader, penstock.load(datasets.kept_rows, batch_size=8) as kept:
        batch = loader.batch(3)
        assert same(batch, {name: kept.batch(3)[name] for name in batch})


def test_maxtext_gets_its_six_arrays_alone(datasets: Datasets):
    with penstock.load(datasets.kept_rows, batch_size=8) as loader:
        assert set(next(loader.to_maxtext())) == set(TOKEN_NAMES)


@pytest.mark.parametrize("fixed", [False, True])
def test_a_column_that_has_not_one_value_per_token_is_refused(fixed):
    kinds = [f"fixed_size_list<int32>[{n}]" for n in (4, 3)] if fixed else ["list<int32>"] * 2
    values = [[1, 2, 3]] * 2 if fixed else [[1, 2, 3], [1, 2, 3, 4, 5]]
    records = [{"tokens": [1, 2, 3, 4], "mask": each} for each in values]
    data = make_data([records], {"tokens": kinds[0], "mask": kinds[1]})
    with pytest.raises(ConfigError, match="column 'mask' has not one value per token"):
        Rows([data.shards], data.schema, 3, keep=["mask"])
