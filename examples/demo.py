"""The demo: six million generated measurements, planned and prepared in a memory budget.

Everything lands in ./demo and can be looked at afterwards; `make demo` runs this.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

ROOT = Path("demo")
JOB = """\
# The demo job. Try changing it, and run it again: penstock says what changed.
input: raw/*.parquet
output: prepared
memory: 300MB
stages:
  - filter: rtt > 0
  - split: {by: src_addr, test: 0.1}
  - statistics: [rtt]
"""


def make_data(folder: Path, files: int = 12, rows: int = 500_000) -> None:
    """Network latency measurements: a heavy tail of sources, unsorted in time, a few failed ones."""
    folder.mkdir(parents=True)
    keys = pa.array([f"10.{i >> 16 & 255}.{i >> 8 & 255}.{i & 255}" for i in range(20_000)])
    for number in range(files):
        rng = np.random.default_rng(number)
        rtt = rng.gamma(2, 20, rows)
        rtt[rng.random(rows) < 0.02] = -1
        table = pa.table(
            {
                "src_addr": keys.take(pa.array(rng.zipf(1.3, rows) % len(keys))),
                "event_time": pa.array(rng.integers(16 * 10**14, 17 * 10**14, rows), pa.timestamp("us")),
                "dst_addr": keys.take(pa.array(rng.integers(0, len(keys), rows))),
                "ip_version": pa.array(np.full(rows, 4), pa.int8()),
                "rtt": pa.array(rtt, pa.float32()),
            }
        )
        pq.write_table(table, folder / f"{number:02d}.parquet", row_group_size=125_000)


def penstock(*words: str) -> None:
    print(f"\n$ penstock {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "penstock", *words], check=True)


def main() -> None:
    shutil.rmtree(ROOT, ignore_errors=True)
    make_data(ROOT / "raw")
    (ROOT / "job.yaml").write_text(JOB)
    os.chdir(ROOT)
    print(f"made {sum(path.stat().st_size for path in Path('raw').iterdir()) / 1e6:.0f} MB of Parquet in demo/raw")
    print(f"\n$ cat job.yaml\n{JOB.rstrip()}", flush=True)
    penstock("plan", "job.yaml")
    penstock("run", "job.yaml")


if __name__ == "__main__":
    main()
