"""First load: how long the first load() of a machine takes, and the next ones: `python -m benchmarks.first_load`.

Each measurement is a process of its own. Cold: the cache folder is empty. Warm: what the cold process left is there.
Imports are measured apart. CPU seconds are those of the process: beside other work they say more than the clock.
`--shards N` adds a dataset of N small shards, of which only a warm load says something. `--other SRC` measures the
package of another source folder in turn, in the same run.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock

PROGRAM = """
import json, sys, time
def clocks():
    return time.perf_counter(), time.process_time()
first = clocks()
import numba, numpy, penstock
penstock.load
imported = clocks()
with penstock.load(sys.argv[1], **json.loads(sys.argv[2])) as loader:
    loaded = clocks()
    next(loader)
print(json.dumps([[round(b - a, 2) for a, b in zip(*pair)] for pair in ((first, imported), (imported, loaded))]))
"""
SEED = 1


def make_rows(folder: Path, rows: int, slice_size: str) -> Path:
    rng = np.random.default_rng(SEED)
    tokens = pa.array(rng.integers(0, 50_000, rows * 65).astype("u2"))
    return _prepare(folder, pa.table({"tokens": pa.FixedSizeListArray.from_arrays(tokens, 65)}), [], slice_size)


def make_arrays(folder: Path) -> Path:
    rng = np.random.default_rng(SEED)
    features = pa.FixedSizeListArray.from_arrays(pa.array(rng.normal(size=7_000).astype("f4")), 7)
    table = pa.table({"features": features, "label": pa.array(rng.integers(0, 9, 1_000), pa.int16())})
    return _prepare(folder, table, [], "64MB")


def make_events(folder: Path) -> Path:
    rng, count = np.random.default_rng(SEED), 20_000
    table = pa.table(
        {
            "key": pa.array([f"10.0.0.{key}" for key in rng.integers(0, 200, count)]),
            "at": pa.array(rng.integers(0, 10**9, count), pa.timestamp("s")),
            "value": pa.array(rng.normal(5, 9, count), pa.float64()),
        }
    )
    return _prepare(folder, table, [{"group": {"by": "key", "order": "at"}}], "64MB")


def _prepare(folder: Path, table: pa.Table, stages: list[Any], slice_size: str) -> Path:
    folder.mkdir(parents=True)
    pq.write_table(table, folder / "input.parquet", row_group_size=20 if slice_size == "1kB" else None)
    job = {"input": str(folder / "input.parquet"), "output": str(folder / "out"), "stages": stages}
    penstock.run({**job, "workers": 0, "memory": "1GB", "slice_size": slice_size})
    return folder / "out"


def measure(path: Path, options: dict[str, Any], cache: Path, source: Path) -> tuple[list[float], list[float]]:
    """(wall, CPU) seconds of the imports, and of load()."""
    given = {**os.environ, "PYTHONPATH": str(source), "PENSTOCK_CACHE_DIR": str(cache / "penstock")}
    given["NUMBA_CACHE_DIR"] = str(cache / "numba")
    program = [sys.executable, "-c", PROGRAM, str(path), json.dumps(options)]
    ran = subprocess.run(program, env=given, check=True, stdout=subprocess.PIPE, text=True)
    imports, load = json.loads(ran.stdout)
    return imports, load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shards", type=int, default=0)
    parser.add_argument("--other", type=Path, help="a source folder (.../src) to measure in turn")
    asked = parser.parse_args()
    own = Path(penstock.__file__).parent.parent
    sources = [own, *([asked.other] if asked.other else [])]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fields = {"at": "time", "key": "ip", "value": "float11"}
        kinds: dict[str, tuple[Path, dict[str, Any]]] = {
            "rows": (make_rows(folder / "rows", 1_000, "64MB"), {}),
            "arrays": (make_arrays(folder / "arrays"), {}),
            "events": (make_events(folder / "events"), {"length": 128, "fields": fields}),
        }
        if asked.shards:
            kinds[f"{asked.shards} shards"] = (make_rows(folder / "many", 20 * asked.shards, "1kB"), {})
        print("| kind | of | cold: wall, CPU s | warm: wall, CPU s | cold over warm (CPU) | imports: wall, CPU s |")
        print("|---|---|---|---|---|---|")
        for kind, (path, options) in kinds.items():
            for number, source in enumerate(sources):
                cache = folder / "caches" / f"{kind}-{number}"
                _, cold = measure(path, {"batch_size": 8, **options}, cache, source)
                warm = [measure(path, {"batch_size": 8, **options}, cache, source) for _ in range(3)]
                imports, load = min(each[0] for each in warm), min(each[1] for each in warm)
                ratio = cold[1] / max(load[1], 0.01)
                times = [f"{wall:.2f}, {cpu:.2f}" for wall, cpu in (cold, load, imports)]
                which = "these sources" if source is own else "the others"
                print(f"| {kind} | {which} | {times[0]} | {times[1]} | {ratio:.0f} | {times[2]} |", flush=True)


if __name__ == "__main__":
    main()
