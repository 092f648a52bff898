"""The older system's streaming way: one DuckDB aggregation into lists, through Parquet, then a pool that serialises.

    python benchmarks/baselines/events_streaming.py --input 'data/*.parquet' --output out --memory-limit-gb 8

DuckDB collects the structs of each key into a list and copies the lists to Parquet; processes read groups of keys
from it and write ArrayRecord parts, splitting records above 8 MB; the parts are copied into train.arrayrecord
and test.arrayrecord, the first 90% of the keys in the order of that Parquet being train.

`--ordered` lets DuckDB order each list by time; without it each group is sorted here. `--rows python` (lists
of Python dicts) stands for the described system; `--rows arrow` slices Arrow lists, as one would write it now.
The memory limit is DuckDB's own: it holds for the aggregation, not for the pool.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from multiprocessing import get_context
from operator import itemgetter
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from array_record.python.array_record_module import ArrayRecordReader, ArrayRecordWriter
from events_record import MEASUREMENT, WRITER_OPTIONS, records_of_batch, records_of_dicts, sorted_by_time

TRAIN_SHARE = 0.9
KEYS_PER_TASK = 2048  # DuckDB's smallest row group
KEYS_PER_BATCH = 256
RECORDS_PER_COPY = 32


@dataclass(frozen=True)
class Task:
    """One row group of the collected Parquet. Keys from `train_end` on, counted from its start, are test."""

    groups: Path
    row_group: int
    train_end: int
    ordered: bool
    rows: str

    def part(self, split: str) -> Path:
        return self.groups.parent / f"{self.row_group:06d}.{split}.part"


def collect(pattern: str, groups: Path, memory_limit_gb: float, threads: int, ordered: bool) -> None:
    """One row a key, with the list of its measurements."""
    fields = ", ".join(f"'{name}': {name}" for name in MEASUREMENT.names)
    order = " ORDER BY event_time" if ordered else ""
    quoted = pattern.replace("'", "''")
    with duckdb.connect() as connection:
        connection.execute(f"SET memory_limit = '{memory_limit_gb}GB'")
        connection.execute(f"SET temp_directory = '{groups.parent / 'duckdb'}'")
        connection.execute(f"SET threads = {threads}")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            f"COPY (SELECT list({{{fields}}}{order}) AS measurements FROM read_parquet('{quoted}') GROUP BY src_addr)"
            f" TO '{groups}' (FORMAT parquet, ROW_GROUP_SIZE {KEYS_PER_TASK})"
        )


def plan(groups: Path, ordered: bool, rows: str) -> list[Task]:
    metadata = pq.read_metadata(groups)
    train_end = int(metadata.num_rows * TRAIN_SHARE)
    tasks = []
    for number in range(metadata.num_row_groups):
        tasks.append(Task(groups, number, train_end, ordered, rows))
        train_end -= metadata.row_group(number).num_rows
    return tasks


def serialise(task: Task) -> int:
    """Write the records of one row group to its parts; answers how many."""
    writers: dict[str, ArrayRecordWriter] = {}
    keys_of = records_from_dicts if task.rows == "python" else records_from_lists
    written = 0
    with pq.ParquetFile(task.groups) as file:
        for position, records in enumerate(keys_of(file, task)):
            split = "train" if position < task.train_end else "test"
            if split not in writers:
                writers[split] = ArrayRecordWriter(str(task.part(split)), WRITER_OPTIONS)
            for record in records:
                writers[split].write(record)
                written += 1
    for writer in writers.values():
        writer.close()
    return written


def records_from_dicts(file: pq.ParquetFile, task: Task) -> Iterator[Iterator[bytes]]:
    for batch in file.iter_batches(KEYS_PER_BATCH, row_groups=[task.row_group]):
        for rows in batch["measurements"]:
            measurements = rows.as_py()
            if not task.ordered:
                measurements.sort(key=itemgetter("event_time"))
            yield records_of_dicts(measurements)


def records_from_lists(file: pq.ParquetFile, task: Task) -> Iterator[Iterator[bytes]]:
    for batch in file.iter_batches(KEYS_PER_BATCH, row_groups=[task.row_group]):
        lists = batch["measurements"]
        offsets = lists.offsets.to_pylist()
        rows = pa.RecordBatch.from_struct_array(lists.values).cast(MEASUREMENT)
        for start, end in pairwise(offsets):
            group = rows.slice(start, end - start)
            yield records_of_batch(group if task.ordered else sorted_by_time(group))


def merge(parts: list[Path], target: Path) -> None:
    writer = ArrayRecordWriter(str(target), WRITER_OPTIONS)
    for part in parts:
        reader = ArrayRecordReader(str(part))
        count = reader.num_records()
        for start in range(0, count, RECORDS_PER_COPY):
            for record in reader.read(start, min(start + RECORDS_PER_COPY, count)):
                writer.write(record)
        reader.close()
    writer.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--input", required=True)
    options.add_argument("--output", required=True)
    options.add_argument("--workers", type=int, default=2)
    options.add_argument("--memory-limit-gb", type=float, default=8)
    options.add_argument("--ordered", action="store_true")
    options.add_argument("--rows", choices=["python", "arrow"], default="python")
    given = options.parse_args()
    output = Path(given.output)
    scratch = output / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    groups = scratch / "groups.parquet"

    started = time.perf_counter()
    collect(given.input, groups, given.memory_limit_gb, given.workers, given.ordered)
    collected = time.perf_counter()
    tasks = plan(groups, given.ordered, given.rows)
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        written = sum(pool.map(serialise, tasks))
    serialised = time.perf_counter()
    for split in ("train", "test"):
        parts = [task.part(split) for task in tasks if task.part(split).exists()]
        merge(parts, output / f"{split}.arrayrecord")
    shutil.rmtree(scratch)
    merged = time.perf_counter()
    print(
        f"{written:,} records; collect {collected - started:.1f} s, "
        f"serialise {serialised - collected:.1f} s, merge {merged - serialised:.1f} s",
        file=sys.stderr,
    )


if __name__ == "__main__":
    main()
