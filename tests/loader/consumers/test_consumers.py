"""Who asks a loader for batches: several threads, another process, one that is interrupted, one with little memory."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np
import pytest

import penstock
from penstock.base.errors import ConfigError, PlanError, TaskError
from penstock.base.memory import own_memory
from tests.loader.making import hash_of

OPTIONS: dict[str, Any] = {"batch_size": 8, "length": 100, "seed": 3}
PINGS_AS_FIELDS = {
    "src_addr": {"ip": "ip_version"},
    "dst_addr": {"ip": "ip_version"},
    "event_time": "time",
    "rtt": "float11",
}


def test_threads_that_ask_in_turn_get_every_batch_once(datasets):
    with penstock.load(datasets.pings, **OPTIONS, workers=2) as loader:
        taken: list[str] = []
        threads = [
            threading.Thread(target=lambda: taken.extend(hash_of(next(loader)) for _ in range(20))) for _ in "ab"
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(taken) == sorted(hash_of(loader.batch(k)) for k in range(40))
        assert loader.step == 40


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_after_any_error_the_same_batch_comes_again(datasets, error):
    failed = []

    def fail_once(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if hash_of(batch) == third and not failed:
            failed.append(True)
            raise error("once")
        return batch

    with penstock.load(datasets.pings, **OPTIONS, workers=1) as plain:
        expected = [hash_of(plain.batch(k)) for k in range(6)]
    third = expected[3]
    with penstock.load(datasets.pings, **OPTIONS, workers=1).map(fail_once) as loader:
        assert [hash_of(next(loader)) for _ in range(3)] == expected[:3]
        with pytest.raises(error):
            next(loader)
        assert loader.state()["step"] == 3
        assert [hash_of(next(loader)) for _ in range(3)] == expected[3:]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("is_started", [True, False])
def test_a_copy_in_another_process_is_refused_and_does_not_hang(datasets, is_started):
    with penstock.load(datasets.pings, **OPTIONS, workers=1) as loader:
        if is_started:
            next(loader)
        child = os.fork()
        if not child:
            try:
                next(loader)
            except ConfigError as refused:
                os._exit(7 if "num_workers=0" in (refused.next_step or "") else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_a_state_of_other_tokens_is_refused_by_name(datasets):
    """The same columns in the same way, but 266 tokens where pings have 267."""
    with (
        penstock.load(datasets.pings, **OPTIONS) as pings,
        penstock.load(datasets.pings, **OPTIONS, fields=PINGS_AS_FIELDS) as fields,
        pytest.raises(ConfigError, match="vocabulary was"),
    ):
        fields.restore(pings.state())


def test_as_many_batches_ahead_as_asked_for(datasets):
    for ahead in (1, 500):
        with penstock.load(datasets.pings, **OPTIONS, ahead=ahead) as loader:
            next(loader)
            assert loader.stats().ahead == ahead


def widen(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {"wide": np.ones((len(batch["inputs"]), 2_000_000), "f4")}  # 64 MB of a batch of 19 KB


def _have_kernels(datasets: Any) -> None:
    """In this process before its memory is measured: they are not what these tests are about."""
    with penstock.load(datasets.pings, **OPTIONS) as loader:
        next(loader)


def test_batches_that_a_function_makes_count_as_memory(datasets):
    """16 of them would be 1 GB ahead."""
    _have_kernels(datasets)
    allowed = own_memory().counted + 330_000_000
    with penstock.load(datasets.pings, **OPTIONS, memory=allowed, workers=2).map(widen) as loader:
        most = 0
        for _ in range(12):
            next(loader)
            most = max(most, own_memory().counted)
        assert most <= allowed


def test_a_function_whose_batches_do_not_fit_is_refused(datasets):
    _have_kernels(datasets)
    allowed = own_memory().counted + 80_000_000
    with (
        penstock.load(datasets.pings, **OPTIONS, memory=allowed).map(widen) as loader,
        pytest.raises(PlanError, match="64 MB each"),
    ):
        next(loader)


def test_half_of_what_mfu_needs_is_refused(datasets):
    with pytest.raises(ConfigError, match="flops_per_token") as refused:
        penstock.load(datasets.pings, **OPTIONS, flops_per_token=6e8)
    assert "peak_flops" in (refused.value.next_step or "")


def forget(batch: dict[str, np.ndarray]) -> None:
    batch.clear()


def stumble(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    raise ValueError(f"{len(batch)} arrays are too many")


def test_a_function_in_threads_is_held_to_what_it_returns(datasets):
    with (
        penstock.load(datasets.pings, **OPTIONS, workers=1).map(forget) as loader,
        pytest.raises(TaskError, match=r"forget\) returned a NoneType at step 0") as told,
    ):
        next(loader)
    assert "return the batch as a dict" in (told.value.next_step or "")


def test_an_error_of_a_function_in_threads_says_where_it_was(datasets):
    with (
        penstock.load(datasets.pings, **OPTIONS, workers=1).map(stumble) as loader,
        pytest.raises(ValueError, match="6 arrays") as raised,
    ):
        next(loader)
    assert any("in step 0 of map(" in note and "stumble" in note for note in raised.value.__notes__)
