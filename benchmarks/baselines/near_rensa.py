"""rensa's signatures and bands: documents -> those that it keeps. One process; all signatures and keys stay in memory.

    python -m benchmarks.baselines.near_rensa --input xs/parquet --output out

Shingles are made in Python, as its documentation does with words. It compares candidates by their signatures.
"""

from __future__ import annotations

import argparse

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.baselines.near_kept import KEPT, batches, options, shingles

THRESHOLD = 0.8


def deduplicate(given: argparse.Namespace) -> None:
    from rensa import RMinHashDeduplicator

    finder = RMinHashDeduplicator(THRESHOLD, given.bands * given.rows, use_lsh=True, num_bands=given.bands)
    (given.output / KEPT).mkdir(parents=True)
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    with pq.ParquetWriter(given.output / KEPT / "kept.parquet", schema, compression="zstd") as writer:
        for batch in batches(given.input):
            ids, texts = batch["id"].to_pylist(), batch["text"].to_pylist()
            kept = finder.add_pairs(zip(ids, map(shingles, texts), strict=True))
            writer.write_batch(batch.filter(pa.array(kept)))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bands", type=int, default=20)
    parser.add_argument("--rows", type=int, default=6)
    deduplicate(parser.parse_args())


if __name__ == "__main__":
    main()
