"""A pickle is never opened without trust; with it, in a process of its own, after a warning."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.promises import arrays_making, workshop


class Tells:
    """When it is unpickled, the process that does it writes down what it is; what comes out is the number 3."""

    def __init__(self, into: Path) -> None:
        self._into = str(into)

    def __reduce__(self) -> tuple[Any, ...]:
        told = "f'{os.getpid()} {open(\"/proc/self/cmdline\").read()!r}\\n'"
        code = f"(os := __import__('os'), open({self._into!r}, 'a').write({told}), 3)[-1]"
        return eval, (code,)


@pytest.fixture
def batches(tmp_path: Path) -> Path:
    """Two batch files as the array format has them, and one that is lists of dicts."""
    folder = tmp_path / "batches"
    folder.mkdir()
    for number in range(2):
        features = np.full((5, 3), number, "f4")
        names = {"strategic_feature_names": ["x", "y", "z"]}
        np.savez(folder / f"batch_{number}.npz", strategic_features=features, labels_a=np.zeros(5, "i2"), **names)
    samples = [{"x": 1.0, "y": 2.0, "z": 3.0}] * 4
    labels = [{"a": Tells(tmp_path / "told")}] + [{"a": 1}] * 3
    np.savez(folder / "batch_2.npz", strategic_features=np.array(samples), labels=np.array(labels))
    return folder


def _job(folder: Path, batches: Path, source: dict[str, Any], **keys: Any) -> Path:
    source = {"npz": f"{batches}/batch_*.npz", **source}
    return arrays_making.write_job(folder / "job.yaml", batches, input=source, stages=[], **keys)


@pytest.mark.parametrize(("do", "workers"), [("plan", 0), ("run", 2)])
def test_a_pickle_is_refused_by_name_and_never_opened(tmp_path, batches, do, workers):
    job = _job(tmp_path, batches, {}, workers=workers)
    done = subprocess.run(workshop.command(job, do=do), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4, done.stdout + done.stderr
    error = json.loads(done.stdout)
    assert "batch_2.npz" in error["where"]
    assert "trust_pickle" in error["next_step"]
    assert not (tmp_path / "told").exists()


def test_a_pickle_that_is_not_trusted_can_be_set_aside_unopened(tmp_path, batches):
    workshop.run_well(_job(tmp_path, batches, {}, on_bad_input="set_aside"))
    assert not (tmp_path / "told").exists()
    assert arrays_making.records_of(tmp_path / "out") == 10
    assert [line["file"] for line in arrays_making.rejected_of(tmp_path / "out")] == ["batch_2.npz"]
    assert arrays_making.steps_of(tmp_path / "out")["files"]["given"] == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_a_trusted_pickle_is_opened_in_another_process_after_a_warning(tmp_path, batches, workers):
    job = _job(tmp_path, batches, {"trust_pickle": True}, workers=workers)
    process = subprocess.Popen(workshop.command(job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, output + errors
    assert "pickle" in errors
    assert "can run any code" in errors
    told = [line.partition(" ") for line in (tmp_path / "told").read_text().splitlines()]
    assert told
    for pid, _, arguments in told:
        assert int(pid) != process.pid
        assert "penstock.prepare.sources.batches.pickled" in arguments
    assert np.load(tmp_path / "out" / "labels_a_train.npy").tolist() == [0] * 10 + [3, 1, 1, 1]
    assert np.load(tmp_path / "out" / "X_train.npy")[-4:].tolist() == [[1, 2, 3]] * 4


def test_a_trusted_pickle_that_kills_its_process_is_one_bad_file(tmp_path, batches):
    class Dies:
        def __reduce__(self) -> tuple[Any, ...]:
            return eval, ("__import__('os')._exit(0)",)

    np.savez(batches / "batch_3.npz", strategic_features=np.array([{"x": Dies(), "y": 2.0, "z": 3.0}]))
    job = _job(tmp_path, batches, {"trust_pickle": True}, on_bad_input="set_aside")
    workshop.run_well(job)
    assert arrays_making.records_of(tmp_path / "out") == 14
    assert [line["file"] for line in arrays_making.rejected_of(tmp_path / "out")] == ["batch_3.npz"]
