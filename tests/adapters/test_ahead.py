"""Batches ahead of the consumer, as tensors and as jax arrays: an error or a refused state loses none of them."""

from __future__ import annotations

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch

from penstock.base.errors import ConfigError
from penstock.loader.consumers.ahead import Ahead
from tests.adapters.comparing import FailsOnce, same

MADE_INTO = {
    "torch": lambda loader: loader.to_torch(),
    "jax": lambda loader: loader.to_jax(),
    "jax, none ahead": lambda loader: loader.to_jax(ahead=0),
    "jax, four ahead": lambda loader: loader.to_jax(ahead=4),
    **({"cuda": lambda loader: loader.to_torch(device="cuda")} if torch.cuda.is_available() else {}),
}


@pytest.fixture(params=MADE_INTO)
def made_into(request):
    return MADE_INTO[request.param]


def step_of(batches) -> int:
    return (batches.state_dict if hasattr(batches, "state_dict") else batches.state)()["step"]


def restore(batches, state) -> None:
    (batches.load_state_dict if hasattr(batches, "load_state_dict") else batches.restore)(state)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("error", [ValueError("once"), KeyboardInterrupt("once")])
def test_after_an_error_in_batch_3_every_batch_still_comes_once(load, expected, made_into, workers, error):
    batches = made_into(load(workers=workers).map(FailsOnce(expected(3), error)))
    number = errors = 0
    while number < 8:
        assert step_of(batches) == number
        try:
            batch = next(batches)
        except type(error):
            errors += 1
            continue
        assert same(batch, expected(number))
        number += 1
    assert errors == 1


def test_an_error_in_placing_or_handing_out_a_batch_loses_none(load, expected):
    failing = {"place 2", "hand out 5"}

    def fail_once(what: str) -> None:
        if what in failing:
            failing.remove(what)
            raise OSError(what)

    def place(batch):
        number = next(number for number in range(12) if np.array_equal(expected(number)["inputs"], batch["inputs"]))
        fail_once(f"place {number}")

        def hand_out():
            fail_once(f"hand out {number}")
            return batch

        return hand_out

    batches = Ahead(load(), place, ahead=2)
    found = []
    while len(found) < 8:
        try:
            found.append(next(batches))
        except OSError:
            assert batches.state()["step"] == len(found)
    assert not failing
    assert all(same(batch, expected(number)) for number, batch in enumerate(found))


@pytest.mark.parametrize("ahead", [-1, 1.5, "2", True, 2**63, None])
def test_a_number_of_batches_ahead_that_cannot_be_is_refused(load, ahead):
    with pytest.raises(ConfigError, match="batches ahead is not possible"):
        Ahead(load(), lambda batch: lambda: batch, ahead=ahead)


def test_a_refused_state_leaves_the_position(load, expected, made_into):
    batches = made_into(load())
    for _ in range(4):
        next(batches)
    with pytest.raises(ConfigError, match="seed was 8 and is 7"):
        restore(batches, load(seed=8).state())
    assert step_of(batches) == 4
    assert all(same(next(batches), expected(number)) for number in range(4, 8))


def test_two_threads_share_the_batches_and_miss_none(load, expected):
    batches = load().to_jax()
    found = []

    def take() -> None:
        for _ in range(10):
            found.append(int(np.asarray(next(batches)["inputs"]).sum()))

    threads = [threading.Thread(target=take) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == sorted(int(expected(number)["inputs"].sum()) for number in range(20))
    assert batches.state()["step"] == 20


def test_a_fork_is_refused_and_the_first_process_goes_on(dataset):
    """In a program of its own: this one has jax in it, whose threads a fork does not survive."""
    program = f"""
import os, penstock
from penstock.base.errors import ConfigError
with penstock.load({str(dataset)!r}, batch_size=8, length=128, workers=1) as loader:
    batches = loader.to_torch()
    next(batches)
    child = os.fork()
    if not child:
        try:
            next(batches)
        except ConfigError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    next(batches)
    assert batches.state_dict()["step"] == 2
"""
    subprocess.run([sys.executable, "-c", program], timeout=120, check=True)
