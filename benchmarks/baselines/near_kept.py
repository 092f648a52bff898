"""What every baseline of near-duplicates is given, and how documents become shingles in those that are told to.

Each leaves the documents that it keeps, with their ids, in `kept/` of its output: Parquet, or Arrow as datasets
writes it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

KEPT = "kept"
WORDS = 5
ROWS_AT_ONCE = 1_000


def options(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True, help="a folder of Parquet files with columns id and text")
    parser.add_argument("--output", type=Path, required=True, help="a folder to make, caches included")
    parser.add_argument("--processes", type=int, default=2)
    return parser


def batches(folder: Path) -> Iterator[pa.RecordBatch]:
    for path in sorted(folder.glob("*.parquet")):
        yield from pq.ParquetFile(path).iter_batches(ROWS_AT_ONCE, columns=["id", "text"])


def shingles(text: str) -> list[str]:
    words = text.split()
    if len(words) < WORDS:
        return [" ".join(words)]
    return list(map(" ".join, zip(*(words[at:] for at in range(WORDS)), strict=False)))
