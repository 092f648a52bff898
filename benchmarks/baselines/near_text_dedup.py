"""text-dedup's own MinHash command, by two processes: documents -> those that it keeps. All band keys stay in memory.

    python -m benchmarks.baselines.near_text_dedup --input xs/parquet --output out

Its faster hash and the bands, rows and words of penstock's defaults; no document is left out for being short. Its
package asks for pyspark and onnxruntime, which this command does not import: it is installed without them.
"""

from __future__ import annotations

import argparse

from benchmarks.baselines.near_kept import KEPT, WORDS, options


def deduplicate(given: argparse.Namespace) -> None:
    from text_dedup.minhash import main as minhash

    settings = {
        "path": "parquet",
        "data_files": given.input / "*.parquet",
        "split": "train",
        "cache_dir": given.output / "cache",
        "output": given.output / KEPT,
        "column": "text",
        "num_proc": given.processes,
        "ngram": WORDS,
        "min_length": 1,
        "num_perm": given.bands * given.rows,
        "b": given.bands,
        "r": given.rows,
        "hash_func": "xxh3",
    }
    minhash([word for name, value in settings.items() for word in (f"--{name}", str(value))], standalone_mode=False)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--bands", type=int, default=20)
    parser.add_argument("--rows", type=int, default=6)
    deduplicate(parser.parse_args())


if __name__ == "__main__":
    main()
