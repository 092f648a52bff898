"""to_maxtext: what MaxText's MultiHostDataLoadIterator does with its dataloader, and gets from ours."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from penstock.base.errors import ConfigError
from penstock.loader.batches import TOKEN_ARRAYS
from penstock.loader.consumers.to_maxtext import MaxTextBatches
from tests.adapters.comparing import joined, same


class HostIterator:
    """As MaxText takes batches: one `iter`, rows split over the local devices, `reset` before an evaluation."""

    def __init__(self, dataloader: Any, new: bool) -> None:
        self.dataloader = dataloader
        self.iterator = iter(dataloader)
        self.new = new
        self.mesh = Mesh(np.array(jax.local_devices()), ("data",))

    def reset(self) -> None:
        # Newer versions ask the iterator, older ones make another.
        if self.new:
            self.iterator.reset()
        else:
            self.iterator = iter(self.dataloader)

    def __next__(self) -> dict[str, jax.Array]:
        return jax.tree.map(self.form_global, next(self.iterator))

    def form_global(self, array: np.ndarray) -> jax.Array:
        parts = jax.device_put(np.split(array, len(self.mesh.local_devices)), list(self.mesh.local_devices))
        sharding = NamedSharding(self.mesh, PartitionSpec("data"))
        return jax.make_array_from_single_device_arrays(array.shape, sharding, parts)


@pytest.mark.parametrize("new", [False, True])
def test_maxtext_gets_the_very_batches(load, expected, new):
    iterator = HostIterator(load().to_maxtext(), new)
    assert all(same(next(iterator), expected(number)) for number in range(6))


@pytest.mark.parametrize("new", [False, True])
def test_every_evaluation_sees_the_same_batches(load, expected, new):
    iterator = HostIterator(load().to_maxtext(), new)
    for _ in range(3):
        iterator.reset()
        assert all(same(next(iterator), expected(number)) for number in range(4))


def test_the_six_arrays_are_int32_and_contiguous_and_padding_has_segment_0(load):
    batch = next(iter(load(rank=1, world=2).to_maxtext()))
    assert tuple(batch) == TOKEN_ARRAYS
    for array in batch.values():
        assert (array.dtype, array.shape, array.flags.c_contiguous) == (np.int32, (4, 128), True)
    assert batch["targets_segmentation"].max() >= 1
    np.testing.assert_array_equal(batch["inputs"][:, 1:], batch["targets"][:, :-1])


def test_the_state_is_bytes_as_maxtext_writes_them_and_restores_on_another_world(load, expected):
    batches = load().to_maxtext()
    for _ in range(3):
        next(batches)
    text = batches.get_state().decode()
    ranks = [load(rank=rank, world=4).to_maxtext() for rank in range(4)]
    for rank in ranks:
        rank.set_state(text.encode())
        assert iter(rank) is rank
    assert same(joined([next(rank) for rank in ranks]), expected(3))


def test_a_refused_state_changes_nothing(load, expected):
    batches = load().to_maxtext()
    next(batches)
    with pytest.raises(ConfigError, match="seed was 8 and is 7"):
        batches.set_state(load(seed=8).to_maxtext().get_state())
    assert same(next(batches), expected(1))
    batches.reset()
    assert same(next(batches), expected(0))


@pytest.mark.parametrize("state", [b"", b"{", b"\xff", None, 3])
def test_what_is_no_state_is_refused(load, expected, state):
    batches = load().to_maxtext()
    with pytest.raises(ConfigError, match="this state cannot be restored"):
        batches.set_state(state)
    assert same(next(batches), expected(0))


def test_a_padding_batch_counts_for_nothing(load):
    batches = load(epochs=1).to_maxtext()
    batch = next(batches)
    padding = batches.get_padding_batch()
    assert {name: (array.shape, array.dtype) for name, array in padding.items()} == {
        name: (array.shape, array.dtype) for name, array in batch.items()
    }
    assert not padding["targets_segmentation"].any()


class Pictures:
    """A loader of something else than tokens."""

    def state(self) -> dict[str, Any]:
        return {}

    def batch(self, number: int) -> dict[str, np.ndarray]:
        return {"image": np.zeros((2, 8)), "inputs": np.full(2, number)}


def test_a_loader_whose_batches_lack_a_key_is_refused_by_name():
    with pytest.raises(ConfigError, match=r"lack inputs_position, inputs_segmentation, targets, .*have image, inputs"):
        MaxTextBatches(Pictures())


def test_arrays_that_are_not_int32_are_refused_with_what_to_do(load):
    wide = load().map(lambda batch: {**batch, "targets": batch["targets"].astype("i8")})
    with pytest.raises(ConfigError, match=r"this loader gives targets int64 \(8, 128\)\n  try: .*astype\('int32'\)"):
        wide.to_maxtext()
