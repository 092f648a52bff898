"""Signatures alone, by rensa or datasketch in one thread: documents -> CPU seconds, as a line of JSON.

    python -m benchmarks.baselines.near_signatures --tool rensa --input xs/parquet --bytes 20000000

`whole` begins with texts in memory; `alone` with their shingles as Python strings. Nothing is kept but signatures.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.baselines.near_kept import batches, shingles

Sign = Callable[[list[list[str]]], object]
VALUES = 120
AT_ONCE = 100


def with_rensa() -> Sign:
    from rensa import RMinHash

    return lambda those: RMinHash.digest_matrix_from_token_sets(those, VALUES, 1)


def with_datasketch() -> Sign:
    from datasketch import MinHash

    return lambda those: MinHash.bulk([[each.encode() for each in some] for some in those], num_perm=VALUES)


TOOLS = {"rensa": with_rensa, "datasketch": with_datasketch}


def measured(texts: list[str], sign: Sign) -> dict[str, float]:
    """Some documents at a time, so that few shingles are in memory."""
    whole = alone = 0.0
    for first in range(0, len(texts), AT_ONCE):
        started = time.process_time()
        those = [shingles(text) for text in texts[first : first + AT_ONCE]]
        shingled = time.process_time()
        sign(those)
        ended = time.process_time()
        whole += ended - started
        alone += ended - shingled
    text_bytes = sum(len(text.encode()) for text in texts)
    return {"bytes": text_bytes, "documents": len(texts), "whole": whole, "alone": alone}


def read(folder: Path, least_bytes: int) -> list[str]:
    """So many bytes of text, from the first document on."""
    texts, found = [], 0
    for batch in batches(folder):
        for text in batch["text"].to_pylist():
            if found >= least_bytes:
                return texts
            texts.append(text)
            found += len(text.encode())
    return texts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=TOOLS, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--bytes", type=int, default=1 << 62)
    given = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = "1"
    sign = TOOLS[given.tool]()
    sign([["warm", "up"]])
    print(json.dumps(measured(read(given.input, given.bytes), sign)))


if __name__ == "__main__":
    main()
