"""Rejected: lines of `rejected/` -> an example or two for each reason, from the beginning of some files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from penstock.base.stores.store import Store
from penstock.shards.manifest import Manifest

Facts = dict[str, Any]
_MOST_FILES = 32
_MOST_BYTES = 1 << 20  # of a file
_PER_REASON = 2
_MOST_EXAMPLES = 20


def rejected_examples(store: Store, manifest: Manifest) -> Facts:
    """Examples in the order of the files, and how many files and lines were looked at."""
    found: dict[str, list[Facts]] = {}
    looked = manifest.rejected[:_MOST_FILES]
    lines = [_look(found, first_lines(store, file.file)) for file in looked]
    examples = [each for reason in found.values() for each in reason]
    return {
        "examples": examples[:_MOST_EXAMPLES],
        "lines_looked_at": sum(lines),
        "files_looked_at": len(looked),
        "files": len(manifest.rejected),
    }


def first_lines(store: Store, name: str) -> Iterator[bytes]:
    """Whole lines at the beginning of a file: as many as lie in the first megabyte, and no part of one."""
    data = store.read_range(name, 0, min(store.size(name), _MOST_BYTES))
    return (line for line in data.splitlines(keepends=True) if line.endswith(b"\n"))


def _look(found: dict[str, list[Facts]], lines: Iterator[bytes]) -> int:
    """Add examples from one file. Returns the number of lines read."""
    count = 0
    for line in lines:
        count += 1
        _take(found, line)
    return count


def _take(found: dict[str, list[Facts]], line: bytes) -> None:
    try:
        facts = json.loads(line)
    except (ValueError, RecursionError):  # `penstock verify` names the file
        return
    if not isinstance(facts, dict):
        return
    examples = found.setdefault(str(facts.get("reason", "")), [])
    if len(examples) < _PER_REASON:
        examples.append(facts)
