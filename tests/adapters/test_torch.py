"""to_torch: the very batches as tensors, in a plain loop and under DataLoader and StatefulDataLoader."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from penstock.base.errors import ConfigError
from penstock.loader.consumers.to_torch import _block, _is_one, _same_place
from tests.adapters.comparing import counted_down, joined, same, turned

# On a machine with a GPU the same tests run there too: pinned buffers, a stream of their own.
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_the_tensors_are_the_very_batches(load, expected, device):
    batches = load().to_torch(device=device)
    for number in range(12):
        batch = next(batches)
        assert {tensor.device.type for tensor in batch.values()} == {device}
        assert same(batch, expected(number))


@pytest.mark.parametrize("device", DEVICES)
def test_a_tensor_that_is_kept_does_not_change_when_the_loader_goes_on(load, expected, device):
    batches = load().to_torch(device=device)
    kept = [next(batches) for _ in range(20)]
    for _ in range(20):
        next(batches)
    assert all(same(batch, expected(number)) for number, batch in enumerate(kept))


@pytest.mark.parametrize("device", DEVICES)
def test_a_batch_outlives_what_handed_it_out(load, expected, device):
    loader = load()
    batch = next(loader.to_torch(device=device))
    for _ in range(20):
        next(loader)
    assert same(batch, expected(0))


@pytest.mark.parametrize("device", DEVICES)
def test_arrays_of_a_user_s_function_arrive_too(load, expected, device):
    for function in (counted_down, turned):
        batches = load().map(function).to_torch(device=device)
        kept = [next(batches) for _ in range(12)]
        assert all(same(batch, function(expected(number))) for number, batch in enumerate(kept))


def test_a_batch_is_found_again_in_a_copy_of_its_one_block(load, expected):
    """What the way to a GPU rests on, also where there is none."""
    batch = load(workers=0).batch(3)
    blocks = [_block(array) for array in batch.values()]
    assert all(block is blocks[0] for block in blocks)
    whole, parts = torch.from_numpy(blocks[0]), {name: torch.from_numpy(array) for name, array in batch.items()}
    assert _is_one(whole, list(parts.values()))
    assert same({name: _same_place(whole.clone(), whole, part) for name, part in parts.items()}, expected(3))
    assert not _is_one(whole, [parts["inputs"]])
    assert not _is_one(whole[1:], list(parts.values()))


@pytest.mark.parametrize("device", DEVICES)
def test_a_training_loop_learns_and_gives_the_same_losses_again(load, device):
    first, again = train(load, device), train(load, device)
    assert first == again
    assert sum(first[-5:]) < 0.8 * sum(first[:5])


def train(load, device: str, steps: int = 30) -> list[float]:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(267, 16), torch.nn.Linear(16, 267)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    losses = []
    batches = load().to_torch(device=device, int64=["targets"])
    for _ in range(steps):
        batch = next(batches)
        loss = torch.nn.functional.cross_entropy(model(batch["inputs"]).flatten(0, 1), batch["targets"].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_int64_widens_what_is_named_and_nothing_else(load, expected):
    batch = next(load().to_torch(int64=("targets",)))
    assert {name for name, tensor in batch.items() if tensor.dtype == torch.int64} == {"targets"}
    assert torch.equal(batch["targets"], torch.from_numpy(expected(0)["targets"]).long())
    refusal = r"int64 names labels; this loader's batches have inputs(.|\n)*  try: .*int64=\('inputs',\)"
    with pytest.raises(ConfigError, match=refusal):
        next(load().to_torch(int64=("labels",)))


@pytest.mark.parametrize("device", DEVICES)
def test_the_state_counts_what_the_consumer_got_and_goes_on_there(load, expected, device):
    batches = load().to_torch(device=device, ahead=3)
    for number in range(6):
        state = json.loads(json.dumps(batches.state_dict()))
        other = load().to_torch(device=device, ahead=number)
        other.load_state_dict(state)
        assert same(next(other), expected(number))
        assert same(next(batches), expected(number))


def test_a_state_saved_on_one_rank_goes_on_on_two_and_on_four(load, expected):
    batches = load().to_torch()
    for _ in range(5):
        next(batches)
    for world in (2, 4):
        ranks = [load(rank=rank, world=world).to_torch() for rank in range(world)]
        for rank in ranks:
            rank.load_state_dict(batches.state_dict())
        assert same(joined([next(rank) for rank in ranks]), expected(5))


def test_a_second_loop_goes_on_where_the_first_stopped(load, expected):
    batches = load().to_torch()
    for number, batch in zip(range(3), batches, strict=False):
        assert same(batch, expected(number))
    assert same(next(iter(batches)), expected(3))


def test_finite_epochs_have_a_length_and_end(load):
    batches = load(epochs=1).to_torch()
    assert len(list(batches)) == len(batches) > 3
    assert len(load().to_torch()) - len(batches) in (0, 1)  # the batch in which the epoch ends is one of it


def test_each_for_loop_is_an_epoch(load, expected):
    batches, number = load().to_torch(), 0
    for _ in range(3):
        end = number + len(batches)
        for batch in batches:
            assert same(batch, expected(number))
            number += 1
        assert number == end


def test_a_loader_that_came_to_its_end_goes_on_from_where_it_is_put(load, expected):
    loader = load(epochs=1)
    batches = loader.to_torch()
    state = batches.state_dict()
    assert len(list(batches)) == len(batches)
    assert list(batches) == []
    loader.restore(state)
    assert same(next(batches), expected(0))


def test_a_plain_dataloader_hands_on_the_very_batches(load, expected):
    loader = DataLoader(load().to_torch(), batch_size=None, num_workers=0)
    assert all(same(batch, expected(number)) for number, batch in zip(range(8), loader, strict=False))


def test_a_stateful_dataloader_restored_mid_run_gives_what_an_uninterrupted_one_gives(load, expected):
    loader = StatefulDataLoader(load().to_torch(), batch_size=None, num_workers=0)
    batches = iter(loader)
    for number in range(6):
        state = pickle.loads(pickle.dumps(loader.state_dict()))
        other = StatefulDataLoader(load().to_torch(), batch_size=None, num_workers=0)
        other.load_state_dict(state)
        for later, batch in zip(range(number, number + 3), other, strict=False):
            assert same(batch, expected(later))
        assert same(next(batches), expected(number))


@pytest.mark.parametrize("kind", ["torch.utils.data.DataLoader", "torchdata.stateful_dataloader.StatefulDataLoader"])
def test_worker_processes_are_refused_with_the_reason(dataset, kind):
    """In a program of its own: this one has jax in it, whose threads a fork does not survive."""
    module, _, name = kind.rpartition(".")
    program = f"""
import penstock
from {module} import {name}
with penstock.load({str(dataset)!r}, batch_size=8, length=128, workers=1) as loader:
    next(iter({name}(loader.to_torch(), batch_size=None, num_workers=1, multiprocessing_context="fork")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "every worker would load every batch" in done.stderr
    assert "num_workers=0" in done.stderr


def test_what_would_travel_to_a_spawned_worker_is_refused_with_the_reason(load):
    with pytest.raises(ConfigError, match="every worker would load every batch"):
        pickle.dumps(load().to_torch())


def test_it_is_an_iterable_dataset_to_torch(load):
    assert isinstance(load().to_torch(), torch.utils.data.IterableDataset)


def test_it_says_what_it_is_in_one_line(load):
    batches = load().to_torch()
    next(batches)
    assert repr(batches).startswith("<TorchBatches: batches 1 taken, 0 ahead, of <Loader: ")
    assert batches._repr_html_().startswith("<table><caption>TorchBatches</caption>")
