"""Arrays of a user's own function on their way to torch and jax: features, labels and masks as they were placed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import jax
import numpy as np
import pytest
import torch

import penstock
from tests.adapters.comparing import same

FUNCTION = """
import numpy as np


def samples(path):
    rng = np.random.default_rng(int(path.stem))
    for move in range(40):
        yield {
            "features": rng.random(30, "f4"),
            "board": rng.integers(-1, 2, (4, 4)).astype("i1"),
            "labels": {"action": -1 if move % 5 == 0 else int(rng.integers(4))},
            "masks": {"action": rng.random(4) < 0.5},
            "game_id": path.stem,
        }
"""


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("games")
    (folder / "games").mkdir()
    (folder / "own_samples.py").write_text(FUNCTION)
    for number in range(12):
        (folder / "games" / f"{number}.game").write_text("x")
    (folder / "job.yaml").write_text(
        "input: {files: games/*, function: 'own_samples:samples'}\n"
        "output: prepared\nworkers: 0\nmemory: 1GB\n"
        "stages: [split: {by: game_id, test: 0.3}, normalize: [features]]\n"
    )
    penstock.run(folder / "job.yaml")
    return folder / "prepared"


@pytest.fixture
def expected(prepared: Path) -> Iterator[list[dict[str, np.ndarray]]]:
    with penstock.load(prepared, batch_size=16, seed=3, workers=0) as loader:
        yield [{name: array.copy() for name, array in loader.batch(k).items()} for k in range(20)]


def test_features_labels_and_masks_arrive_in_torch(prepared, expected):
    with penstock.load(prepared, batch_size=16, seed=3, workers=2) as loader:
        batches = loader.to_torch()
        for each in expected:
            batch = next(batches)
            assert same(batch, each)
            assert batch["board"].shape == (16, 4, 4)
            assert batch["masks_action"].dtype == torch.bool
            assert batch["labels_action"].min() == -1


def test_features_labels_and_masks_arrive_in_jax(prepared, expected):
    with penstock.load(prepared, batch_size=16, seed=3, workers=2) as loader:
        batches = loader.to_jax()
        for each in expected:
            batch = next(batches)
            assert isinstance(batch["features"], jax.Array)
            for name in ("features", "board", "masks_action"):
                np.testing.assert_array_equal(np.asarray(batch[name]), each[name])


def test_a_torch_loop_goes_on_from_its_state_with_another_number_of_ranks(prepared, expected):
    with penstock.load(prepared, batch_size=16, seed=3) as loader:
        batches = loader.to_torch()
        for _ in range(7):
            next(batches)
        state = batches.state_dict()
    halves = []
    for rank in range(2):
        with penstock.load(prepared, batch_size=16, seed=3, rank=rank, world=2) as loader:
            batches = loader.to_torch()
            batches.load_state_dict(state)
            halves.append({name: tensor.clone() for name, tensor in next(batches).items()})
    whole = {name: torch.cat([half[name] for half in halves]) for name in halves[0]}
    assert same(whole, expected[7])


def padded(prepared: Path) -> penstock.Loader:
    return penstock.load(prepared, batch_size=64, seed=3, epochs=1, remainder="pad", columns=["board"], workers=0)


def test_padding_is_told_from_data_in_torch(prepared):
    with padded(prepared) as loader:
        rows = sum(int(batch["valid"].sum()) for batch in loader.to_torch())
        *_, last = loader.dataset()
    assert rows == len(penstock.open(prepared))
    assert last["valid"].dtype == np.bool_
    assert 0 < last["valid"].sum() < 64


def test_padding_is_told_from_data_in_jax(prepared):
    with padded(prepared) as loader:
        batches = list(loader.to_jax())
    assert {(str(batch["valid"].dtype), batch["valid"].shape) for batch in batches} == {("bool", (64,))}
    assert sum(int(batch["valid"].sum()) for batch in batches) == len(penstock.open(prepared))
