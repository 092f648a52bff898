"""to_jax: the very batches as jax arrays, on one device, sharded over several, and over several processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from penstock.base.errors import ConfigError
from tests.adapters.comparing import joined, same


def over_devices(*axes: str | None) -> NamedSharding:
    """The first two devices along `data`, times two along `model`."""
    return NamedSharding(Mesh(np.array(jax.devices()[:4]).reshape(2, 2), ("data", "model")), PartitionSpec(*axes))


def test_the_arrays_are_the_very_batches(load, expected):
    batches = load().to_jax()
    for number in range(12):
        batch = next(batches)
        assert all(isinstance(array, jax.Array) for array in batch.values())
        assert same(batch, expected(number))


def test_it_says_what_it_is_in_one_line(load):
    assert repr(load().to_jax()).startswith("<JaxBatches: batches 0 taken, 2 ahead, of <Loader: ")


@pytest.mark.parametrize("sharded", [False, True])
def test_an_array_that_is_kept_does_not_change_when_the_loader_goes_on(load, expected, sharded):
    batches = load().to_jax(over_devices("data") if sharded else None)
    kept = [next(batches) for _ in range(20)]
    for _ in range(20):
        next(batches)
    assert all(same(batch, expected(number)) for number, batch in enumerate(kept))


@pytest.mark.parametrize("axes", [("data",), (("data", "model"),), ("model", "data"), ()])
def test_a_sharding_lays_the_rows_over_the_devices(load, expected, axes):
    sharding = over_devices(*axes)
    batches = load().to_jax(sharding)
    for number in range(4):
        batch = next(batches)
        assert same(batch, expected(number))
        for name, array in batch.items():
            assert array.sharding == sharding
            for shard in array.addressable_shards:
                np.testing.assert_array_equal(np.asarray(shard.data), expected(number)[name][shard.index])


def test_rows_that_are_not_this_rank_s_are_refused(load):
    with pytest.raises(ConfigError, match=r"rank 1 of world 2 loads rows 4 to 8 .* process 0 hold rows 0 to 8"):
        next(load(rank=1, world=2).to_jax(over_devices("data")))


def test_each_of_two_processes_brings_its_rows_of_one_global_batch(dataset, expected, tmp_path):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    environment = {**os.environ, "XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
    script = Path(__file__).with_name("one_process.py")
    told = [tmp_path / f"rank-{rank}.jsonl" for rank in range(2)]
    processes = [
        subprocess.Popen(
            [sys.executable, script, address, str(rank), dataset, told[rank]],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        printed = [process.communicate(timeout=120)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [0, 0], "\n".join(printed)
    lines = [path.read_text().splitlines() for path in told]
    assert [len(each) for each in lines] == [3, 3]
    for number in range(3):
        batch = expected(number)
        first, second = (json.loads(each[number]) for each in lines)
        assert first["shape"] == second["shape"] == list(batch["inputs"].shape)
        assert first["sum"] == second["sum"] == int(batch["inputs"].sum())
        np.testing.assert_array_equal(first["rows"] + second["rows"], batch["inputs"])


@pytest.mark.parametrize("sharded", [False, True])
def test_a_training_loop_learns_and_gives_the_same_losses_again(load, sharded):
    first, again = train(load, sharded), train(load, sharded)
    assert first == again
    assert sum(first[-5:]) < 0.8 * sum(first[:5])


def train(load, sharded: bool, steps: int = 30) -> list[float]:
    weights = {
        "embedding": jax.random.normal(jax.random.key(0), (267, 16)),
        "output": 0.1 * jax.random.normal(jax.random.key(1), (16, 267)),
    }

    def loss(weights, batch):
        logits = weights["embedding"][batch["inputs"]] @ weights["output"]
        picked = jnp.take_along_axis(jax.nn.log_softmax(logits), batch["targets"][..., None], -1)[..., 0]
        mask = batch["targets_segmentation"] != 0
        return -(picked * mask).sum() / mask.sum()

    @jax.jit
    def step(weights, batch):
        value, slope = jax.value_and_grad(loss)(weights, batch)
        return jax.tree.map(lambda weight, change: weight - 2.0 * change, weights, slope), value

    losses = []
    batches = load().to_jax(over_devices("data") if sharded else None)
    for _ in range(steps):
        weights, value = step(weights, next(batches))
        losses.append(float(value))
    return losses


def test_a_donated_batch_leaves_the_loader_s_memory_alone(load, expected):
    add = jax.jit(lambda array: array + 1, donate_argnums=0)
    batches = load().to_jax()
    for number in range(8):
        batch = next(batches)
        np.testing.assert_array_equal(np.asarray(add(batch["inputs"])), expected(number)["inputs"] + 1)


@pytest.mark.parametrize("ahead", [0, 1, 4])
def test_the_state_counts_what_the_consumer_got_and_goes_on_there(load, expected, ahead):
    batches = load().to_jax(ahead=ahead)
    for number in range(6):
        state = json.loads(json.dumps(batches.state()))
        other = load().to_jax(ahead=2)
        other.restore(state)
        assert same(next(other), expected(number))
        assert same(next(batches), expected(number))


def test_a_state_saved_on_one_rank_goes_on_on_two_and_on_four(load, expected):
    batches = load().to_jax()
    for _ in range(5):
        next(batches)
    for world in (2, 4):
        ranks = [load(rank=rank, world=world).to_jax() for rank in range(world)]
        for rank in ranks:
            rank.restore(batches.state())
        assert same(joined([next(rank) for rank in ranks]), expected(5))


def test_finite_epochs_have_a_length_and_end(load):
    batches = load(epochs=1).to_jax(ahead=4)
    assert len(list(batches)) == len(batches) > 3
    assert list(batches) == []
