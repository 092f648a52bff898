"""The training app of the examples, with Weights & Biases offline on this machine, and as sent to Modal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

pytest.importorskip("modal")
pytest.importorskip("wandb")
from tests.adapters.modal_recorder import recording
from tests.adapters.wandb_file import history_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "modal_train.py"


def train(folder: Path, *words: object) -> list[dict[str, float]]:
    """Run the example, and return what its run has logged."""
    before = set(folder.glob("training/wandb/offline-run-*"))
    environment = {**os.environ, "WANDB_SILENT": "true"}
    environment.pop("WANDB_API_KEY", None)
    command = [sys.executable, str(EXAMPLE), "--wandb-project", "pings", "--batch-size", "8", *map(str, words)]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    [run] = set(folder.glob("training/wandb/offline-run-*")) - before
    return history_of(run)


def losses(history: list[dict[str, float]]) -> dict[float, float]:
    return {each["train/step"]: each["train/loss"] for each in history if "train/loss" in each}


def test_a_run_that_is_continued_sees_the_batches_that_were_next(tmp_path):
    history = train(tmp_path, "--run-name", "first", "--steps", 12)  # on pings that it makes
    assert any(each.get("penstock/loader/batches", 0) >= 12 for each in history)
    first = losses(history)
    assert len(first) == 12
    assert first[11] < first[0]
    data = ("--data", "training/pings")
    continued = losses(train(tmp_path, "--run-name", "first", "--steps", 20, *data))
    assert sorted(continued) == list(range(12, 20))
    assert first | continued == losses(train(tmp_path, "--run-name", "at once", "--steps", 20, *data))


def test_modal_is_sent_one_container_with_a_gpu_the_volume_and_the_key(tmp_path):
    with recording() as recorder:
        subprocess.run(
            [sys.executable, "-m", "modal", "deploy", str(EXAMPLE)],
            env=recorder.environment(tmp_path),
            cwd=tmp_path,
            check=True,
            timeout=120,
        )
    function = recorder.request("FunctionCreate").function
    assert (function.resources.gpu_config.gpu_type, function.resources.memory_mb_max) == ("A10", 32_768)
    assert function.retry_policy.retries == 5
    assert function.timeout_secs == 86_400
    assert function.secret_ids == ["st-1"]
    assert [each.mount_path for each in function.volume_mounts] == ["/data"]
    assert recorder.request("VolumeGetOrCreate").deployment_name == "penstock-job"
    assert recorder.request("SecretGetOrCreate").deployment_name == "wandb"
    [installs] = [line for line in recorder.image_commands() if "penstock[" in line]
    assert f"penstock[loader]=={penstock.__version__}" in installs
