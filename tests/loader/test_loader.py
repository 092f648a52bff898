"""What `penstock.load` gives and refuses: batches, places saved and restored, threads ended, errors at their batch."""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import penstock
from penstock.base.errors import ConfigError, FileError, OutputError, PenstockError, PlanError
from penstock.base.memory import own_memory
from penstock.base.sizes import parse_size
from penstock.loader.feeding.processes import Functions
from penstock.loader.loader import Loader
from penstock.prepare.job.presets import PRESETS
from tests.loader import transforms
from tests.loader.making import FIELDS, TOKEN_NAMES, Datasets, copied, hash_of, make_arrays, make_pings, prepare, same

ROOT = Path(__file__).parents[2]
Load = Callable[..., Loader]


@pytest.fixture
def load(datasets: Datasets) -> Iterator[Load]:
    """`penstock.load` of pings in small batches, or of what is named; what a test opens is closed after it."""
    opened = []

    def load(path: Any = None, **options: Any) -> Loader:
        usual = {"batch_size": 8, "length": 100, "seed": 3, "workers": 2} if path is None else {"batch_size": 8}
        opened.append(penstock.load(path or datasets.pings, **{**usual, **options}))
        return opened[-1]

    yield load
    for loader in opened:
        loader.close()


def own_threads() -> list[threading.Thread]:
    return [
        thread for thread in threading.enumerate() if thread.name.startswith("penstock-") and thread.name[9:].isdigit()
    ]


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Batches.


@pytest.mark.parametrize("fill", ["packed", "one_key"])
def test_a_batch_of_events_has_six_arrays_of_int32(load, fill):
    batch = next(load(fill=fill))
    assert sorted(batch) == sorted(TOKEN_NAMES)
    assert {array.shape for array in batch.values()} == {(8, 100)}
    assert {array.dtype for array in batch.values()} == {np.dtype("int32")}
    assert all(array.flags.c_contiguous and array.flags.writeable for array in batch.values())


def test_events_of_other_columns_are_encoded_as_their_fields_say(load, datasets):
    loader = load(datasets.events, length=80, fields=FIELDS)
    batch = next(loader)
    decoded = penstock.decode(batch["inputs"], loader.vocabulary, batch["inputs_segmentation"])
    assert all(measurement["number"] >= 0 for row in decoded for measurement in row if "number" in measurement)
    assert {name for row in decoded for measurement in row for name in measurement} >= set(FIELDS)


def test_token_rows_come_as_they_were_packed(load, datasets):
    records = penstock.open(datasets.rows)[:].to_pylist()
    batch = next(load(datasets.rows, shuffle=False))
    for row, record in enumerate(records[:8]):
        assert [*batch["inputs"][row], batch["targets"][row][-1]] == record["tokens"]
        starts = [0, *(start for start in record["documents"] if start)]
        segments = np.searchsorted(starts, np.arange(65), side="right")
        assert batch["inputs_segmentation"][row].tolist() == segments[:-1].tolist()
        inside = segments[1:] == segments[:-1]
        assert batch["targets_segmentation"][row].tolist() == (segments[:-1] * inside).tolist()
        positions = np.arange(65) - np.array(starts)[segments - 1]
        assert batch["inputs_position"][row].tolist() == positions[:-1].tolist()
        assert batch["targets_position"][row].tolist() == (positions[1:] * inside).tolist()


def test_token_rows_may_have_lengths_of_their_own(load, datasets):
    records = penstock.open(datasets.ragged_rows)[:].to_pylist()
    batch = next(load(datasets.ragged_rows, length=60, shuffle=False))
    for row, record in enumerate(records[:8]):
        count = len(record["tokens"])
        assert batch["inputs"][row].tolist() == [*record["tokens"], *[0] * (60 - count)]


@pytest.mark.parametrize("length", [32, 33, None])
def test_rows_of_their_own_width_or_one_less_are_whole(load, datasets, length):
    """With one less, the last token is a target alone."""
    loader = load(datasets.plain_rows, length=length)
    batch = next(loader)
    assert batch["inputs"].shape == (8, 33 if length == 33 else 32)
    assert np.count_nonzero(batch["targets_segmentation"]) == 8 * 32
    assert loader.stats().tokens_truncated == 0


@pytest.mark.parametrize("length", [31, 10, 1])
def test_rows_that_would_lose_tokens_are_refused_unless_that_is_asked_for(load, datasets, length):
    with pytest.raises(ConfigError, match=f"length={length} takes {length + 1} tokens") as refused:
        load(datasets.plain_rows, length=length)
    assert "its rows have 33" in refused.value.what
    assert "length=32, or overflow='truncate'" in refused.value.next_step
    loader = load(datasets.plain_rows, length=length, overflow="truncate", workers=0, shuffle=False)
    batch = next(loader)
    record = penstock.open(datasets.plain_rows)[0]["tokens"]
    assert batch["inputs"][0].tolist() == list(record[:length])
    assert batch["targets"][0].tolist() == list(record[1 : length + 1])
    assert loader.stats().tokens_truncated == 8 * (33 - length - 1)


def test_rows_of_different_lengths_are_refused_where_one_is_longer(load, datasets):
    lengths = [len(record["tokens"]) for record in penstock.open(datasets.ragged_rows)]
    longer = sum(each > 51 for each in lengths)
    with pytest.raises(ConfigError, match=f"{longer} rows have more, up to {max(lengths)}") as refused:
        load(datasets.ragged_rows, length=50)
    assert f"length={max(lengths) - 1}, or overflow='truncate'" in refused.value.next_step
    assert load(datasets.ragged_rows, length=max(lengths) - 1).stats().tokens_truncated == 0
    loader = load(datasets.ragged_rows, length=50, overflow="truncate", shuffle=False, workers=0, epochs=1)
    for _ in loader:
        pass
    assert loader.stats().tokens_truncated == sum(max(0, each - 51) for each in lengths)


def test_overflow_is_part_of_the_recipe(load, datasets):
    whole = load(datasets.plain_rows)
    with pytest.raises(ConfigError, match="overflow was None and is 'truncate'"):
        load(datasets.plain_rows, overflow="truncate").restore(whole.state())


@pytest.mark.parametrize(("name", "options"), [("pings", {"length": 50}), ("arrays", {})])
def test_overflow_is_refused_where_no_rows_were_packed(load, datasets, name, options):
    with pytest.raises(ConfigError, match="overflow='truncate' is an option for packed rows of tokens"):
        load(getattr(datasets, name), overflow="truncate", **options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("arrays", {"length": 50}),
        ("arrays", {"fill": "packed"}),
        ("arrays", {"fill": "one_key"}),
        ("arrays", {"mix_by": "tokens"}),
        ("arrays", {"fields": {"label": "int"}, "columns": ["label"]}),
        ("plain_rows", {"fill": "packed"}),
    ],
)
def test_an_option_that_means_nothing_to_such_data_is_refused_by_name(load, datasets, name, options):
    option = next(iter(options))
    with pytest.raises(ConfigError, match=f"{option}=.* is an option for .*, but this dataset is loaded as") as refused:
        load(getattr(datasets, name), **options)
    assert refused.value.next_step == f"leave {option}= out"


def test_arrays_come_under_their_own_names_and_types(load, datasets):
    wanted = ["features", "mask", "label", "weight", "is_won"]
    batch = next(load(datasets.arrays, columns=wanted, shuffle=False))
    shapes = {name: (array.dtype.str, array.shape) for name, array in batch.items()}
    assert shapes == {
        "features": ("<f4", (8, 7)),
        "mask": ("|b1", (8, 3)),
        "label": ("<i2", (8,)),
        "weight": ("<f8", (8,)),
        "is_won": ("|b1", (8,)),
    }
    table = penstock.open(datasets.arrays)[:8]
    for name in wanted:
        assert batch[name].tolist() == table[name].to_pylist()


@pytest.mark.parametrize("world", [2, 4, 8])
def test_the_slices_of_all_ranks_are_the_global_batch(load, world):
    whole = load(workers=0)
    ranks = [load(rank=rank, world=world, workers=0) for rank in range(world)]
    for k in (0, 5):
        parts = [rank.batch(k) for rank in ranks]
        assert {len(part["inputs"]) for part in parts} == {8 // world}
        assert same({name: np.concatenate([part[name] for part in parts]) for name in parts[0]}, whole.batch(k))


def test_batch_k_is_the_kth_of_the_iteration_whatever_was_asked_before(load):
    loader = load()
    expected = [hash_of(load(workers=0).batch(k)) for k in range(12)]
    assert [hash_of(next(loader)) for _ in range(6)] == expected[:6]
    assert [hash_of(loader.batch(k)) for k in (11, 0, 7)] == [expected[k] for k in (11, 0, 7)]
    assert [hash_of(next(loader)) for _ in range(6)] == expected[6:]


def test_batches_may_be_asked_for_while_another_thread_iterates(load):
    loader, alone = load(), load(workers=0)
    expected = [hash_of(alone.batch(k)) for k in range(40)]
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(hash_of(next(loader)) for _ in range(40)))
    thread.start()
    assert [hash_of(loader.batch(k)) for k in reversed(range(40))] == expected[::-1]
    thread.join()
    assert found == expected


def test_a_second_iterator_goes_on_where_the_first_stands(load):
    loader = load()
    first, second = iter(loader), iter(loader)
    found = [hash_of(next(each)) for each in (first, second, first, second)]
    assert found == [hash_of(loader.batch(k)) for k in range(4)]


@pytest.mark.parametrize("wrong", [-1, 10**6])
def test_a_batch_that_is_not_there_is_refused(load, wrong):
    with pytest.raises(IndexError, match="there is no batch"):
        load(epochs=1).batch(wrong)
    with pytest.raises(TypeError, match="by its number"):
        load().batch("1")


# The end.


def test_the_length_is_that_of_the_epochs(load):
    loader = load(epochs=2)
    rows = 2 * loader._parts.phases.first.order.streams[0].rows
    assert len(loader) == rows // 8 == len(list(loader))
    with pytest.raises(StopIteration):
        next(loader)


@pytest.mark.parametrize("remainder", ["drop", "pad"])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_every_rank_ends_on_the_same_step(load, datasets, remainder, world):
    """700 rows, 12 a batch: 58 whole ones and one of 4, of which some ranks have nothing."""
    steps = []
    for rank in range(world):
        loader = load(datasets.rows, batch_size=12, rank=rank, world=world, epochs=1, remainder=remainder, workers=1)
        steps.append(sum(1 for _ in loader))
    assert steps == [58 if remainder == "drop" else 59] * world


def test_a_padded_remainder_is_zeros_behind_the_last_row(load, datasets):
    loader = load(datasets.rows, batch_size=12, epochs=1, remainder="pad", workers=0)
    last = list(loader)[-1]
    assert last["inputs_segmentation"][:4].all()
    assert not any(array[4:].any() for array in last.values())
    dropped = load(datasets.rows, batch_size=12, epochs=1, workers=0)
    assert same(loader.batch(57), dropped.batch(57))


def test_an_epoch_has_every_row_once(load, datasets):
    loader = load(datasets.rows, batch_size=7, epochs=2)
    rows = [row.tobytes() for batch in loader for row in batch["inputs"]]
    assert len(rows) == 1400
    assert len(set(rows[:700])) == len(set(rows[700:])) == 700
    assert set(rows[:700]) == set(rows[700:])
    assert rows[:700] != rows[700:]


# State.


def test_a_state_is_small_and_survives_json(load, datasets):
    many = [datasets.rows] * 40
    for loader in (load(), load(datasets.events, length=50, fields=FIELDS), load(many), load().map(transforms.echo)):
        for _ in range(3):
            next(loader)
        text = json.dumps(loader.state())
        assert len(text) < 1024
        loader.restore(json.loads(text))
        assert loader.step == 3


def test_numpy_numbers_are_as_good_as_any(load):
    loader = load(batch_size=np.int64(8), seed=np.uint64(3), length=np.int32(100), world=np.int8(2), rank=np.int8(1))
    assert json.dumps(loader.state()) == json.dumps(load(world=2).state())
    assert same(loader.batch(2), load(world=2, rank=1).batch(2))


def test_a_restored_loader_goes_on_with_the_very_next_batch(load):
    first = load()
    for _ in range(5):
        next(first)
    state = first.state()
    second = load(workers=1)
    next(second)
    second.restore(state)
    assert second.step == 5
    assert [hash_of(next(second)) for _ in range(5)] == [hash_of(first.batch(k)) for k in range(5, 10)]
    first.restore(state)
    assert hash_of(next(first)) == hash_of(first.batch(5))


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": 4}, "seed was 3 and is 4"),
        ({"batch_size": 16}, "batch_size was 8 and is 16"),
        ({"length": 90}, "length was 100 and is 90"),
        ({"fill": "one_key"}, "fill was 'packed' and is 'one_key'"),
        ({"shuffle": False}, "shuffle was True and is False"),
        ({"split": "test"}, "split was 'train' and is 'test'"),
        ({"fields": {"rtt": "float11"}}, "vocabulary was"),
    ],
)
def test_a_state_of_another_recipe_is_refused_by_name(load, options, name):
    with pytest.raises(ConfigError, match=name) as refused:
        load(**options).restore(load().state())
    assert "load with the options it was saved with" in refused.value.next_step


def test_a_state_of_other_data_is_refused_by_name(load, datasets):
    state = load().state()
    with pytest.raises(ConfigError, match="of other data") as refused:
        load(datasets.more_pings, length=100, seed=3).restore(state)
    assert state["datasets"][0] in refused.value.what
    with pytest.raises(ConfigError, match="of other data"):
        load([datasets.pings, datasets.more_pings], length=100, seed=3).restore(state)


def test_a_state_of_other_shares_or_another_map_is_refused_by_name(load, datasets):
    both = [datasets.pings, datasets.more_pings]
    with pytest.raises(ConfigError, match="shares was"):
        load(both, length=100, weights=[2, 1]).restore(load(both, length=100).state())
    with pytest.raises(ConfigError, match="map was"):
        load().map(transforms.echo).restore(load().state())
    with pytest.raises(ConfigError, match="map was"):
        load().map(transforms.echo).restore(load().map(transforms.double).state())


@pytest.mark.parametrize("state", [{}, None, [], {"version": 2, "datasets": [], "recipe": {}}])
def test_what_is_no_state_is_refused(load, state):
    with pytest.raises(ConfigError, match=r"it has no .*step|it is no dict"):
        load().restore(state)


@pytest.mark.proof
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        *(("step", wrong, "its step is") for wrong in (1.5, 3.0, "3", True, None, [3], math.nan, -1, 2**63, 2**40 + 1)),
        *(("version", wrong, "version") for wrong in ("2", 2.0, True, None, 0, -1, 3)),
        *(("datasets", wrong, "its datasets are") for wrong in (None, "abc", 7, {"a": 1}, [1], [None])),
        *(("recipe", wrong, "its recipe is") for wrong in (None, "seed", 7, [], [["seed", 3]], {1: 2})),
        ("recipe", {}, "of another recipe"),
        ("recipe", {"seed": math.nan}, "seed was nan and is 3"),
        ("recipe", {"seed": np.arange(3)}, "seed was"),
    ],
)
def test_nonsense_in_a_state_is_refused_by_name(load, name, value, told):
    loader = load()
    state = loader.state()
    wrong = {**state["recipe"], **value} if name == "recipe" and isinstance(value, dict) and value else value
    with pytest.raises(ConfigError, match=told):
        loader.restore({**state, name: wrong})
    assert loader.step == 0


def test_a_step_of_numpy_is_a_step(load):
    loader = load()
    loader.restore({**loader.state(), "step": np.int64(3)})
    assert (loader.step, type(loader.step)) == (3, int)


def test_a_state_of_the_earlier_order_is_refused_by_name(load):
    loader = load()
    with pytest.raises(ConfigError, match="made by an earlier version, whose order was different") as refused:
        loader.restore({**loader.state(), "version": 1})
    assert "start a new pass over the data" in refused.value.next_step


def test_a_state_that_is_still_text_is_told_so(load):
    with pytest.raises(ConfigError) as refused:
        load().restore(json.dumps(load().state()))
    assert refused.value.next_step == "json.loads it first"


def test_a_state_of_another_version_or_beyond_the_end_is_refused(load):
    loader = load(epochs=1)
    with pytest.raises(ConfigError, match="version 99"):
        loader.restore({**loader.state(), "version": 99})
    with pytest.raises(ConfigError, match="1 epoch has"):
        loader.restore({**loader.state(), "step": 10**6})
    with pytest.raises(ConfigError, match="step is -1"):
        loader.restore({**loader.state(), "step": -1})
    loader.restore({**loader.state(), "step": len(loader)})
    with pytest.raises(StopIteration):
        next(loader)


def test_a_state_goes_on_at_another_world_and_with_other_workers(load):
    one = load()
    for _ in range(3):
        next(one)
    ranks = [load(rank=rank, world=4, workers=rank) for rank in range(4)]
    for rank in ranks:
        rank.restore(one.state())
    parts = [next(rank)["inputs"] for rank in ranks]
    np.testing.assert_array_equal(np.concatenate(parts), one.batch(3)["inputs"])


# Buffers.


def test_batches_that_are_kept_never_change(load):
    loader, alone = load(), load(workers=0)
    kept = [next(loader) for _ in range(50)]
    for _ in range(100):
        next(loader)
    assert all(same(batch, alone.batch(k)) for k, batch in enumerate(kept))


def test_one_array_or_a_view_of_it_keeps_its_values_too(load):
    loader = load(workers=1)
    kept = [next(loader)["targets"][2:4, 1:] for _ in range(20)]
    for _ in range(50):
        next(loader)
    assert all((view == loader.batch(k)["targets"][2:4, 1:]).all() for k, view in enumerate(kept))


def test_memory_of_batches_that_are_gone_is_used_again(load):
    loader = load(workers=1, ahead=2)
    places = set()
    for _ in range(100):
        batch = next(loader)
        places.add(batch["inputs"].ctypes.data)
        del batch
    assert len(places) <= 5


def test_what_a_consumer_writes_into_a_batch_is_not_in_the_next(load):
    loader, alone = load(workers=1, ahead=2), load(workers=0)
    for k in range(30):
        batch = next(loader)
        assert same(batch, alone.batch(k))
        for array in batch.values():
            array[:] = -99


# map.


def test_map_is_applied_to_every_batch_in_order(load):
    mapped, plain = load().map(transforms.double).map(add_row), load(workers=0)
    for k in range(5):
        batch = next(mapped)
        assert same(batch, add_row(transforms.double(plain.batch(k))))
        assert same(mapped.batch(k), batch)


def add_row(batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return {**batch, "row": np.arange(len(batch["inputs"]))}


@pytest.mark.proof
def test_map_in_processes_gives_the_same(load):
    plain = load(workers=0).map(transforms.double)
    for workers in (0, 1, "auto"):
        mapped = load(workers=workers).map(transforms.double, processes=2)
        assert [hash_of(next(mapped)) for _ in range(4)] == [hash_of(plain.batch(k)) for k in range(4)]
        mapped.close()


class FailsAt:
    """Raises at one batch of some, told by its first tokens."""

    def __init__(self, batch: dict[str, np.ndarray]) -> None:
        self.first = hash_of(batch)
        self.fails = True

    def __call__(self, batch: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if self.fails and hash_of(batch) == self.first:
            raise ValueError("this batch cannot be")
        return batch


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_an_error_in_map_comes_out_at_its_own_batch(load, workers):
    function = FailsAt(load(workers=0).batch(4))
    loader, alone = load(workers=workers).map(function), load(workers=0)
    for k in range(4):
        assert same(next(loader), alone.batch(k))
    for _ in range(2):  # and again, as long as it fails
        with pytest.raises(ValueError, match="cannot be"):
            next(loader)
        assert loader.state()["step"] == 4
    function.fails = False
    assert [hash_of(next(loader)) for _ in range(3)] == [hash_of(alone.batch(k)) for k in (4, 5, 6)]
    loader.close()
    assert not own_threads()


def test_map_takes_functions_alone(load):
    with pytest.raises(ConfigError, match="takes a function, not int"):
        load().map(3)


# The end of a loader.


def test_close_ends_threads_and_processes(load):
    loader = load(workers=3).map(transforms.sign, processes=2)
    pid = int(next(loader)["pid"][0])
    assert len(own_threads()) == 3
    assert Path(f"/proc/{pid}").exists()
    loader.close()
    loader.close()
    assert not own_threads()
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    with pytest.raises(ConfigError, match="closed") as refused:
        next(loader)
    assert "penstock.load" in refused.value.next_step


def test_a_loader_in_a_with_block_is_closed(load):
    with load() as loader:
        next(loader)
        assert own_threads()
    assert not own_threads()


def test_a_loader_that_is_dropped_ends_its_threads_and_processes(datasets):
    loader = penstock.load(datasets.pings, batch_size=8, length=100, workers=2).map(transforms.sign, processes=2)
    pid = int(next(loader)["pid"][0])
    assert own_threads()
    del loader
    gc.collect()
    wait_until(lambda: not own_threads())
    wait_until(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.proof
@pytest.mark.parametrize("processes", [0, 2])
def test_a_loader_that_is_collected_in_a_thread_of_its_own_ends_too(datasets, processes):
    held: list[Any] = []
    plain = penstock.load(datasets.pings, batch_size=8, length=100, workers=2)
    kind = ForgetfulKind(plain._parts.kind, held)
    held.append(Loader(replace(plain._parts, kind=kind, functions=Functions((transforms.echo,), processes))))
    held.append(held)  # a cycle: only the collector ends it
    gc.disable()
    try:
        next(held[0])
        kind.forgets = True
        wait_until(lambda: not own_threads())
    finally:
        gc.enable()


class ForgetfulKind:
    """A kind of data like another; when it forgets, the last reference to its loader goes while a batch is made."""

    def __init__(self, kind: Any, held: list[Any]) -> None:
        self._kind, self._held, self.forgets = kind, held, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kind, name)

    def fill(self, draws: Any, out: Any) -> Any:
        time.sleep(0.05)  # some batches ahead are still to be made when it is told to forget
        if self.forgets:
            self._held.clear()
            gc.collect()
        return self._kind.fill(draws, out)


def test_the_end_of_the_epochs_ends_the_threads(load):
    loader = load(epochs=1)
    list(loader)
    assert not own_threads()


@pytest.mark.proof
def test_a_program_that_forgets_to_close_still_ends(datasets):
    program = f"""
        import penstock
        loader = penstock.load({str(datasets.pings)!r}, batch_size=8, length=100, workers=2)
        print(next(loader)["inputs"].shape)
    """
    done = run_python(program)
    assert (done.returncode, done.stdout.strip()) == (0, "(8, 100)"), done.stderr


def test_no_thread_is_started_without_workers(load):
    loader = load(workers=0)
    for _ in range(3):
        next(loader)
    assert not own_threads()


# Memory.


def test_memory_that_is_too_small_is_refused_with_the_numbers(load):
    with pytest.raises(PlanError) as refused:
        load(memory="1MB")
    assert "memory: 1MB" in refused.value.what.replace("memory: memory:", "memory:")
    assert "in use by this process" in refused.value.what
    with load() as warm:  # kernels, and what they are loaded with
        next(warm)
    with pytest.raises(PlanError, match="do not fit") as refused:
        load(memory=own_memory().counted + 10**6, ahead=400)
    assert "402 are needed" in refused.value.what
    enough = refused.value.next_step.split("'")[1]
    next(load(memory=parse_size(enough) + 20 * 10**6, ahead=400))  # this process may have grown since


def test_a_large_batch_is_made_with_fewer_ahead(load):
    with load(batch_size=256) as warm:  # kernels, and what they are loaded with: this may be its process's first test
        next(warm)
    loader = load(batch_size=256, memory=own_memory().counted + 8 * 10**6)
    assert 2 <= loader.stats().ahead < 16
    for _ in range(5):
        next(loader)


def test_columns_in_memory_give_the_same_bytes(load):
    held, mapped = load(cache="memory"), load(workers=0)
    assert [hash_of(next(held)) for _ in range(10)] == [hash_of(mapped.batch(k)) for k in range(10)]


def test_columns_in_memory_are_refused_when_they_cannot_fit(load):
    with pytest.raises(PlanError, match="cache='memory' needs") as refused:
        load(cache="memory", memory=own_memory().counted + 1000)
    assert "leave cache= out" in refused.value.next_step


@pytest.mark.parametrize("kind", ["pings", "rows", "arrays"])
def test_data_larger_than_memory_gives_the_same_bytes(load, datasets, kind):
    options = {"pings": {"length": 100}, "rows": {}, "arrays": {"columns": ["features", "label"]}}[kind]
    path = getattr(datasets, kind)
    large, usual = load(path, cache="disk", **options), load(path, workers=0, **options)
    assert [hash_of(next(large)) for _ in range(10)] == [hash_of(usual.batch(k)) for k in range(10)]


# What is refused.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"batch_size": 0}, "batch_size=0"),
        ({"batch_size": "8"}, "batch_size='8'"),
        ({"batch_size": 8.0}, "batch_size=8.0"),
        ({"batch_size": True}, "batch_size=True"),
        ({"batch_size": 2**63}, "batch_size="),
        ({"batch_size": np.array([8])}, "batch_size="),
        ({"batch_size": np.float64(8)}, "batch_size="),
        ({"length": "100"}, "length='100'"),
        ({"length": 2**63}, "length="),
        ({"length": 2**31 - 1, "memory": "1GB"}, "2,147,483,647 tokens"),
        ({"length": True}, "length=True"),
        ({"seed": "3"}, "seed='3'"),
        ({"seed": True}, "seed=True"),
        ({"seed": 1.5}, "seed=1.5"),
        ({"world": True}, "world=True"),
        ({"world": "2"}, "world='2'"),
        ({"rank": False}, "rank=False"),
        ({"rank": 0.0}, "rank=0.0"),
        ({"workers": True}, "workers=True"),
        ({"workers": "2"}, "workers='2'"),
        ({"workers": 2**63}, "workers="),
        ({"workers": np.array([1, 2])}, "workers="),
        ({"epochs": True}, "epochs=True"),
        ({"epochs": 2**63}, "epochs="),
        ({"ahead": True}, "ahead=True"),
        ({"ahead": 2.0}, "ahead=2.0"),
        ({"ahead": 2**63}, "ahead="),
        ({"memory": True}, "memory=True"),
        ({"memory": 1.5}, "memory=1.5"),
        ({"memory": -5}, "memory=-5"),
        ({"memory": math.nan}, "memory=nan"),
        ({"log_every": True}, "log_every=True"),
        ({"log_every": "3"}, "log_every='3'"),
        ({"log_every": math.nan}, "log_every=nan"),
        ({"log_every": math.inf}, "log_every=inf"),
        ({"flops_per_token": "3", "peak_flops": 1.0}, "flops_per_token='3'"),
        ({"flops_per_token": 1.0, "peak_flops": -1}, "peak_flops=-1"),
        ({"shuffle": "no"}, "shuffle='no'"),
        ({"shuffle": 1}, "shuffle=1"),
        ({"fill": np.array(["packed", "one_key"])}, "fill="),
        ({"overflow": "drop"}, "overflow='drop'"),
        ({"columns": "rtt"}, "columns='rtt'"),
        ({"split": 3}, "split=3"),
        ({"split": ""}, "there is no split ''"),
        ({"weights": 1}, "weights=1"),
        ({"weights": "1"}, "weights='1'"),
        ({"weights": [math.nan]}, "one is nan"),
        ({"weights": [True]}, "one is True"),
        ({"weights": ["1"]}, "one is '1'"),
        ({"weights": [[1]]}, "one is [1]"),
        ({"length": 0}, "length=0"),
        ({"length": 1.5}, "length=1.5"),
        ({"seed": -1}, "seed=-1"),
        ({"seed": 2**64}, "seed="),
        ({"seed": None}, "seed=None"),
        ({"world": 0}, "world=0"),
        ({"rank": 1}, "rank=1"),
        ({"rank": -1, "world": 2}, "rank=-1"),
        ({"workers": -1}, "workers=-1"),
        ({"workers": "many"}, "workers='many'"),
        ({"epochs": 0}, "epochs=0"),
        ({"epochs": 0.5}, "epochs=0.5"),
        ({"fill": "padded"}, "fill='padded'"),
        ({"cache": "tape"}, "cache='tape'"),
        ({"mix_by": "bytes"}, "mix_by='bytes'"),
        ({"remainder": "keep"}, "remainder='keep'"),
        ({"ahead": 0}, "ahead=0"),
        ({"log_every": 0}, "log_every=0"),
        ({"world": 3}, "cannot be divided evenly by world=3"),
        ({"length": None}, "needs length="),
        ({"weights": [1, 2]}, "2 numbers for 1 dataset"),
        ({"fields": {"src_adr": "ip"}}, "'src_adr'"),
        ({"fields": {"rtt": "ip"}}, "'rtt' has type"),
        ({"fields": {"src_addr": "ip"}}, "is a list"),
        ({"fields": {"rtt": "float12"}}, "'float12'"),
        ({"columns": ["rtt"]}, "fixed-size lists"),
        ({"columns": ["rt"]}, "'rt'"),
        ({"columns": []}, "no column"),
        ({"memory": "plenty"}, "plenty"),
        ({"batch_size": 10**6, "epochs": 1}, "but a batch needs 1,000,000"),
        ({"split": "tset"}, "'tset'"),
        ({"length": 5}, "length=5"),
    ],
)
def test_an_option_that_cannot_be_is_refused_with_a_next_step(load, options, named):
    with pytest.raises(PenstockError) as refused:
        load(**options)
    assert named in refused.value.what
    assert refused.value.next_step


def test_a_batch_that_ranks_cannot_share_is_refused_with_ones_they_can(load):
    with pytest.raises(ConfigError) as refused:
        load(batch_size=10, world=4)
    assert "8 or 12" in refused.value.next_step
    with pytest.raises(ConfigError) as refused:
        load(batch_size=2, world=4)
    assert "4 or 8" in refused.value.next_step


def test_a_length_beyond_the_rows_is_refused_with_theirs(load, datasets):
    with pytest.raises(ConfigError, match="65 tokens") as refused:
        load(datasets.rows, length=66)
    assert "up to 65" in refused.value.next_step
    with pytest.raises(ConfigError, match="different lengths"):
        load(datasets.ragged_rows)


def test_a_batch_of_arrays_has_every_column_but_text(load, datasets):
    batch = next(load(datasets.arrays))
    assert "features" in batch
    assert "name" not in batch


def test_a_text_column_that_is_asked_for_is_refused_by_name(load, datasets):
    with pytest.raises(ConfigError, match=r"name \(string\)") as refused:
        load(datasets.arrays, columns=["features", "name"])
    assert "features" in refused.value.next_step


def test_datasets_of_other_columns_cannot_be_mixed(load, datasets):
    with pytest.raises(ConfigError, match="cannot be mixed"):
        load([datasets.pings, datasets.rows], length=50)
    with pytest.raises(ConfigError, match="no dataset"):
        penstock.load([], batch_size=8)


@pytest.mark.parametrize(
    ("first", "other", "words"),
    [
        ("kept_rows", "kept_ragged_rows", "one have any number of tokens, and those of the other 33 tokens each"),
        ("rows", "plain_rows", "one have 33 tokens each, and those of the other 65 tokens each"),
    ],
)
def test_rows_that_were_packed_in_other_ways_are_refused_with_their_lengths(load, datasets, first, other, words):
    with pytest.raises(ConfigError, match=f"cannot be mixed: their columns differ: the rows of {words}") as refused:
        load([getattr(datasets, first), getattr(datasets, other)])
    assert "`method` of `pack`" in refused.value.next_step


def test_events_that_are_no_pings_need_their_fields_said(load, datasets):
    with pytest.raises(ConfigError, match="`fields` must say how") as refused:
        load(datasets.events, length=50)
    assert "fields=" in refused.value.next_step


def test_mixed_epochs_that_end_before_a_block_say_so(load, datasets):
    with pytest.raises(ConfigError, match="1 epoch has 0 rows") as refused:
        load([datasets.rows, datasets.more_rows], epochs=1, weights=[1, 0.00001])
    assert "blocks of 100,001 rows" in refused.value.where


def test_a_dataset_that_is_not_there_or_not_finished_is_refused(load, datasets, tmp_path):
    with pytest.raises((OutputError, FileError)) as refused:
        load(tmp_path / "nowhere", length=50)
    assert refused.value.next_step
    unfinished = tmp_path / "unfinished"
    for name in (path.relative_to(datasets.pings) for path in datasets.pings.rglob("*.safetensors")):
        (unfinished / name).parent.mkdir(parents=True, exist_ok=True)
        (unfinished / name).write_bytes((datasets.pings / name).read_bytes())
    with pytest.raises((OutputError, FileError)) as refused:
        load(unfinished, length=50)
    assert refused.value.next_step


@pytest.mark.parametrize("kind", ["pings", "rows"])
def test_a_split_without_records_is_refused(load, tmp_path, kind):
    grouped = PRESETS["pings"].stages({"test": 0})
    stages = [{"filter": "rtt > 1e30"}, *grouped] if kind == "pings" else [{"filter": "label > 100"}]
    path = prepare(tmp_path, make_pings(50, 5, 1) if kind == "pings" else make_arrays(20, 1), stages)
    with pytest.raises(PenstockError) as refused:
        load(path, length=50)
    assert "no records" in refused.value.what or "no split" in refused.value.what
    assert refused.value.next_step


# Where little is installed.


def run_python(program: str, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def only(folder: Path, *packages: str) -> str:
    """A path to import from that has penstock and these packages alone."""
    for package in packages:
        site = Path(np.__file__).parents[1]
        for each in site.glob(f"{package}*"):
            if each.name in (package, f"{package}.libs", f"{package}.py"):
                (folder / each.name).symlink_to(each)
    return os.pathsep.join([str(folder), str(ROOT / "src")])


HASHES = """
    import sys, warnings, hashlib
    import numpy as np
    import penstock
    {block}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = hashlib.sha256()
        for path, options in {loads!r}:
            with penstock.load(path, batch_size=4, seed=3, **options) as loader:
                for _ in range(3):
                    for name, array in next(loader).items():
                        found.update(array.tobytes())
                loader.restore(loader.state())
                loader.stats()
        penstock.decode([0])
    print(found.hexdigest())
    print(sorted({{name.split(".")[0] for name in sys.modules}} & {{"pyarrow", "pydantic", "typer", "rich", "numba"}}))
    print([str(each.message) for each in told])
"""


@pytest.fixture
def loads(datasets: Datasets) -> list[tuple[str, dict[str, Any]]]:
    return [
        (str(datasets.pings), {"length": 100}),
        (str(datasets.pings), {"length": 100, "fill": "one_key"}),
        (str(datasets.events), {"length": 60, "fields": FIELDS}),
        (str(datasets.rows), {}),
        (str(datasets.arrays), {"columns": ["features", "label"]}),
    ]


@pytest.mark.proof
def test_the_core_needs_numpy_numba_and_xxhash_alone(loads, tmp_path):
    program = HASHES.format(block="", loads=loads)
    everything = run_python(program)
    path = only(tmp_path, "numpy", "numba", "llvmlite", "xxhash")
    little = run_python(program, "-S", PYTHONPATH=path)
    assert little.returncode == 0, little.stderr
    # Numba imports what other packages register with it: where awkward is installed, Arrow comes with it.
    assert little.stdout.splitlines()[0] == everything.stdout.splitlines()[0]
    assert "['numba']" in little.stdout
    assert run_python("import pyarrow", "-S", PYTHONPATH=path).returncode != 0


@pytest.mark.proof
def test_without_numba_the_plain_code_gives_the_same_bytes_and_says_so(loads, tmp_path):
    program = HASHES.format(block="", loads=loads)
    compiled, asked = run_python(program), run_python(program, PENSTOCK_PLAIN="1")
    without = run_python(program, "-S", PYTHONPATH=only(tmp_path, "numpy", "xxhash"))
    assert without.returncode == 0, without.stderr
    assert len({each.stdout.splitlines()[0] for each in (compiled, asked, without)}) == 1
    assert "numba cannot be imported" in without.stdout
    assert without.stdout.count("numba cannot be imported") == 1
    assert "penstock[loader]" in without.stdout
    assert "numba" not in asked.stdout


# .arrayrecord files.


def test_old_records_load_with_a_message(datasets, tmp_path):
    table = pq.read_table(datasets.pings.parent / "input.parquet").slice(0, 1000)
    table = table.filter(table["dst_addr"].is_valid())
    stages = PRESETS["pings"].stages({"test": 0.1})
    old = prepare(tmp_path / "old", table, stages, format="arrayrecord")
    for fill in ("packed", "one_key"):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            options = {"batch_size": 4, "length": 100, "seed": 3, "fill": fill}
            with penstock.load(old / "train.arrayrecord", **options) as loader:
                kept = [copied(next(loader)) for _ in range(4)]
                assert all(same(loader.batch(k), batch) for k, batch in enumerate(kept))
                state = loader.state()
        messages = [str(each.message) for each in told if "arrayrecord" in str(each.message)]
        assert len(messages) == 1
        assert "`penstock run` saves at least the first" in messages[0]
        with (
            penstock.load(str(old / "*.arrayrecord"), **options, workers=0) as loader,
            pytest.raises(ConfigError),
        ):
            loader.restore(state)  # a test split more: other data
        decoded = penstock.decode(kept[0]["inputs"], segmentation=kept[0]["inputs_segmentation"])
        assert all(len(row) > 0 for row in decoded)


def test_a_split_that_a_file_by_itself_is_not_is_refused_with_the_one_that_is(tmp_path):
    stages = PRESETS["pings"].stages({"test": 0.3})
    old = prepare(tmp_path / "old", make_pings(600, 40, 4), stages, format="arrayrecord")
    file, options = old / "train.arrayrecord", {"batch_size": 4, "length": 100, "workers": 0}
    for look in (lambda split: penstock.load(file, split, **options), lambda split: penstock.open(file, split)):
        with pytest.raises(
            ConfigError, match=r"split 'test' was asked for, but .*train.arrayrecord is a single file"
        ) as refused:
            look("test")
        assert refused.value.next_step == f"give {old / 'test.arrayrecord'}"
        with pytest.raises(ConfigError, match="split 'tset' was asked for") as refused:
            look("tset")
        assert "leave the split out" in refused.value.next_step
    with pytest.raises(ConfigError, match=r"split 'train' was asked for, but .*test.arrayrecord"):
        penstock.open(old / "*.arrayrecord", "train")
    assert len(penstock.open(file)) == len(penstock.open(file, "train")) == len(penstock.open(old, "train"))
    assert len(penstock.open(old / "test.arrayrecord", "test")) == len(penstock.open(old, "test"))
    with penstock.load(file, **options) as loader:
        assert loader.state()["recipe"]["split"] is None
    with pytest.raises(ConfigError, match=r"columns=\['rtt'\] is an option for arrays"):
        penstock.load(file, **options, columns=["rtt"])


def test_a_file_is_the_same_data_by_its_name_and_by_its_folder(tmp_path):
    made = prepare(
        tmp_path / "made", make_pings(300, 20, 4), PRESETS["pings"].stages({"test": 0}), format="arrayrecord"
    )
    (tmp_path / "old").mkdir()
    shutil.copy(made / "train.arrayrecord", tmp_path / "old")
    options = {"batch_size": 4, "length": 100, "workers": 0}
    with (
        penstock.load(tmp_path / "old", **options) as by_folder,
        penstock.load(tmp_path / "old" / "train.arrayrecord", **options) as by_name,
    ):
        by_name.restore(by_folder.state())
        assert by_name.state() == by_folder.state()


def test_old_records_give_the_tokens_of_prepared_ones(tmp_path):
    """The same records in the same order: only what holds them differs."""
    table = make_pings(600, 30, 4)
    stages = PRESETS["pings"].stages({"test": 0})
    old = prepare(tmp_path / "old", table, stages, format="arrayrecord", slice_size="1MB")
    new = prepare(tmp_path / "new", table, stages, slice_size="1MB")
    order = {source: number for number, source in enumerate(penstock.open(new)[:]["src_addr"].to_pylist())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        options = {"batch_size": 5, "length": 3000, "shuffle": False, "fill": "one_key", "workers": 0}
        with penstock.load(old, **options) as loader, penstock.load(new, **options) as expected:
            assert len(order) == sum(loader._parts.phases.first.order.streams[0].shard_records)
            found, wanted = loader.batch(0), expected.batch(0)
    for name in TOKEN_NAMES:
        np.testing.assert_array_equal(found[name], wanted[name], err_msg=name)
