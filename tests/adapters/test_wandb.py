"""The example that logs a run and a loader to Weights & Biases, with its real client; the offline run is read back."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("wandb")
from wandb.proto import wandb_internal_pb2

EXAMPLE = Path(__file__).parents[2] / "examples" / "wandb_metrics.py"
_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct("<IHB")  # checksum, length, kind
_LAST_KINDS = (1, 4)  # a whole record, or the last part of one


def _records(data: bytes) -> Iterator[bytes]:
    """Records of a `.wandb` file: LevelDB's log format behind a short header."""
    place, record = _FILE_HEADER, b""
    while place + _HEADER.size <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:  # no record begins here
            place += left
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        record += data[place + _HEADER.size : place + _HEADER.size + length]
        place += _HEADER.size + length
        if kind in _LAST_KINDS:
            yield record
            record = b""


def _history(folder: Path) -> list[dict[str, float]]:
    """Numbers that were logged, one dict per call."""
    [path] = folder.glob("wandb/offline-run-*/*.wandb")
    logged = []
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            logged.append({each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in items})
    return logged


def test_a_run_and_a_loader_are_logged_by_the_same_function(tmp_path):
    environment = {**os.environ, "WANDB_SILENT": "true"}
    subprocess.run([sys.executable, str(EXAMPLE), str(tmp_path)], check=True, env=environment)
    history = _history(tmp_path)
    [prepared] = [each for each in history if each.get("penstock/share") == 1.0]
    assert prepared["penstock/input_rows"] == 1000
    assert prepared["penstock/peak_memory_bytes"] > 10_000_000
    loaded = [each for each in history if "penstock/loader/step" in each][-1]
    assert loaded["penstock/loader/batches"] == loaded["penstock/loader/step"] == 31
    assert loaded["penstock/loader/batches_per_second"] > 0
    assert 0 <= loaded["penstock/loader/wait_share"] <= 1
    assert sum("train/loss" in each for each in history) == 31
