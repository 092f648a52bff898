"""Importing: what runs is the source as it is, however soon it was edited."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import penstock

_STAGE = """
import pyarrow.compute as pc

from beside_{name} import FACTOR

def times(batch):
    return batch.set_column(0, "value", pc.multiply(batch["value"], FACTOR * {factor}))
"""


def _write(folder: Path, factor: int) -> str:
    """A stage and its bytecode, where source and bytecode have the same second, and sources the same size."""
    name = f"edited_{folder.name}"
    for file, text in {
        f"{name}.py": _STAGE.format(name=folder.name, factor=factor),
        f"beside_{folder.name}.py": f"FACTOR = {factor}\n",
    }.items():
        (folder / file).write_text(text)
    return f"{name}:times"


def _same_second(folder: Path) -> None:
    for file in folder.glob("*.py"):
        os.utime(file, ns=(10**18, 10**18 + int(file.stat().st_mtime_ns % 10**9)))
        for bytecode in folder.glob(f"__pycache__/{file.stem}.*.pyc"):
            os.utime(bytecode, ns=(10**18, 10**18))


@pytest.mark.parametrize("workers", [0, 1])
def test_an_edit_in_the_same_second_is_what_runs(tmp_path, monkeypatch, workers):
    pq.write_table(pa.table({"value": [1, 2, 3]}), tmp_path / "rows.parquet")
    target = _write(tmp_path, factor=2)
    _same_second(tmp_path)
    module = target.partition(":")[0]
    command = [sys.executable, "-c", f"import {module}; print({module}.FACTOR)"]
    plain = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": ""}
    assert subprocess.run(command, env=plain, capture_output=True, check=True).stdout == b"2\n"
    _write(tmp_path, factor=3)
    _same_second(tmp_path)
    assert subprocess.run(command, env=plain, capture_output=True, check=True).stdout == b"2\n", "Python sees the edit"

    monkeypatch.chdir(tmp_path)
    job = {"input": "rows.parquet", "output": "out", "memory": "1GB", "workers": workers, "stages": [target]}
    if not workers:
        job["strategy"] = "sequential"
    penstock.run(penstock.Config(job, folder=str(tmp_path)), progress=False)
    values = [row["value"] for row in penstock.open(tmp_path / "out")]
    assert values == [9, 18, 27]
