"""What the promise tests share: make data, write a job, run it as a user would, name the bytes it wrote."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

# `make promises` sets this: more kills, more data, more budgets.
THOROUGH = bool(os.environ.get("PENSTOCK_THOROUGH"))

STAGES: list[Any] = [{"filter": "rtt > 1"}, {"split": {"by": "src", "test": 0.1}}, {"statistics": ["rtt", "size"]}]


def make_rows(count: int, seed: int) -> pa.Table:
    """Rows like a user's: text keys with a heavy tail, times, floats with nulls and NaN, a dictionary column."""
    rng = np.random.default_rng(seed)
    rtt = rng.gamma(2, 20, count)
    rtt[rng.random(count) < 0.01] = np.nan
    return pa.table(
        {
            "src": pa.array([f"10.0.{k >> 8 & 255}.{k & 255}" for k in rng.zipf(1.4, count) % 5000], pa.string()),
            "time": pa.array(rng.integers(1_600_000_000_000_000, 1_700_000_000_000_000, count), pa.timestamp("us")),
            "rtt": pa.array(rtt, pa.float32(), mask=rng.random(count) < 0.01),
            "size": pa.array(rng.integers(0, 1500, count), pa.int32()),
            "kind": pa.array(rng.choice(["a", "bb", "ccc"], count)).dictionary_encode(),
        }
    )


def make_input(folder: Path, files: int = 4, rows: int = 6000, group: int = 1500) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(make_rows(rows, number), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


def write_job(path: Path, data: Path | str, **keys: Any) -> Path:
    """A job whose output lies beside it, cut finely enough to have a dozen tasks."""
    job = {"input": str(data), "output": "out", "stages": STAGES, "slice_size": "60kB", "memory": "1GB", "workers": 2}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({**job, **keys}))
    return path


def command(job: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "penstock", "run", str(job), "--json", *options]


def run(job: Path, *options: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(job, *options),
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def run_well(job: Path, *options: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    done = run(job, *options, environment=environment)
    assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def bytes_of(output: Path) -> dict[str, str]:
    """Every file of the dataset by name and hash. `.penstock` holds times and paths, and is left out."""
    return {
        str(path.relative_to(output)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(output.rglob("*"))
        if path.is_file() and ".penstock" not in path.parts
    }


def names_in(output: Path) -> set[str]:
    """Every file, those of `.penstock` too: what a run leaves behind."""
    return {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}


def ledger_rows(output: Path) -> int:
    return len(list((output / ".penstock" / "tasks").glob("*.json"))) if output.exists() else 0


def wait_for(condition: Any, seconds: float = 60) -> None:
    """Wait until it holds; a test that waits in vain fails with what it waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition}"
        time.sleep(0.005)
