"""datatrove's MinHash deduplication in its four steps, by two tasks: documents -> those that it keeps.

    python -m benchmarks.baselines.near_datatrove --input xs/parquet --output out
    python -m benchmarks.baselines.near_datatrove --input xs/parquet --output out --bands 20 --rows 6

Bands and rows are its own 14 and 8 if not told otherwise, shingles its five words of simplified text.
"""

from __future__ import annotations

import argparse

from benchmarks.baselines.near_kept import KEPT, options


def deduplicate(given: argparse.Namespace) -> None:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import (
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
        MinhashDedupSignature,
    )
    from datatrove.pipeline.dedup.minhash import MinhashConfig
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.writers import ParquetWriter

    config = MinhashConfig(num_buckets=given.bands, hashes_per_bucket=given.rows)
    signatures, buckets, removed = (str(given.output / name) for name in ("signatures", "buckets", "removed"))
    reader = ParquetReader(str(given.input), read_metadata=False)
    pair = MinhashDedupBuckets(signatures, buckets, config=config)
    cluster = MinhashDedupCluster(buckets, removed, config=config)
    writer = ParquetWriter(str(given.output / KEPT))
    steps = {
        "sign": ([reader, MinhashDedupSignature(signatures, config=config)], given.processes),
        "pair": ([pair], given.bands),
        "cluster": ([cluster], 1),
        "filter": ([reader, MinhashDedupFilter(removed), writer], given.processes),
    }
    for name, (pipeline, tasks) in steps.items():
        logs = str(given.output / "logs" / name)
        workers = min(tasks, given.processes)
        LocalPipelineExecutor(pipeline, tasks=tasks, workers=workers, logging_dir=logs, start_method="spawn").run()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bands", type=int, default=14)
    parser.add_argument("--rows", type=int, default=8)
    deduplicate(parser.parse_args())


if __name__ == "__main__":
    main()
