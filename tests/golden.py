"""Golden jobs: small jobs of every format, stage and kind of pass, and the id of the dataset that each must make.

`python -m tests.golden` writes tests/data/golden.json anew, with `finished` the datasets beside it.
A changed id needs a line under Format in CHANGELOG.md.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

import penstock

ROOT = Path(__file__).parent.parent
FILE = Path(__file__).parent / "data" / "golden.json"
INPUT = Path(__file__).parent / "data" / "input"
FINISHED = Path(__file__).parent / "data" / "finished"
Job = dict[str, Any]


def run_golden(name: str, folder: Path) -> dict[str, Any]:
    """What golden.json keeps of a job."""
    make_folder(folder)
    return run_in(name, folder, folder / "out")


def make_folder(folder: Path) -> None:
    """All input, the examples included. It is kept as it is: libraries of other versions write other bytes."""
    caches = shutil.ignore_patterns("__pycache__")
    shutil.copytree(INPUT, folder, ignore=caches)
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=caches)


def run_in(name: str, folder: Path, output: Path) -> dict[str, Any]:
    sys.path.insert(0, str(folder))
    try:
        plan = penstock.plan(_job(name, folder, output))
        penstock.run(plan)
    finally:
        sys.path.remove(str(folder))
        for module in ("golden_samples", "features", "play"):
            sys.modules.pop(module, None)
    manifest = json.loads((output / "manifest.json").read_text())
    return {
        "dataset": manifest["digest"],
        "passes": [[each.pass_.kind, len(each.tasks)] for each in plan.passes],
        "records": {split: sum(shard["records"] for shard in shards) for split, shards in manifest["splits"].items()},
    }


def _job(name: str, folder: Path, output: Path) -> Any:
    job, usual = JOBS[name], {"output": str(output), "workers": 0, "memory": "2GB"}
    if "file" in job:
        file = folder / job["file"]
        said = {key: value for key, value in job.items() if key != "file"}
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **usual, **said}))
        return file
    located = json.loads(json.dumps(job).replace('"@', f'"{folder}/'))  # `@name` is a file of the folder
    return {**located, **usual, "input": _located(job["input"], folder)}


def job_of(name: str, folder: Path, output: Path) -> tuple[Job, Path]:
    """The job as a mapping, and the folder where its paths begin."""
    job = _job(name, folder, output)
    return (yaml.safe_load(job.read_text()), job.parent) if isinstance(job, Path) else (job, folder)


def _located(source: Any, folder: Path) -> Any:
    if isinstance(source, str):
        return str(folder / source)
    if isinstance(source, list):
        return [_located(each, folder) for each in source]
    paths = {key: _located(source[key], folder) for key in ("path", "files", "npz") if key in source}
    return {**source, **paths}


_ODD = ["id", "when", "day", "half", "price", "word", "list", "pair", "view", "bytes"]
PARQUET, JSONL, CSV = "rows/*.parquet", "rows/part-*.jsonl", "rows/*.csv.gz"
_TYPES = {"value": "float32"}
_GROUP = {"group": {"by": "key", "order": "time", "max_record": "4kB"}}
_TOKENIZE: Job = {"tokenize": {"tokenizer": "@examples/text/tokenizer", "engine": "hf"}}
_SAMPLE_INPUT = {"files": "raw/*.txt", "function": "golden_samples:samples"}
_SLICED = {"slice_size": "4kB"}
_WITHOUT: Job = {"provenance": False}  # as before it was the default

JOBS: dict[str, Job] = {
    "parquet as it is": {"input": PARQUET},
    "parquet in many slices": {"input": PARQUET, "slice_size": "2kB"},
    "npy": {"input": PARQUET, "format": "npy"},
    "jsonl": {"input": {"path": JSONL, "types": _TYPES}, **_SLICED},
    "csv in gzip": {"input": {"path": CSV, "types": {**_TYPES, "key": "string", "kind": "string"}}},
    "several sources": {"input": [{"path": PARQUET}, {"path": JSONL, "types": _TYPES}]},
    "bad records": {"input": "rows/bad.jsonl", "on_bad_input": "set_aside"},
    "odd types of parquet": {"input": "odd/odd.parquet", "stages": [{"select": _ODD}]},
    "odd types of arrow": {"input": "odd/odd.arrow", "stages": [{"select": ["id", "when", "list", "pair", "view"]}]},
    "a nested column": {"input": "odd/odd.parquet", "stages": [{"select": {"b": "inner.b", "id": "id"}}]},
    "select, filter, cast": {
        "input": PARQUET,
        "stages": [{"filter": ["value > 1", "kind != a"]}, {"cast": {"time": "int32"}}, {"select": ["time", "value"]}],
    },
    "split by position": {"input": PARQUET, "stages": [{"split": {"test": 0.2, "val": 0.1}}], **_SLICED},
    "split by key": {"input": PARQUET, "stages": [{"split": {"by": "key", "test": 0.3}}], **_SLICED},
    "statistics": {"input": PARQUET, "stages": [{"split": {"test": 0.2}}, {"statistics": ["value", "time"]}]},
    "normalize": {"input": PARQUET, "stages": [{"filter": "value > 0"}, {"normalize": ["value"]}], **_SLICED},
    "own function": {"input": PARQUET, "stages": ["golden_samples:doubled"]},
    "group": {"input": PARQUET, "stages": [_GROUP], **_SLICED},
    "group, split, statistics": {
        "input": PARQUET,
        "stages": [{"filter": "value > 1"}, _GROUP, {"split": {"by": "key", "test": 0.2}}],
        **_SLICED,
    },
    "group with null keys": {
        "input": PARQUET,
        "stages": [{"group": {"by": "value", "order": "time", "null_keys": "set_aside"}}],
    },
    "arrayrecord": {
        "input": "events/*.parquet",
        "stages": [_GROUP, {"split": {"by": "key", "test": 0.3}}],
        "format": "arrayrecord",
        **_SLICED,
    },
    "text wrapped": {
        **_WITHOUT,
        "input": "texts/*.jsonl",
        "stages": [{"select": ["text"]}, {"clean": {}}, "dedup", _TOKENIZE, {"pack": {"length": 32}}],
        "slice_size": "8kB",
    },
    "text best fit": {
        **_WITHOUT,
        "input": {"path": "texts/*.jsonl", "text_column": "text"},
        "stages": [{"clean": {"normalize": "nfc"}}, _TOKENIZE, {"pack": {"length": 32, "method": "best_fit"}}],
    },
    "text one row per document": {
        **_WITHOUT,
        "input": {"path": "texts/*.jsonl", "text_column": "text"},
        "stages": [{"split": {"test": 0.2}}, _TOKENIZE, {"pack": {"length": 64, "method": "none"}}],
        "slice_size": "8kB",
    },
    "text that stays text": {
        **_WITHOUT,
        "input": {"path": "texts/*.jsonl", "text_column": "text"},
        "stages": [{"clean": {}}, {"dedup": {}}],
        "slice_size": "8kB",
    },
    "tokens that are not packed": {
        "input": "texts/*.jsonl",
        "stages": [_TOKENIZE, {"filter": "length(tokens) > 9"}],
        **_WITHOUT,
    },
    "files of text": {"input": {"path": "raw/*.txt", "format": "text", "document": "line"}},
    "samples": {"input": _SAMPLE_INPUT, **_WITHOUT},
    "samples split and normalized": {
        **_WITHOUT,
        "input": _SAMPLE_INPUT,
        "stages": [{"split": {"by": "game", "test": 0.4}}, {"normalize": {"columns": ["features"]}}],
    },
    "samples of rows": {
        "input": {"path": PARQUET, "function": "golden_samples:of_rows", "batch_rows": 100},
        **_WITHOUT,
    },
    "samples as shards": {"input": _SAMPLE_INPUT, "format": "safetensors", **_WITHOUT},
    "samples kept as batch files": {"input": _SAMPLE_INPUT, "intermediate_dir": "@kept", "batch_size": 4},
    "batch files": {"input": {"npz": "batches/batch_*.npz"}, "format": "arrays"},
    "batch files split": {
        "input": {"npz": "batches/batch_*.npz"},
        "format": "arrays",
        "stages": [{"split": {"test": 0.3}}],
        "merge_strategy": "accumulative",
    },
    "text wrapped, with provenance": {
        "input": "texts/*.jsonl",
        "stages": [{"select": ["text"]}, {"clean": {}}, "dedup", _TOKENIZE, {"pack": {"length": 32}}],
        "slice_size": "8kB",
        "provenance": "origins",
    },
    "text best fit, with provenance": {
        "input": {"path": "texts/*.jsonl", "text_column": "text"},
        "stages": [{"clean": {"normalize": "nfc"}}, _TOKENIZE, {"pack": {"length": 32, "method": "best_fit"}}],
        "provenance": "origins",
    },
    "samples with provenance": {"input": _SAMPLE_INPUT, "provenance": True},
    "parquet with provenance": {"input": PARQUET, "provenance": True, **_SLICED},
    "text with provenance": {
        "input": "texts/*.jsonl",
        "stages": [{"select": ["text"]}, {"clean": {}}, "dedup", _TOKENIZE, {"pack": {"length": 32}}],
        "slice_size": "8kB",
    },
    "documents with provenance": {"input": {"path": "texts/*.jsonl", "text_column": "text"}, "stages": ["clean"]},
    "text wrapped, provenance: false": {
        "input": "texts/*.jsonl",
        "stages": [{"select": ["text"]}, {"clean": {}}, "dedup", _TOKENIZE, {"pack": {"length": 32}}],
        "slice_size": "8kB",
        "provenance": False,
    },
    "example rows": {"file": "examples/rows/job.yaml"},
    "example text": {"file": "examples/text/job.yaml", **_WITHOUT},
    "example arrays": {"file": "examples/arrays/job.yaml", **_WITHOUT},
}


KEPT = {  # finished datasets that tests/data holds, and the jobs that made them
    "rows-npy": "npy",
    "events": "group, split, statistics",
    "events-arrayrecord": "arrayrecord",
    "packed": "text wrapped",
    "samples": "samples split and normalized",
}


def _write() -> None:
    found = {}
    for name in JOBS:
        with tempfile.TemporaryDirectory() as folder:
            found[name] = run_golden(name, Path(folder) / "golden")
    FILE.write_text(json.dumps(found, indent=1) + "\n")


def _write_finished() -> None:
    for name, job in KEPT.items():
        with tempfile.TemporaryDirectory() as folder:
            run_golden(job, Path(folder) / "golden")
            shutil.copytree(
                Path(folder) / "golden" / "out", FINISHED / name, ignore=shutil.ignore_patterns(".penstock")
            )


if __name__ == "__main__":
    _write_finished() if sys.argv[1:] == ["finished"] else _write()
