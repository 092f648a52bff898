"""What the promise tests share: make data, write a job, run it as a user would, name the bytes it wrote."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

import penstock
from penstock.prepare.plan.plan import Plan

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


def job_keys(path: Path) -> dict[str, Any]:
    """The keys of a job that was written."""
    keys: dict[str, Any] = yaml.safe_load(path.read_text())
    return keys


EVENT_STAGES: list[Any] = [
    {"filter": "rtt > 1"},
    {"group": {"by": "src", "order": "time", "max_record": "4kB"}},
    {"split": {"by": "key", "test": 0.2}},
]


def make_events(count: int, seed: int, keys: int = 300, skew: float = 0.0) -> pa.Table:
    """Events like a user's: keys with a heavy tail and some nulls, times with ties, a float, two texts that repeat.

    `skew` is the share of all rows that belong to one key.
    """
    rng = np.random.default_rng(seed)
    numbers = rng.zipf(1.3, count) % keys
    numbers[rng.random(count) < skew] = keys
    names = np.array([f"10.{key >> 16}.{key >> 8 & 255}.{key & 255}" for key in range(keys + 1)], object)
    times = 1_600_000_000_000_000 + rng.integers(0, max(10, count // 3), count) * 1_000_000
    rtt = rng.gamma(2, 20, count)
    return pa.table(
        {
            "src": pa.array(names[numbers], pa.string(), mask=rng.random(count) < 0.002),
            "time": pa.array(times, pa.timestamp("us")),
            "rtt": pa.array(rtt, pa.float32()),
            "dst": pa.array(names[rng.integers(0, keys, count)], pa.string(), mask=rng.random(count) < 0.01),
            "kind": pa.array(rng.choice(["a", "bb", "ccc"], count)).dictionary_encode(),
        }
    )


def make_event_input(folder: Path, files: int = 3, rows: int = 2500, group: int = 800) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        pq.write_table(make_events(rows, number), folder / f"part-{number}.parquet", row_group_size=group)
    return folder


def write_events_job(path: Path, data: Path | str, **keys: Any) -> Path:
    """A job with an exchange: some slices, some more buckets, keys cut into several records."""
    return write_job(path, data, **{"stages": EVENT_STAGES, "slice_size": "40kB", **keys})


def events_of(output: Path, split: str) -> Iterator[tuple[str, list[Any], list[tuple[Any, ...]]]]:
    """(key, times, the other columns of each event) of each record; an ArrayRecord file without a line of penstock."""
    file = output / f"{split}.arrayrecord"
    if not file.exists():
        for record in penstock.open(output, split)[:].to_pylist():
            others = [record[name] for name in ("rtt", "dst", "kind")]
            yield record["src"], record["time"], list(zip(*others, strict=True))
        return
    from array_record.python.array_record_module import ArrayRecordReader

    reader = ArrayRecordReader(str(file))
    for data in reader.read_all() if reader.num_records() else []:
        (facts,) = pa.ipc.open_stream(data).read_all().to_pylist()
        events = pa.ipc.open_stream(facts["measurements"]).read_all().to_pydict()
        assert facts["n_measurements"] == len(events["time"])
        assert (facts["first_timestamp"], facts["last_timestamp"]) == (events["time"][0], events["time"][-1])
        assert facts["src_id"] == int(hashlib.md5(events["src"][0].encode()).hexdigest()[:15], 16)
        assert len(set(events["src"])) == 1
        others = [events[name] for name in ("rtt", "dst", "kind")]
        yield events["src"][0], events["time"], list(zip(*others, strict=True))


def with_batches(plan: Plan, batch_bytes: int) -> Plan:
    """The plan with as much read, or sorted, at a time in every pass: batches, and where buckets are cut."""
    passes = [replace(each, settings=replace(each.settings, batch_bytes=batch_bytes)) for each in plan.passes]
    return replace(plan, passes=tuple(passes))


def command(job: Path, *options: str, do: str = "run") -> list[str]:
    return [sys.executable, "-m", "penstock", do, str(job), "--json", *options]


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


def events_named(output: Path, name: str) -> list[dict[str, Any]]:
    """What the log of the run in this output tells of one kind of event."""
    whole = (output / ".penstock" / "events.jsonl").read_text().rpartition("\n")[0]  # a run may be writing a line
    return [event for event in map(json.loads, whole.splitlines()) if event["event"] == name]


def ledger_rows(output: Path) -> int:
    return len(list((output / ".penstock" / "tasks").glob("*.json"))) if output.exists() else 0


def wait_for(condition: Any, seconds: float = 60) -> None:
    """Wait until it holds; a test that waits in vain fails with what it waited for."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {condition}"
        time.sleep(0.005)


def on_screen(job: Path, do: str, *options: str) -> subprocess.CompletedProcess[str]:
    """The command as a person gives it."""
    called = [sys.executable, "-m", "penstock", do, str(job), *options]
    done = subprocess.run(called, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done
