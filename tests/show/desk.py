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

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

ROWS = 3000  # in three files
EVENTS, KEYS = 60_000, 500


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


def make_events(folder: Path, **types: pa.DataType) -> Path:
    """Sixty thousand pings of 500 keys, unsorted: the first key has as many as all others. Some types may be others."""
    rng = np.random.default_rng(0)
    keys = np.where(rng.random(EVENTS) < 0.5, 0, rng.integers(1, KEYS, EVENTS))
    columns = {
        "src_addr": pa.array([f"10.0.{key // 256}.{key % 256}" for key in keys]),
        "event_time": pa.array(rng.integers(1, 10**12, EVENTS), pa.timestamp("us")),
        "dst_addr": pa.array([f"192.168.0.{key % 100}" for key in keys]),
        "ip_version": pa.array(np.full(EVENTS, 4), pa.int8()),
        "rtt": pa.array(rng.random(EVENTS), pa.float32()),
        "note": pa.array(["seen"] * EVENTS),
    }
    table = pa.table({name: array.cast(types.get(name, array.type)) for name, array in columns.items()})
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, folder / "events.parquet")
    return folder / "events.parquet"
