"""Flip bytes of a dataset one after the other, load it each time, and tell what came of it, a line a flip.

Run as a program, so that a crash or a hang ends it and not the tests: `python flipping.py < job.json`.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path
from typing import Any

import penstock
from penstock.base.errors import IntegrityError


def main() -> None:
    job = json.load(sys.stdin)
    print(json.dumps({"expected": hashes(job["path"], job["options"])}), flush=True)
    for file, position, bits in job["flips"]:
        flip(Path(job["path"]) / file, position, bits)
        print(json.dumps(attempt(job["path"], job["options"])), flush=True)
        flip(Path(job["path"]) / file, position, bits)
    for file, start, stop, pattern in job["garbage"]:
        path = Path(job["path"]) / file
        whole = path.read_bytes()
        overwrite(path, start, stop, bytes.fromhex(pattern))
        print(json.dumps(attempt(job["path"], job["options"])), flush=True)
        path.write_bytes(whole)


def overwrite(path: Path, start: int, stop: int, pattern: bytes) -> None:
    """With a pattern again and again, or with any bytes where there is none."""
    with path.open("r+b") as file:
        file.seek(start)
        size = stop - start
        file.write((pattern * size)[:size] if pattern else random.Random(start).randbytes(size))


def flip(path: Path, position: int, bits: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ bits]))


def attempt(path: str, options: dict[str, Any]) -> dict[str, Any]:
    try:
        return {"found": hashes(path, options)}
    except IntegrityError as error:
        return {"refused": f"{error.what} {error.where}"}


def hashes(path: str, options: dict[str, Any]) -> list[str]:
    """Of every batch of an epoch."""
    with penstock.load(path, **{"epochs": 1, "remainder": "pad", "batch_size": 16, "seed": 1, **options}) as loader:
        return [hashlib.sha256(b"".join(array.tobytes() for array in batch.values())).hexdigest() for batch in loader]


if __name__ == "__main__":
    main()
