"""The example that logs a run and a loader to Weights & Biases, with its real client; the offline run is read back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("wandb")
from tests.adapters.wandb_file import history_of

EXAMPLE = Path(__file__).parents[2] / "examples" / "wandb_metrics.py"


def test_a_run_and_a_loader_are_logged_by_the_same_function(tmp_path):
    environment = {**os.environ, "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, str(EXAMPLE), str(tmp_path)], check=True, env=environment)
    [run] = tmp_path.glob("wandb/offline-run-*")
    history = history_of(run)
    [prepared] = [each for each in history if each.get("penstock/share") == 1.0]
    assert prepared["penstock/input_rows"] == 1000
    assert prepared["penstock/peak_memory_bytes"] > 10_000_000
    loaded = [each for each in history if "penstock/loader/step" in each][-1]
    assert loaded["penstock/loader/batches"] == loaded["penstock/loader/step"] == 31
    assert loaded["penstock/loader/batches_per_second"] > 0
    assert 0 <= loaded["penstock/loader/wait_share"] <= 1
    assert sum("train/loss" in each for each in history) == 31
