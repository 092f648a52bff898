"""What working by leases costs: one run with N workers beside N `penstock work` processes of one core each, by turns.

    python benchmarks/cluster.py JOB.yaml OUTPUT_FOLDER [--workers 2] [--turns 3]

Starting is told apart: the time from the first claim to the manifest is what is compared with the time of the passes of
the run on one machine. Every output must have the same dataset id.
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import penstock
from penstock import Config
from penstock.base.stores import open_store
from penstock.shards.manifest import dataset_id

PENSTOCK = [sys.executable, "-m", "penstock"]


def alone(job: str, output: Path, workers: int) -> tuple[float, float, float]:
    """(seconds in all, seconds of the passes and the end, CPU seconds) of a run on one machine."""
    began = time.monotonic()
    cpu = _cpu_seconds()
    called = [*PENSTOCK, "run", job, "-o", str(output), "-w", str(workers), "--engine", "local", "--json"]
    subprocess.run(called, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - began, _from_first_pass(output), _cpu_seconds() - cpu


def shared(job: str, output: Path, workers: int) -> tuple[float, float, float]:
    """The same of so many workers that join, each with one process. They have joined before the first claim counts."""
    began, cpu = time.monotonic(), _cpu_seconds()
    watched = [*PENSTOCK, "run", job, "-o", str(output), "--engine", "workers", "--json"]
    quiet: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    watcher = subprocess.Popen(watched, **quiet)
    while not (output / ".penstock" / "plan.json").exists():
        assert watcher.poll() is None, "the run has ended"
        time.sleep(0.02)
    members = [subprocess.Popen([*PENSTOCK, "work", str(output), "-w", "1"], **quiet) for _ in range(workers)]
    while not list(output.glob(".penstock/tmp/run-*/leases/*.1")):
        assert watcher.poll() is None, "the run has ended"
        time.sleep(0.005)
    first = time.monotonic()
    while not (output / "manifest.json").exists():
        time.sleep(0.005)
    worked = time.monotonic() - first
    assert [each.wait() for each in (watcher, *members)] == [0] * (workers + 1)
    return time.monotonic() - began, worked, _cpu_seconds() - cpu


def _cpu_seconds() -> float:
    """Of all processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _from_first_pass(output: Path) -> float:
    events = [json.loads(line) for line in (output / ".penstock" / "events.jsonl").read_text().splitlines()]
    first = next(event["time"] for event in events if event["event"] == "pass")
    done = next(event["time"] for event in events if event["event"] == "done")
    return float(done - first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    print(f"penstock {penstock.__version__}, {Config.from_file(asked.job).input[0].patterns}")
    taken: dict[str, list[tuple[float, float, float]]] = {"alone": [], "shared": []}
    identities = set()
    for turn in range(asked.turns):
        for name, way in (("alone", alone), ("shared", shared)):
            output = asked.folder / f"{name}-{turn}"
            shutil.rmtree(output, ignore_errors=True)
            taken[name].append(way(asked.job, output, asked.workers))
            identities.add(dataset_id(open_store(output)))
            shutil.rmtree(output)
            print(f"{turn} {name:7} " + "  ".join(f"{seconds:8.2f} s" for seconds in taken[name][-1]), flush=True)
    assert len(identities) == 1, identities
    for number, word in enumerate(("in all", "beyond start-up", "CPU")):
        ratios = [
            with_[number] / without[number] for with_, without in zip(taken["shared"], taken["alone"], strict=True)
        ]
        print(f"{word}: {statistics.median(ratios):.3f} of one machine ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
