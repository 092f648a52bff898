"""datasets' map: documents -> tokens in Arrow files, by two processes, and nothing else.

python -m benchmarks.baselines.text_hf_map --input xs/parquet --tokenizer tokenizers/qwen2_5 --output out
"""

from __future__ import annotations

import argparse
from typing import Any

import pyarrow.compute as pc

from benchmarks.baselines.text_measured import options, report


def tokenize(given: argparse.Namespace) -> tuple[int, int]:
    """How many documents and tokens; they lie in datasets' cache, which is all that map writes."""
    from datasets import load_dataset
    from transformers import AutoTokenizer

    files = sorted(map(str, given.input.glob("*.parquet")))
    raw = load_dataset("parquet", data_files=files, split="train", cache_dir=str(given.output / "cache"))
    tokenizer = AutoTokenizer.from_pretrained(str(given.tokenizer))

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        return {"input_ids": tokenizer(batch["text"], return_attention_mask=False)["input_ids"]}

    tokenized = raw.map(encode, batched=True, num_proc=given.processes, remove_columns=raw.column_names)
    return len(tokenized), pc.sum(pc.list_value_length(tokenized.data["input_ids"])).as_py()


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    report(given.output, *tokenize(given))


if __name__ == "__main__":
    main()
