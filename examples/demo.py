"""The demo: group a million measurements by source within a memory budget, load them, and compare with the usual way.

It ends with the comparison, one decoded batch and a report. `make demo` runs it; everything is in ./demo afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from penstock.base.memory import tree_memory

ROOT = Path("demo")
BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
EVENTS = 1_000_000
DATA = "demo/raw/*.parquet"
EVENTS_JOB = ["events", "--input", DATA, "--output", "demo/rows", "--set", "by=src_addr", "--set", "order=event_time"]


def penstock(*words: str) -> None:
    print(f"\n$ penstock {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "penstock", *words], check=True)


def cost(command: list[str]) -> tuple[float, float, float]:
    """(wall seconds, CPU seconds, peak MB) of a command and all it starts."""
    started, peak = time.perf_counter(), 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        peak = max(peak, tree_memory(process.pid).counted)
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(ended[1])
    if process.returncode:
        raise SystemExit(f"exit {process.returncode}: {' '.join(command)}")
    return time.perf_counter() - started, ended[2].ru_utime + ended[2].ru_stime, peak / 1e6


def compare() -> None:
    """Compare with a SQL engine's list aggregate and a pool of processes that serializes the records."""
    streaming = str(BENCHMARKS / "baselines" / "events_streaming.py")
    usual = ["--input", DATA, "--output", "demo/usual", "--ordered", "--workers", "2"]
    shutil.rmtree(ROOT / "rows")
    runs = {
        "penstock": cost([sys.executable, "-m", "penstock", "run", *EVENTS_JOB]),
        "DuckDB list() + Python": cost([sys.executable, streaming, *usual]),
    }
    print(f"\nThe usual way beside it, whole commands on {EVENTS:,} events:\n")
    print(f"{'':24}{'seconds':>10}{'CPU s':>10}{'peak MB':>10}")
    for name, (wall, cpu, peak) in runs.items():
        print(f"{name:24}{wall:10.1f}{cpu:10.1f}{peak:10.0f}")
    ratios = [theirs / ours for ours, theirs in zip(*runs.values(), strict=True)]
    print(f"{'ratio':24}" + "".join(f"{ratio:9.1f}x" for ratio in ratios))
    print("\nThe difference grows with the data: benchmarks/RESULTS.md has 20 to 200 million events.")


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    maker = [sys.executable, str(BENCHMARKS / "make_events.py"), "--events", str(EVENTS), "--output", "demo/raw"]
    subprocess.run(maker, check=True)
    penstock("plan", *EVENTS_JOB, "--memory", "400MB")
    penstock("run", *EVENTS_JOB, "--memory", "400MB")
    penstock("inspect", "demo/rows", "--records", "1")
    print("\nThe other half loads. The first time on a machine, its kernels are compiled (5 to 20 s).")
    penstock("bench", "demo/rows", "--step-ms", "50", "--seconds", "2")
    compare()
    penstock("inspect", "demo/rows", "--tokens", "--rows", "1", "--length", "64")
    penstock("report", "demo/rows", "-o", "demo/report.html")


if __name__ == "__main__":
    main()
