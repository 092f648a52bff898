"""The floor of any events job: N processes decode the row groups and drop what they read.

    python benchmarks/baselines/events_scan.py 'data/*.parquet' 2 dictionary

Text as dictionaries, or `plain`: quicker where a writer gave up its dictionary, as make_events.py says.
"""

from __future__ import annotations

import glob
import sys
from multiprocessing import get_context

import pyarrow.parquet as pq

TEXT_COLUMNS = ["src_addr", "dst_addr"]


def scan(job: tuple[list[tuple[str, int]], list[str]]) -> int:
    share, dictionaries = job
    rows = 0
    for path, row_group in share:
        with pq.ParquetFile(path, read_dictionary=dictionaries, pre_buffer=False) as file:
            rows += file.read_row_group(row_group, use_threads=False).num_rows
    return rows


if __name__ == "__main__":
    pattern, processes, text = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    paths = sorted(glob.glob(pattern))
    row_groups = [(path, number) for path in paths for number in range(pq.read_metadata(path).num_row_groups)]
    dictionaries = TEXT_COLUMNS if text == "dictionary" else []
    shares = [(row_groups[number::processes], dictionaries) for number in range(processes)]
    with get_context("spawn").Pool(processes) as pool:
        print(sum(pool.map(scan, shares)))
