"""Fingerprint: a stable name for a value or for bytes."""

import json
from typing import Any

import xxhash


def canonical_json(value: Any) -> bytes:
    """The one JSON spelling of `value`: sorted keys, no spaces. Equal values give equal bytes."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def fingerprint(value: Any) -> str:
    """32 hex digits that change when any part of a JSON-able `value` changes."""
    return digest(canonical_json(value))


def digest(*parts: bytes | memoryview) -> str:
    """xxh3-128 of the bytes of `parts`, one after the other, as 32 hex digits."""
    hasher = xxhash.xxh3_128()
    for part in parts:
        hasher.update(part)
    return str(hasher.hexdigest())
