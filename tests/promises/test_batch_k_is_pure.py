"""Promise 5: batch k is a pure function of (manifest, recipe, seed, k): not of ranks, workers, resumption or place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import penstock
from penstock.base.memory import own_memory
from penstock.loader.loader import Loader
from tests.loader import making, slowly, transforms
from tests.promises import workshop
from tests.shards.making import write_dataset

ROOT = Path(__file__).parents[2]
WORLDS, WORKERS = (1, 2, 4, 8), (0, 1, 2, 4)
CACHES, AHEAD = (None, "memory", "disk"), (1, 3, 40)
STEPS = 24 if workshop.THOROUGH else 10


def pairs(some: tuple[Any, ...], others: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Every one of each with a middle one of the others; with all of them in a thorough run."""
    middle = some[len(some) // 2], others[len(others) // 2]
    every = [(one, other) for one in some for other in others]
    return [pair for pair in every if workshop.THOROUGH or pair[0] == middle[0] or pair[1] == middle[1]]


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    folder = tmp_path_factory.mktemp("pure")
    pings = making.prepare_pings(folder / "pings", count=2500, keys=80)
    more = making.prepare_pings(folder / "more", count=900, keys=30, seed=9)
    rows = [making.prepare(folder / f"rows{i}", making.make_token_rows(90 * i, 33, i), []) for i in (1, 2)]
    return {"pings": [str(pings), str(more)], "rows": list(map(str, rows))}


MIXES: dict[str, dict[str, Any]] = {
    "packed": {"length": 120, "weights": [0.7, 0.3]},
    "one_key": {"length": 120, "fill": "one_key", "weights": [2, 1], "mix_by": "tokens"},
    "rows": {"weights": [1, 2]},
}


def load(paths: dict[str, list[str]], mix: str, **options: Any) -> Loader:
    return penstock.load(paths["rows" if mix == "rows" else "pings"], batch_size=8, seed=11, **MIXES[mix], **options)


def joined(parts: list[dict[str, np.ndarray]]) -> str:
    """The hash of a global batch, of what each rank has of it."""
    return making.hash_of({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})


@pytest.fixture(scope="module", params=MIXES)
def expected(request, paths) -> tuple[str, list[str]]:
    """A mix, and the hashes of its batches: one rank, one after the other, nothing ahead."""
    with load(paths, request.param, workers=0) as loader:
        hashes = [making.hash_of(loader.batch(k)) for k in range(2 * STEPS)]
    assert len(set(hashes)) == len(hashes)
    return request.param, hashes


@pytest.mark.core
@pytest.mark.parametrize(("world", "workers"), pairs(WORLDS, WORKERS))
def test_batches_are_equal_for_every_world_and_number_of_workers(paths, expected, world, workers):
    mix, hashes = expected
    ranks = [load(paths, mix, rank=rank, world=world, workers=workers) for rank in range(world)]
    found = [joined([next(rank) for rank in ranks]) for _ in range(STEPS)]
    for rank in ranks:
        rank.close()
    assert found == hashes[:STEPS]


def test_a_run_saved_at_any_step_goes_on_at_any_world(paths, expected):
    """Save at every k; restore at every world; all that follows is what would have followed."""
    mix, hashes = expected
    states = []
    with load(paths, mix, workers=2) as loader:
        for _ in range(STEPS):
            states.append(json.dumps(loader.state()))
            next(loader)
    for world in WORLDS:
        ranks = [load(paths, mix, rank=rank, world=world, workers=(0, 1, 2)[rank % 3]) for rank in range(world)]
        for k, state in enumerate(states):
            for rank in ranks:
                rank.restore(json.loads(state))
            found = [joined([next(rank) for rank in ranks]) for _ in range(k, len(hashes))]
            assert found == hashes[k:], (world, k)
            again = {json.dumps(rank.state()) for rank in ranks}
            assert len(again) == 1
        for rank in ranks:
            rank.close()


@pytest.mark.parametrize(("cache", "ahead"), pairs(CACHES, AHEAD))
def test_neither_caching_nor_how_many_are_ahead_changes_a_batch(paths, expected, cache, ahead):
    mix, hashes = expected
    with load(paths, mix, workers=2, cache=cache, ahead=ahead) as loader:
        assert [making.hash_of(next(loader)) for _ in range(STEPS)] == hashes[:STEPS]


PROGRAM = """
    import json, sys
    sys.path.insert(0, {root!r})
    import penstock
    from tests.loader import making
    for paths, options in json.loads(sys.argv[1]):
        with penstock.load(paths, batch_size=8, seed=11, **options) as loader:
            print(" ".join(making.hash_of(next(loader)) for _ in range({steps})))
"""


@pytest.mark.parametrize(
    ("rank", "environment"),
    [
        (0, {"PYTHONHASHSEED": "1", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}),
        (1, {"PYTHONHASHSEED": "77", "TZ": "America/New_York", "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}),
        (1, {"PENSTOCK_PLAIN": "1"}),
    ][: None if workshop.THOROUGH else 2],
)
def test_another_process_in_another_place_makes_the_same(paths, tmp_path, rank, environment):
    """A rank each, from another folder, by relative paths."""
    place = {"rank": rank, "world": 2}
    jobs = [
        (
            [os.path.relpath(path, tmp_path) for path in paths["rows" if mix == "rows" else "pings"]],
            {**options, **place},
        )
        for mix, options in MIXES.items()
    ]
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM.format(root=str(ROOT), steps=4)), json.dumps(jobs)],
        cwd=tmp_path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for mix, line in zip(MIXES, done.stdout.splitlines(), strict=True):
        with load(paths, mix, workers=0, **place) as loader:
            assert line.split() == [making.hash_of(loader.batch(k)) for k in range(4)]


# From one version to the next.


def pinned_records(keys: range) -> pa.RecordBatch:
    """Pings without a random number in them, of no library's making."""
    events = {key: [(key * 7919 + i * 104_729) % 1_000_003 for i in range(1 + key * key % 90)] for key in keys}
    times = {key: sorted(numbers) for key, numbers in events.items()}
    text = pa.dictionary(pa.int32(), pa.string())
    flat = [f"10.{n % 7}.{n % 11}.{n % 13}" if n % 3 else f"2001:db8::{n % 17:x}" for key in keys for n in events[key]]
    offsets = pa.array(np.cumsum([0, *map(len, events.values())]), pa.int32())
    return pa.RecordBatch.from_pydict(
        {
            "src_addr": pa.array([f"192.0.2.{key}" if key % 4 else f"2001:db8:1::{key:x}" for key in keys]),
            "event_time": pa.array(
                [[1_700_000_000 + t for t in times[key]] for key in keys], pa.list_(pa.timestamp("s"))
            ),
            "dst_addr": pa.ListArray.from_arrays(offsets, pa.array(flat).dictionary_encode().cast(text)),
            "ip_version": pa.array(
                [[6 if n % 3 == 0 else 4 for n in events[key]] for key in keys], pa.list_(pa.int8())
            ),
            "rtt": pa.array([[n / 512 - 1 for n in events[key]] for key in keys], pa.list_(pa.float32())),
        }
    )


def test_batches_are_pinned(tmp_path):
    """If this fails, runs saved before the change go on with other batches after it: say so in the changelog."""
    write_dataset(tmp_path, {"train": [[pinned_records(range(1, 20))], [pinned_records(range(20, 30))]]})
    found = {}
    for fill, length in (("packed", 256), ("one_key", 100)):
        with penstock.load(tmp_path, batch_size=4, length=length, fill=fill, seed=2024, workers=1) as loader:
            found[fill] = [making.hash_of(next(loader)) for _ in range(3)]
    assert found == PINNED


def test_the_first_tokens_are_pinned(tmp_path):
    """The hashes above say that something changed; this says a little of what."""
    write_dataset(tmp_path, {"train": [[pinned_records(range(1, 20))], [pinned_records(range(20, 30))]]})
    with penstock.load(tmp_path, batch_size=4, length=256, seed=2024, workers=0) as loader:
        assert loader.batch(0)["inputs"][:, :12].tolist() == FIRST_TOKENS
        assert loader.batch(0)["inputs_segmentation"].max(axis=1).tolist() == SEGMENTS


PINNED = {
    "packed": ["af6d04b02f77e34e", "5714945642b0ec94", "ece9f02a99b65ceb"],
    "one_key": ["484fa37f9a46789a", "51878e781f25d63f", "b1986cc60ac41a46"],
}
FIRST_TOKENS = [
    [0, 1, 203, 11, 13, 37, 3, 21, 16, 16, 11, 8],
    [0, 1, 203, 11, 13, 16, 8, 95, 60, 3, 21, 17],
    [0, 8, 98, 61, 1, 203, 11, 13, 14, 4, 43, 12],
    [0, 1, 203, 11, 13, 29, 4, 43, 12, 24, 195, 11],
]
SEGMENTS = [3, 2, 2, 3]


# Processes.


def test_a_process_of_map_that_is_killed_changes_nothing(paths):
    with load(paths, "packed", workers=2) as plain:
        hashes = [making.hash_of(plain.batch(k)) for k in range(40)]
    with load(paths, "packed", workers=2).map(slowly.nap, processes=2) as loader:
        found = [making.hash_of(next(loader)) for _ in range(5)]
        maker = loader._maker
        for pid in maker._processes.pids():
            os.kill(pid, signal.SIGKILL)
        found += [making.hash_of(next(loader)) for _ in range(15)]
        os.kill(maker._processes.pids()[0], signal.SIGKILL)
        found += [making.hash_of(next(loader)) for _ in range(20)]
        stats = loader.stats()
    assert found == hashes
    assert stats.replaced_processes >= 2
    assert not [file for file in transforms.held_in_shared_memory() if file.startswith("/dev/shm")]


# Memory.


@pytest.mark.parametrize("options", [{"workers": 2}, {"workers": "auto", "cache": "memory"}])
def test_thousands_of_batches_stay_within_memory_and_take_no_more_with_time(paths, options):
    """Of this process, with what a test run holds already: 40 MB more are allowed."""
    with load(paths, "packed", workers=1) as warm:  # kernels, and what they are loaded with
        next(warm)
    allowed = own_memory().counted + 40 * 10**6
    samples = []
    with load(paths, "packed", memory=allowed, **options) as loader:
        for k in range(3000):
            next(loader)
            if k % 100 == 0:
                samples.append(own_memory().counted)
    assert max(samples) < allowed, samples
    assert max(samples[10:]) - max(samples[5:10]) < 2 * 10**6, samples


def test_memory_of_a_whole_process_is_within_what_it_was_given(paths):
    program = f"""
        import os, sys, threading, time
        sys.path.insert(0, {str(ROOT)!r})
        import penstock
        from penstock.base.memory import tree_memory
        with penstock.load({paths["pings"]!r}, batch_size=256, length=512, memory="400MB", workers=2) as loader:
            most = 0
            for k in range(400):
                next(loader)
                most = max(most, tree_memory(os.getpid()).counted) if k % 20 == 0 else most
            print(most, loader.stats().ahead)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    most, ahead = map(int, done.stdout.split())
    assert most < 400 * 10**6
    assert ahead >= 2
