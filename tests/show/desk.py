"""What the tests of the command line share: a little data, a job beside it, and the command as a user gives it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROWS = 3000  # in three files


def make_job(folder: Path, **keys: Any) -> Path:
    """Three small files and a job for them, in three slices, worked on inside the driver."""
    data = folder / "data"
    data.mkdir(parents=True)
    for number in range(3):
        rows = range(number * 1000, (number + 1) * 1000)
        table = pa.table({"user": [row % 50 for row in rows], "value": [float(row) for row in rows]})
        pq.write_table(table, data / f"part-{number}.parquet")
    job = {"input": "data", "output": "out", "slice_size": "10kB", "memory": "1GB", "workers": 0}
    stages = [{"filter": "value >= 100"}, {"split": {"by": "user", "test": 0.2}}]
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump({**job, "stages": stages, **keys}))
    return path


def start(*arguments: str | Path) -> subprocess.Popen[str]:
    """The command in a process of its own, without a terminal."""
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", *map(str, arguments)],
        env={**os.environ, "COLUMNS": "100"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def give(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    process = start(*arguments)
    out, err = process.communicate(timeout=120)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def end(process: subprocess.Popen[str]) -> None:
    """Whatever became of the test, its process does not outlive it."""
    process.kill()
    process.communicate()


def wait_for(what: Callable[[], bool]) -> None:
    """Until it is so. The limit is only there so that a broken test ends."""
    for _ in range(6000):
        if what():
            return
        time.sleep(0.01)
    raise AssertionError("waited a minute for what did not happen")


def document(text: str) -> Any:
    """The one JSON document that `text` must be."""
    return json.loads(text)
