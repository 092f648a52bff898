"""Shards of MDS, written in plain Python: for sizes and damage that the committed folders of mds/ do not have."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def shard_bytes(columns: dict[str, tuple[str, int | None]], samples: Sequence[Sequence[bytes]]) -> bytes:
    """A shard: `columns` has the encoding of each and the bytes of a value, or None; `samples` has stored values."""
    facts = {
        "column_names": list(columns),
        "column_encodings": [word for word, _ in columns.values()],
        "column_sizes": [size for _, size in columns.values()],
    }
    described = json.dumps(facts).encode()
    stored = []
    for values in samples:
        sizes = [len(value) for value, (_, size) in zip(values, columns.values(), strict=True) if size is None]
        stored.append(struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(values))
    at = 4 + 4 * (len(stored) + 1) + len(described)
    offsets = [at + sum(map(len, stored[:number])) for number in range(len(stored) + 1)]
    return struct.pack(f"<{len(offsets) + 1}I", len(stored), *offsets) + described + b"".join(stored)


def write_texts(folder: Path, texts: Sequence[str], per_shard: int, **hashes: Any) -> Path:
    """A folder of shards with a column `text` and a column `number`; `hashes` are functions of bytes, by name."""
    folder.mkdir(parents=True, exist_ok=True)
    shards = []
    for number, first in enumerate(range(0, len(texts), per_shard)):
        some = texts[first : first + per_shard]
        values = [(struct.pack("<q", first + row), text.encode()) for row, text in enumerate(some)]
        data = shard_bytes({"number": ("int", 8), "text": ("str", None)}, values)
        name = f"shard.{number:05d}.mds"
        (folder / name).write_bytes(data)
        told = {kind: make(data) for kind, make in hashes.items()}
        raw = {"basename": name, "bytes": len(data), "hashes": told}
        shards.append({"format": "mds", "version": 2, "samples": len(some), "raw_data": raw, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": shards}))
    return folder
