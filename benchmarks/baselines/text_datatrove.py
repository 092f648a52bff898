"""datatrove's tokenize pipeline: documents -> files of tokens by two tasks, merged into one; no dedup, no packing.

    python -m benchmarks.baselines.text_datatrove --input xs/parquet --tokenizer tokenizers/qwen2_5 --output out

Documents are not shuffled, which it would do if not told otherwise: less work, and the order of the others.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from benchmarks.baselines.text_measured import options, report


def tokenize(given: argparse.Namespace) -> tuple[int, int]:
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer, DocumentTokenizerMerger

    pieces, merged = str(given.output / "pieces"), str(given.output / "merged")
    end = json.loads((given.tokenizer / "tokenizer_config.json").read_text())["eos_token"]
    reader = ParquetReader(str(given.input), read_metadata=False)
    encoder = DocumentTokenizer(pieces, str(given.tokenizer / "tokenizer.json"), eos_token=end, shuffle_documents=False)
    tasks = {
        "tasks": given.processes,
        "workers": given.processes,
        "start_method": "spawn",
        "logging_dir": str(given.output / "logs"),
    }
    LocalPipelineExecutor([reader, encoder], **tasks).run()
    merger = DocumentTokenizerMerger(pieces, merged, save_filename="tokens", shuffle=False, progress=False)
    LocalPipelineExecutor([merger], tasks=1, logging_dir=str(given.output / "logs-merge")).run()
    return _counted(Path(merged))


def _counted(merged: Path) -> tuple[int, int]:
    """The index has 8 bytes a document, the tokens 4 each where a vocabulary has more than 65,536."""
    documents, tokens = (
        sum(path.stat().st_size for path in merged.glob(pattern)) // width
        for pattern, width in (("*.ds.index", 8), ("*.ds", 4))
    )
    return documents, tokens


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--processes", type=int, default=2)
    given = parser.parse_args()
    report(given.output, *tokenize(given))


if __name__ == "__main__":
    main()
