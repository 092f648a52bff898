"""How fast is a map over much Parquet in little memory, against a bare pyarrow loop? `make bench` runs it.

    python benchmarks/map_against_pyarrow.py --size 10GB --memory 300MB --folder /scratch/bench

Prints one table with the ratio within the same run. Data are made once and kept in the folder.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from watch import Cost, machine, settle, watch

from penstock.base.sizes import parse_size

HERE = Path(__file__).parent
ROWS_PER_FILE = 3_000_000
DISTINCT_FILES = 8


def make_data(folder: Path, size: int) -> Path:
    """Distinct files of network measurements, then copies of them under other names up to `size`."""
    data = folder / f"data-{size}"
    if (data / "complete").exists():
        return data
    data.mkdir(parents=True, exist_ok=True)
    written, number = 0, 0
    while written < size:
        path = data / f"{number:05d}.parquet"
        if number < DISTINCT_FILES:
            _write_file(path, number)
        else:
            shutil.copyfile(data / f"{number % DISTINCT_FILES:05d}.parquet", path)
        written += path.stat().st_size
        number += 1
    (data / "complete").touch()
    return data


def _write_file(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = pa.array([f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}" for i in range(200_000)])
    count = ROWS_PER_FILE
    table = pa.table(
        {
            "src_addr": keys.take(pa.array(rng.zipf(1.3, count) % len(keys))),
            "event_time": pa.array(rng.integers(16 * 10**14, 17 * 10**14, count), pa.timestamp("us")),
            "dst_addr": keys.take(pa.array(rng.integers(0, len(keys), count))),
            "ip_version": pa.array(rng.choice([4, 6], count), pa.int8()),
            "rtt": pa.array(rng.gamma(2, 20, count), pa.float32()),
            "loss": pa.array(rng.random(count), pa.float64()),
        }
    )
    pq.write_table(table, path, row_group_size=1_000_000)


def run_penstock(
    data: Path, folder: Path, memory: str, stages: list[object], workers: int
) -> tuple[Cost, dict[str, int]]:
    shutil.rmtree(folder / "out", ignore_errors=True)
    job = {
        "input": f"{data}/*.parquet",
        "output": str(folder / "out"),
        "memory": memory,
        "stages": stages,
        "workers": workers,
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    settle()
    cost = watch([sys.executable, "-m", "penstock", "run", str(folder / "job.yaml"), "--json"])
    return cost, json.loads((folder / "out" / ".penstock" / "run.json").read_text())


def run_baseline(data: Path, folder: Path, workers: int, sync: str) -> Cost:
    shutil.rmtree(folder / "baseline", ignore_errors=True)
    settle()
    script = str(HERE / "baselines" / "pyarrow_loop.py")
    cost = watch([sys.executable, script, f"{data}/*.parquet", str(folder / "baseline"), str(workers), sync])
    shutil.rmtree(folder / "baseline")
    return cost


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--size", default="1GB")
    options.add_argument("--memory", default="300MB")
    options.add_argument("--folder", default="build/bench-map")
    options.add_argument("--workers", type=int, default=2)
    given = options.parse_args()
    folder = Path(given.folder).absolute()
    data = make_data(folder, parse_size(given.size))
    watch(["cat", *map(str, sorted(data.glob("*.parquet")))])  # every run starts with the same page cache
    bare = run_baseline(data, folder, given.workers, "nosync")
    synced = run_baseline(data, folder, given.workers, "sync")
    ours, facts = run_penstock(data, folder, given.memory, [], given.workers)
    stages: list[object] = [{"filter": "rtt > 5"}, {"split": {"by": "src_addr", "test": 0.1}}]
    staged, _ = run_penstock(data, folder, given.memory, stages, given.workers)
    shutil.rmtree(folder / "out")
    print(f"\n{given.size} of Parquet, memory: {given.memory}, {given.workers} processes; {machine()}\n")
    print("| run | wall s | CPU s | peak tree MB |\n|---|---|---|---|")
    print(bare.row("bare pyarrow loop, Parquet -> Arrow IPC, no fsync"))
    print(synced.row("the same, each file fsynced"))
    print(ours.row("penstock run, no stages"))
    print(staged.row("penstock run, filter and split by key"))
    print(f"\nspeed against the bare loop: {bare.wall_seconds / ours.wall_seconds:.2f} (wall), ", end="")
    print(f"{bare.cpu_seconds / ours.cpu_seconds:.2f} (CPU); against the fsynced one: ", end="")
    print(f"{synced.wall_seconds / ours.wall_seconds:.2f} (wall)")
    print(
        f"projected {facts['projected_memory_bytes'] / 1e6:.0f} MB, "
        f"allowed {facts['allowed_memory_bytes'] / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
