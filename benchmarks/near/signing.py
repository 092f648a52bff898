"""Signing: penstock's shingles and signatures, in one thread -> CPU seconds. Beside baselines/near_signatures.py.

python -m benchmarks.near.signing --input xs/parquet
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.baselines.near_kept import batches
from penstock.prepare.stages.dedup.near.shingles import Giant, Shingling
from penstock.prepare.stages.dedup.near.signatures import Banding

BANDS, ROWS, WORDS, CHARACTERS = 20, 6, 5, 8


def measured(texts: list[pa.Array]) -> dict[str, float]:
    """`whole` begins with texts in memory, `alone` with the hashes of their shingles."""
    shingling, banding = Shingling(WORDS, CHARACTERS), Banding(BANDS, ROWS)
    whole = alone = 0.0
    for batch in texts:
        started = time.process_time()
        hashed = list(shingling.of(batch))
        shingled = time.process_time()
        for each in hashed:
            banding.giant_keys(each) if isinstance(each, Giant) else banding.keys(each)
        ended = time.process_time()
        whole += ended - started
        alone += ended - shingled
    text_bytes = sum(pc.sum(pc.binary_length(batch)).as_py() for batch in texts)
    return {"bytes": text_bytes, "documents": sum(map(len, texts)), "whole": whole, "alone": alone}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", type=Path, required=True)
    given = parser.parse_args()
    texts = [batch["text"] for batch in batches(given.input)]
    measured(texts[:1])
    print(json.dumps(measured(texts)))


if __name__ == "__main__":
    main()
