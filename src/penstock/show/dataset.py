"""Dataset: a finished output folder -> the facts that `run` and `inspect` both show."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from penstock.base.files import Folder
from penstock.prepare.run import RUN
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Manifest, dataset_id


def dataset_facts(folder: Folder, manifest: Manifest) -> dict[str, Any]:
    """What the manifest says, with what the run that made it needed."""
    return {
        "dataset": dataset_id(folder),
        "output": folder.root,
        "input": {"files": manifest.input["files"], "bytes": manifest.input["bytes"]},
        "splits": {split: _split_facts(manifest, split) for split in manifest.splits},
        "files": len(manifest.files) + 1,
        "bytes": sum(file.bytes for file in manifest.files),
        "schema": [asdict(field) for field in manifest.schema],
        "account": [{**asdict(step), "balances": step.balances} for step in manifest.account],
        "artifacts": [{"file": file.file, "bytes": file.bytes} for file in manifest.artifacts],
        "rejected": [_rejected_facts(folder, file) for file in manifest.rejected],
        "run": read_run(folder),
    }


def read_run(folder: Folder) -> dict[str, Any]:
    """run.json, or nothing: a dataset is whole without it."""
    try:
        facts: dict[str, Any] = json.loads(folder.read(RUN)) if folder.exists(RUN) else {}
    except ValueError:
        return {}
    return facts


def _split_facts(manifest: Manifest, split: str) -> dict[str, int]:
    shards = manifest.splits[split]
    size = sum(file.bytes for shard in shards for file in shard.files)
    return {"records": manifest.records(split), "bytes": size, "shards": len(shards)}


def _rejected_facts(folder: Folder, file: FileFacts) -> dict[str, Any]:
    return {"file": file.file, "bytes": file.bytes, "lines": _count_lines(folder, file.file)}


def _count_lines(folder: Folder, name: str) -> int | None:
    """Lines of the file; None where it is gone, which `penstock verify` reports."""
    if not folder.exists(name):
        return None
    lines = 0
    with folder.open(name) as file:
        while chunk := file.read(1 << 20):
            lines += chunk.count(b"\n")
    return lines
