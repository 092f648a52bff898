"""A bare pyarrow loop: N processes, each reads its share of the row groups in batches and writes them as Arrow IPC.

No checksums, no accounting, no resume, no fsync: what penstock's map is measured against.
"""

from __future__ import annotations

import glob
import os
import sys
from multiprocessing import get_context

import pyarrow as pa
import pyarrow.parquet as pq


def copy_files(job: tuple[list[str], str, str]) -> int:
    paths, target, sync = job
    rows = 0
    for path in paths:
        file = pq.ParquetFile(path, pre_buffer=False)
        out = os.path.join(target, os.path.basename(path) + ".arrow")
        with open(out, "wb") as sink, pa.ipc.new_file(sink, file.schema_arrow) as writer:
            for batch in file.iter_batches(65536, use_threads=False):
                writer.write_batch(batch)
                rows += batch.num_rows
        if sync == "sync":
            descriptor = os.open(out, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
    return rows


if __name__ == "__main__":
    pattern, target, processes, sync = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
    os.makedirs(target, exist_ok=True)
    paths = sorted(glob.glob(pattern))
    shares = [(paths[number::processes], target, sync) for number in range(processes)]
    with get_context("spawn").Pool(processes) as pool:
        print(sum(pool.map(copy_files, shares)))
