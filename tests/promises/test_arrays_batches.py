"""Promises 2 and 3, of batches: samples yielded at once are the same bytes as those yielded one by one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.base.errors import InputError
from tests.promises import arrays_making, workshop
from tests.promises.killing import Clean, clean_run, crash_with_workers

STACKING = '''

def stacked(path):
    """The samples of the game, as many at a time as the file `size` says; 0: one by one, and not in batches."""
    import penstock

    size = int((Path(__file__).parent / "size").read_text())
    waiting = []
    for sample in samples(path):
        if not size:
            yield sample
            continue
        waiting.append({**sample, "features": sample["features"].copy()})
        if len(waiting) == size:
            yield penstock.Batch(stack(waiting))
            waiting = []
    if waiting:
        yield penstock.Batch(stack(waiting))


def stack(samples):
    """Dicts of lists; features, and masks of one head, as arrays."""
    if isinstance(samples[0], dict):
        return {key: stack([each[key] for each in samples]) for key in samples[0]}
    is_array = isinstance(samples[0], np.ndarray) and len({each.shape for each in samples}) == 1
    return np.stack(samples) if is_array else samples


def uneven(path):
    import penstock

    yield penstock.Batch({"features": np.zeros((5, 3)), "game_id": ["g"] * 4})
'''
GAMES = [
    {"count": 300},
    {"count": 350, "do": "does_not_fit", "at": 130},
    {"count": 90, "do": "raises", "at": 70},
    {"count": 120, "do": "is_ragged", "at": 50},
    {"count": 0},
    {"count": 35, "do": "is_raw", "at": 7, "bits": [0x7FC00123, 0xFF800000, 0x80000000] * 16 + [1, 2]},
]
BAD: dict[str, Any] = {"on_bad_input": "set_aside"}


def _job(path: Path, games: Path, size: int, function: str = "stacked", **keys: Any) -> Path:
    arrays_making.write_job(path, games, {"function": f"games:{function}"}, **{**BAD, **keys})
    (path.parent / "games.py").write_text(arrays_making.FUNCTION + STACKING)
    (path.parent / "size").write_text(str(size))
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return arrays_making.write_games(tmp_path_factory.mktemp("batches") / "games", *GAMES)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"format": "safetensors", "stages": [arrays_making.SPLIT]},
        {"intermediate_dir": "between", "batch_size": 100},
    ],
    ids=["arrays", "shards", "batch files"],
)
def test_batches_of_any_size_are_the_same_bytes_as_samples_one_by_one(data, tmp_path, keys):
    written = {}
    for size in (0, 1, 7, 128, 100_000) if workshop.THOROUGH else (0, 7, 100_000):
        job = _job(tmp_path / str(size) / "job.yaml", data, size, **keys)
        penstock.run(job)
        first = job.parent / keys.get("intermediate_dir", "out")
        written[size] = workshop.bytes_of(job.parent / "out") | workshop.bytes_of(first)
        aside = [each for each in arrays_making.rejected_of(first) if each.get("sample") is not None]
        assert [(each["file"], each["sample"], each["reason"]) for each in aside] == [
            ("1.game", 130, "value does not fit its type"),
            ("3.game", 50, "wrong shape"),
        ]
    assert all(each == written[0] for each in written.values())


@pytest.mark.parametrize("batch_bytes", [300, 8_000_000])
def test_how_much_of_a_batch_is_taken_at_once_does_not_show(data, tmp_path, batch_bytes):
    singly = _job(tmp_path / "singly" / "job.yaml", data, 0)
    penstock.run(singly)
    plan = penstock.plan(_job(tmp_path / "job.yaml", data, 100))
    penstock.run(workshop.with_batches(plan, batch_bytes))
    assert workshop.bytes_of(tmp_path / "out") == workshop.bytes_of(singly.parent / "out")


def test_workers_that_die_and_crashes_change_nothing(data, die, tmp_path):
    def job(path: Path, size: int = 64, **keys: Any) -> Path:
        return _job(path, data, size, **keys)

    clean: Clean = clean_run(tmp_path / "clean", partial(job, size=0))
    clean = Clean(job, clean.written, clean.names, clean.points)
    crash_with_workers(job(tmp_path / "worker" / "job.yaml", workers=2), "place.in_column", clean)
    for point in ("task.after_shards", "place.in_column", "move.after_rename"):
        crashed = job(tmp_path / point / "job.yaml")
        die(crashed, point)
        clean.assert_recovers(crashed)


def test_a_batch_whose_columns_differ_in_length_stops_the_job_with_the_numbers(data, tmp_path):
    schema = {"features": "float32[3]", "game_id": "string"}
    source = {"files": f"{data}/0.game", "function": "games:uneven"}
    for more in ({}, {"schema": schema}):
        keys = {"stages": [], "on_bad_input": "fail", "input": {**source, **more}}
        job = _job(tmp_path / "job.yaml", data, 0, "uneven", **keys)
        with pytest.raises(InputError, match="columns differ in length: 4 values, but 'features' has 5") as told:
            penstock.run(job)
        assert "0.game" in str(told.value)
        assert "game_id" in str(told.value)
