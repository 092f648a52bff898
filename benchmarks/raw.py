"""How fast are windows of records (`encode="raw"`), against a plain loop over records? About a minute.

    python -m benchmarks.raw
    python -m benchmarks.raw --users 50000 --length 256 --seconds 10

Users with a share of 1/rank, a time, a whole number and a real one per event; random windows, padded. The loop has the
same columns in memory as numpy arrays with offsets, draws a shuffled record and a random position, and copies slices
into zeroed arrays, one record at a time. Both use one thread, and the loader also verifies checksums.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import penstock
from benchmarks.loading import measure

NAMES = ("at", "page", "seconds")
BATCH = 256


def make_dataset(folder: Path, users: int, events: int) -> Path:
    rng = np.random.default_rng(1)
    shares = 1 / np.arange(1, users + 1)
    table = pa.table(
        {
            "user": rng.choice(users, events, p=shares / shares.sum()),
            "at": pa.array(np.arange(events), pa.timestamp("s")),
            "page": pa.array(rng.integers(0, 1000, events), pa.int32()),
            "seconds": pa.array(rng.random(events), pa.float32()),
        }
    )
    pq.write_table(table, folder / "visits.parquet")
    stages = [{"group": {"by": "user", "order": "at"}}]
    job = {"input": str(folder / "*.parquet"), "output": str(folder / "out"), "stages": stages, "memory": "2GB"}
    penstock.run(job, progress=False)
    return folder / "out"


def loop(columns: dict[str, np.ndarray], offsets: np.ndarray, length: int) -> Iterator[dict[str, np.ndarray]]:
    """Batches of a plain loop over records, without end."""
    rng = np.random.default_rng(1)
    while True:
        order = rng.permutation(len(offsets) - 1)
        for first in range(0, len(order) - BATCH, BATCH):
            batch = {name: np.zeros((BATCH, length), values.dtype) for name, values in columns.items()}
            lengths = np.zeros(BATCH, "i4")
            for row, record in enumerate(order[first : first + BATCH]):
                start, stop = offsets[record], offsets[record + 1]
                start += rng.integers(0, max(0, stop - start - length) + 1)
                count = min(length, stop - start)
                for name, values in columns.items():
                    batch[name][row, :count] = values[start : start + count]
                lengths[row] = count
            yield {**batch, "lengths": lengths}


def flat_columns(path: Path) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The whole dataset in memory, as values with offsets."""
    records = list(penstock.open(path))
    columns = {name: np.concatenate([record[name] for record in records]) for name in NAMES}
    return columns, np.cumsum([0, *(len(record["page"]) for record in records)])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=20_000)
    parser.add_argument("--events", type=int, default=2_000_000)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = make_dataset(Path(folder), options.users, options.events)
        started = time.perf_counter()
        plain = measure(loop(*flat_columns(path), options.length), lambda batch: len(batch["lengths"]), options.seconds)
        print(f"plain loop: {plain.tokens / plain.wall_seconds:,.0f} rows/s")
        for layout in ("padded", "offsets"):
            asked = {"length": options.length, "window": "random", "layout": layout, "columns": NAMES, "workers": 1}
            with penstock.load(path, batch_size=BATCH, encode="raw", **asked) as loader:
                made = measure(iter(loader.__next__, None), lambda _: BATCH, options.seconds)
            ratio = (made.tokens / made.wall_seconds) / (plain.tokens / plain.wall_seconds)
            print(f"encode='raw', {layout}: {made.tokens / made.wall_seconds:,.0f} rows/s, {ratio:.1f} times the loop")
        print(f"{time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
