"""The older system's way from documents to packed rows: datasets' map and filter, a set of texts, trl's packing.

    python -m benchmarks.baselines.text_seed --input xs/parquet --tokenizer tokenizers/qwen2_5 --output out
    python -m benchmarks.baselines.text_seed --digest out

Our own words for a described design, in the mode that is faster and keeps everything in memory. It tokenizes in eight
processes fewer than there are cores, so in one where there are few; `--processes` says otherwise, 0 for the tokenizer's
own threads. trl packs within a batch of map, so all documents are one batch; a short last row is left out. `--digest`
says what is in the rows that were saved: the hash of the tokens, one after the other, as little-endian int32.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from benchmarks.baselines.text_measured import options, report

MIN_TOKENS = 100
LENGTH = 2048


def prepare(given: argparse.Namespace) -> tuple[int, int]:
    """How many documents are in the rows, and how many tokens."""
    from datasets import load_dataset
    from transformers import AutoTokenizer
    from trl import pack_dataset

    files = sorted(map(str, given.input.glob("*.parquet")))
    raw = load_dataset("parquet", data_files=files, split="train", cache_dir=str(given.output / "cache"))
    cleaned = raw.select_columns(["text"]).map(lambda row: {"text": row["text"].strip()})
    seen: set[str] = set()

    def is_first(row: dict[str, str]) -> bool:
        known = row["text"] in seen
        seen.add(row["text"])
        return not known

    distinct = cleaned.filter(is_first)
    tokenizer = AutoTokenizer.from_pretrained(str(given.tokenizer))

    def tokenize(batch: dict[str, list[str]]) -> dict[str, Any]:
        encoded = tokenizer(batch["text"], padding=False, truncation=False)
        for tokens, mask in zip(encoded["input_ids"], encoded["attention_mask"], strict=True):
            tokens.append(tokenizer.eos_token_id)
            mask.append(1)
        return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}

    tokenized = distinct.map(tokenize, batched=True, num_proc=given.processes or None, remove_columns=["text"])
    lengths = [len(tokens) for tokens in tokenized["input_ids"]]
    long = tokenized.select([row for row, length in enumerate(lengths) if length >= given.min_tokens])
    packed = pack_dataset(long, given.length, strategy="wrapped", map_kwargs={"batch_size": len(long)})
    if len(packed) and len(packed[-1]["input_ids"]) < given.length:
        packed = packed.select(range(len(packed) - 1))
    packed.save_to_disk(str(given.output / "saved"))
    return len(long), len(packed) * given.length


def digest(output: Path) -> dict[str, Any]:
    import numpy as np
    import xxhash
    from datasets import load_from_disk

    rows = load_from_disk(str(output / "saved")).with_format("numpy", columns=["input_ids"])
    hashed, tokens = xxhash.xxh3_128(), 0
    for batch in rows.iter(batch_size=1000):
        flat = np.ascontiguousarray(np.concatenate(batch["input_ids"]), "<i4")
        hashed.update(flat)
        tokens += len(flat)
    return {"digest": hashed.hexdigest(), "tokens": tokens, "rows": len(rows)}


def main() -> None:
    if sys.argv[1:2] == ["--digest"]:
        print(json.dumps(digest(Path(sys.argv[2]))))
        return
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=max(1, (os.cpu_count() or 1) - 8))
    parser.add_argument("--min-tokens", type=int, default=MIN_TOKENS, help="of a document, with its end")
    parser.add_argument("--length", type=int, default=LENGTH, help="of a row")
    given = parser.parse_args()
    report(given.output, *prepare(given))


if __name__ == "__main__":
    main()
