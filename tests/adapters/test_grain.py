"""dataset(): a Grain MapDataset over the same function; the same bytes in threads and in processes."""

from __future__ import annotations

import pickle
import subprocess
import sys

import grain
import numpy as np
import pytest

from penstock.loader.consumers.to_grain import Batches
from tests.adapters.comparing import counted_down, same


def test_element_k_is_batch_k_wherever_the_loader_stands(load, expected):
    loader = load()
    next(iter(loader))
    dataset = loader.dataset()
    assert isinstance(dataset, grain.MapDataset)
    assert all(same(dataset[number], expected(number)) for number in (5, 0, 11))
    assert same(dataset[loader.step :][0], expected(1))
    assert all(array.flags.owndata for array in dataset[0].values())


@pytest.mark.parametrize("threads", [1, 4, 16])
def test_threads_give_the_same_batches(load, expected, threads):
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    batches = iter(load().dataset().to_iter_dataset(options))
    kept = [next(batches) for _ in range(20)]
    assert all(same(batch, expected(number)) for number, batch in enumerate(kept))
    batches.close()


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_give_the_same_batches(load, expected, workers):
    """In a program that never parsed its absl flags, as this one."""
    options = grain.MultiprocessingOptions(num_workers=workers, per_worker_buffer_size=2)
    batches = iter(load().dataset().to_iter_dataset().mp_prefetch(options))
    assert all(same(next(batches), expected(number)) for number in range(8))
    batches.close()


def test_a_function_of_the_user_s_goes_along_to_the_processes(load, expected):
    options = grain.MultiprocessingOptions(num_workers=1, per_worker_buffer_size=2)
    batches = iter(load().map(counted_down).dataset().to_iter_dataset().mp_prefetch(options))
    assert all(same(next(batches), counted_down(expected(number))) for number in range(3))
    batches.close()


def test_grain_resumes_its_own_checkpoint(load, expected):
    batches = iter(load().dataset().to_iter_dataset())
    for _ in range(4):
        next(batches)
    other = iter(load().dataset().to_iter_dataset())
    other.set_state(batches.get_state())
    assert same(next(other), expected(4))
    batches.close()
    other.close()


def test_a_loader_without_end_has_the_length_of_grain_s_repeat(load):
    assert len(load().dataset()) == len(grain.MapDataset.range(3).repeat()) == sys.maxsize
    finite = load(epochs=1)
    dataset = finite.dataset()
    assert len(dataset) == len(finite) == sum(1 for _ in dataset.to_iter_dataset())


def test_a_source_travels_as_the_arguments_and_opens_a_loader_where_it_arrives(load, expected):
    source = pickle.loads(pickle.dumps(Batches(load())))
    assert len(pickle.dumps(source)) < 2000
    assert same(source[np.int64(3)], expected(3))


def test_flags_that_a_program_parses_afterwards_are_still_parsed(load):
    load().dataset()
    program = """
import sys
from absl import app, flags
flags.DEFINE_integer("size", 1, "")
flags.FLAGS.mark_as_parsed()  # what dataset() does
app.run(lambda argv: sys.exit(flags.FLAGS.size != 5), ["program", "--size=5"])
"""
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
