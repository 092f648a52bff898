"""Dataset facts: a manifest -> what it says of the dataset, and of the run that made it, for people and as JSON."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from penstock.base.stores.store import RUN, Store
from penstock.shards.manifest import Manifest, Step, dataset_id
from penstock.shards.origins import NEAR_SUMMARY
from penstock.shards.placed import SPLIT_PROOF


def dataset_facts(store: Store, manifest: Manifest) -> dict[str, Any]:
    return {
        "dataset": dataset_id(store),
        "output": store.root,
        "format": manifest.config["format"],
        "input": {
            **{name: manifest.input[name] for name in ("files", "bytes")},
            "items": manifest.input.get("items", 0),
        },
        "splits": {split: _split_facts(manifest, split) for split in manifest.splits},
        "files": len(manifest.files) + 1,
        "bytes": sum(file.bytes for file in manifest.files),
        "schema": [asdict(field) for field in manifest.schema],
        "account": _step_facts(manifest.account),
        "tokens": _step_facts(manifest.tokens),
        "artifacts": [{"file": file.file, "bytes": file.bytes} for file in manifest.artifacts],
        "groups": _read_json(store, SPLIT_PROOF),
        "near_duplicates": _read_json(store, NEAR_SUMMARY),
        "first_rejected": _first_rejected(store, manifest),
        "batches": manifest.input.get("batches"),
        "rejected": [{"file": file.file, "bytes": file.bytes} for file in manifest.rejected],
        "run": _read_json(store, RUN),
    }


def _step_facts(steps: Sequence[Step]) -> list[dict[str, Any]]:
    return [{**asdict(step), "balances": step.balances} for step in steps]


def _first_rejected(store: Store, manifest: Manifest) -> dict[str, Any]:
    """The first line of `rejected/`, or nothing."""
    for file in manifest.rejected:
        with store.open(file.file) as handle:
            line = handle.readline()
        with suppress(ValueError):  # verify names it
            found: dict[str, Any] = json.loads(line)
            return found
    return {}


def _read_json(store: Store, name: str) -> dict[str, Any]:
    """run.json and the like, or nothing: a dataset is whole without it."""
    try:
        facts: dict[str, Any] = json.loads(store.read(name)) if store.exists(name) else {}
    except ValueError:
        return {}
    return facts


def _split_facts(manifest: Manifest, split: str) -> dict[str, int]:
    shards = manifest.splits[split]
    size = sum(file.bytes for shard in shards for file in shard.files)
    return {"records": manifest.records(split), "bytes": size, "shards": len(shards)}
