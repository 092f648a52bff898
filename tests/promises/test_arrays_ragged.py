"""Samples with arrays of any length, bytes and nulls: what comes out is what was yielded, however the job was run."""

from __future__ import annotations

import pickle
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock
from penstock.shards.origins import ORIGIN
from tests.promises import workshop
from tests.promises.killing import Clean, assert_no_leftovers, clean_run, crash_with_workers

FUNCTION = """
import pickle


def samples(path):
    yield from pickle.loads(path.read_bytes())
"""
SCHEMA = {
    "tokens": "int32[*]",
    "frames": "float32[*, 3]",
    "flags": "bool[*]",
    "image": "binary",
    "labels": {"cell": "int16"},
    "board": "int8[2, 2]",
    "name": "string",
}
OPTIONAL = dict.fromkeys(["tokens", "frames", "image", "labels_cell", "board", "name"])
FORMATS = ["arrays", "safetensors", "npy"]


def write_files(folder: Path, files: list[list[dict[str, Any]]]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, samples in enumerate(files):
        (folder / f"{number:03d}").write_bytes(pickle.dumps(samples))
    return folder


def write_job(path: Path, data: Path, **keys: Any) -> Path:
    source = {"files": f"{data}/*", "function": "stored:samples", "schema": SCHEMA, "missing": OPTIONAL}
    job = {"input": source, "output": "out", "slice_size": "70", "memory": "1GB", "workers": 0, **keys}
    path.parent.mkdir(parents=True, exist_ok=True)
    (path.parent / "stored.py").write_text(FUNCTION)
    path.write_text(yaml.safe_dump(job))
    return path


def flat(sample: dict[str, Any]) -> dict[str, Any]:
    """The record that a sample becomes."""
    record = {**{name: None for name in SCHEMA if name != "labels"}, **sample}
    labels = record.pop("labels", {})
    return {**record, "labels_cell": labels.get("cell")}


def without_origin(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name != ORIGIN}


def same(found: dict[str, Any], expected: dict[str, Any]) -> bool:
    """Every bit, type and shape."""
    return found.keys() == expected.keys() and all(_same(found[name], expected[name]) for name in found)


def _same(one: Any, other: Any) -> bool:
    if isinstance(other, np.ndarray | np.generic):
        return (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    return type(one) is type(other) and one == other


def arrays(dtype: str, *row: int) -> st.SearchStrategy[np.ndarray]:
    """Any bits, NaNs with payloads among them."""
    width = int(np.prod(row)) * np.dtype(dtype).itemsize
    rows = st.lists(st.binary(min_size=width, max_size=width), max_size=5)
    return rows.map(lambda each: np.frombuffer(b"".join(each), dtype).reshape(-1, *row))


SAMPLES = st.fixed_dictionaries(
    {"flags": st.lists(st.booleans(), max_size=4).map(lambda flags: np.array(flags, bool))},
    optional={
        "tokens": st.none() | arrays("i4"),
        "frames": st.none() | arrays("f4", 3),
        "image": st.none() | st.binary(max_size=9),
        "labels": st.fixed_dictionaries({}, optional={"cell": st.none() | st.integers(-9, 9).map(np.int16)}),
        "board": st.none() | st.integers(0, 9).map(lambda each: np.full((2, 2), each, "i1")),
        "name": st.none() | st.text(max_size=5),
    },
)


@pytest.mark.core
@settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])
@given(files=st.lists(st.lists(SAMPLES, max_size=4), min_size=1, max_size=4), format=st.sampled_from(FORMATS))
def test_samples_come_back_as_they_were_yielded(files, format):
    with tempfile.TemporaryDirectory() as folder:
        data = write_files(Path(folder) / "in", files)
        penstock.run(write_job(Path(folder) / "job.yaml", data, format=format))
        output = Path(folder) / "out"
        dataset = penstock.open(output)
        expected = [flat(sample) for samples in files for sample in samples]
        assert len(dataset) == len(expected)
        assert all(same(without_origin(dataset[number]), record) for number, record in enumerate(expected))
        dataset[:].validate(full=True)
        assert penstock.verify(output).ok


def many_files(folder: Path) -> Path:
    """Lengths and bytes enough that tasks share blocks, and nulls in some of the files only."""
    rng, files = np.random.default_rng(4), []
    for number in range(12):
        samples: list[dict[str, Any]] = []
        for place in range(60):
            sample: dict[str, Any] = {
                "tokens": rng.integers(0, 9999, rng.integers(0, 120)).astype("i4"),
                "frames": rng.normal(size=(rng.integers(0, 40), 3)).astype("f4"),
                "flags": rng.random(rng.integers(0, 9)) < 0.5,
                "image": rng.bytes(rng.integers(0, 300)),
                "labels": {"cell": np.int16(place)},
                "board": np.zeros((2, 2), "i1"),
                "name": f"game {number % 5}",
            }
            if number in (0, 3, 6):
                sample |= {name: None for name in ("tokens", "frames", "image", "board") if rng.random() < 0.3}
                sample["labels"] = {} if place % 7 == 0 else sample["labels"]
            samples.append(sample)
        files.append(samples)
    return write_files(folder, files)


SPLIT = {"split": {"by": "name", "test": 0.4}}


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Clean:
    folder = tmp_path_factory.mktemp("ragged")
    made = clean_run(folder, partial(write_job, data=many_files(folder / "in"), stages=[SPLIT]))
    assert (folder / "out" / "tokens_train.values.npy").stat().st_size > 2 * (64 << 10), "no block is shared"
    assert len(list((folder / "out" / ".penstock" / "tasks").glob("0-map-*"))) > 2
    assert "labels_cell_train.valid.npy" in made.written
    return made


@pytest.mark.core
@pytest.mark.parametrize(
    "keys",
    [{"workers": 1, "memory": "1GB"}, {"workers": 3}, {"merge_strategy": "accumulative"}, {"strategy": "streaming"}],
    ids=str,
)
def test_workers_memory_and_strategies_do_not_show(clean, tmp_path, keys):
    job = clean.job(tmp_path / "job.yaml", **keys)
    penstock.run(job)
    assert workshop.bytes_of(tmp_path / "out") == clean.written
    assert_no_leftovers(tmp_path / "out")


@pytest.mark.parametrize("point", ["task.after_shards", "place.in_column", "place.before_ledger", "move.before_rename"])
def test_a_crash_is_recovered_from(clean, die, tmp_path, point):
    job = clean.job(tmp_path / "job.yaml")
    die(job, point)
    clean.assert_recovers(job)


def test_a_worker_that_dies_changes_nothing(clean, tmp_path):
    crash_with_workers(clean.job(tmp_path / "job.yaml", workers=2), "place.in_column", clean)


def test_large_samples_among_small_ones_stay_within_memory(tmp_path):
    """A sample of 20 MB comes after a thousand small ones, by which the batch was measured."""
    small = {"flags": np.zeros(0, bool), "tokens": np.zeros(3, "i4")}
    large = [{**small, "tokens": np.zeros(5_000_000, "i4")} for _ in range(6)]
    data = write_files(tmp_path / "in", [[small] * 1000, [*[small] * 50, *large]])
    job = write_job(tmp_path / "job.yaml", data, memory="700MB", workers=1)
    done = workshop.run(job)  # in a process of its own: what other tests have left in this one is no part of the job
    assert done.returncode == 0, done.stderr
    assert len(penstock.open(tmp_path / "out")[1055]["tokens"]) == 5_000_000


def test_a_flipped_byte_of_a_validity_is_named(clean, tmp_path):
    job = clean.job(tmp_path / "job.yaml")
    penstock.run(job)
    path = tmp_path / "out" / "labels_cell_train.valid.npy"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    assert [problem.where for problem in penstock.verify(tmp_path / "out").problems] != []
    assert "labels_cell_train.valid.npy" in str(penstock.verify(tmp_path / "out").problems[0])
