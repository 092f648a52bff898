"""Dataset ids stay as they are from version to version, and datasets of earlier versions can be read."""

from __future__ import annotations

import errno
import hashlib
import json

import numpy as np
import pytest

import penstock
from penstock.base.errors import PenstockError
from penstock.base.faults import Sweep, sweeping
from tests import golden

KNOWN = json.loads(golden.FILE.read_text())


def test_every_golden_job_is_known():
    assert set(KNOWN) == set(golden.JOBS)
    assert len(KNOWN) >= 25


@pytest.mark.parametrize("name", golden.JOBS)
def test_a_job_makes_the_dataset_that_it_always_made(name, tmp_path):
    assert golden.run_golden(name, tmp_path / "golden") == KNOWN[name]


@pytest.mark.proof
@pytest.mark.parametrize("name", ["group", "text wrapped", "samples split and normalized"])
def test_a_run_that_failed_in_the_middle_and_was_resumed_makes_it_too(name, tmp_path):
    golden.make_folder(tmp_path / "golden")
    with sweeping(Sweep()) as counted:
        golden.run_in(name, tmp_path / "golden", tmp_path / "counted")
    with sweeping(Sweep(len(counted.operations) // 2, errno.EIO)), pytest.raises(PenstockError):
        golden.run_in(name, tmp_path / "golden", tmp_path / "out")
    assert golden.run_in(name, tmp_path / "golden", tmp_path / "out") == KNOWN[name]


# Datasets that were finished by an earlier version.


FINISHED = json.loads((golden.FINISHED / "finished.json").read_text())


@pytest.mark.parametrize("name", FINISHED)
def test_a_dataset_of_an_earlier_version_is_whole_and_gives_the_same_records(name):
    folder = golden.FINISHED / name
    assert penstock.verify(folder).problems == ()
    assert records_of(name) == FINISHED[name]["records"]


@pytest.mark.proof
@pytest.mark.parametrize("name", FINISHED)
@pytest.mark.filterwarnings("ignore:batches are read from")
def test_a_dataset_of_an_earlier_version_gives_the_same_batches(name):
    assert batch_of(name) == FINISHED[name]["batch"]


LOADED = {
    "rows-npy": {"columns": ["time", "ok"]},
    "events": {"length": 64, "fields": {"kind": {"category": ["a", "bb", "", "été"]}, "value": "float11"}},
    "events-arrayrecord": {"length": 64, "fields": {"rtt": "float11", "time": "time"}},
    "packed": {},
    "samples": {"columns": ["features"]},
}


def records_of(name: str) -> str:
    dataset = penstock.open(golden.FINISHED / name)
    text = repr([dataset[number] for number in range(len(dataset))])
    return hashlib.sha256(text.encode()).hexdigest()


def batch_of(name: str) -> str:
    with penstock.load(golden.FINISHED / name, batch_size=4, seed=1, workers=0, **LOADED[name]) as loader:
        batch = loader.batch(3)
    digest = hashlib.sha256()
    for key in sorted(batch):
        value = np.ascontiguousarray(batch[key])
        digest.update(f"{key} {value.dtype} {value.shape}".encode() + value.tobytes())
    return digest.hexdigest()


if __name__ == "__main__":  # writes what the tests above compare
    written = {}
    for each in golden.KEPT:
        written[each] = {"records": records_of(each), "batch": batch_of(each)}
    (golden.FINISHED / "finished.json").write_text(json.dumps(written, indent=1) + "\n")
