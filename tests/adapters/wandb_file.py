"""Wandb file: an offline run of Weights & Biases -> the numbers that were logged."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

from wandb.proto import wandb_internal_pb2

_BLOCK, _FILE_HEADER, _HEADER = 32768, 7, struct.Struct("<IHB")  # checksum, length, kind
_LAST_KINDS = (1, 4)  # a whole record, or the last part of one


def _records(data: bytes) -> Iterator[bytes]:
    """Records of a `.wandb` file: LevelDB's log format behind a short header."""
    place, record = _FILE_HEADER, b""
    while place + _HEADER.size <= len(data):
        left = _BLOCK - place % _BLOCK
        if left < _HEADER.size:  # no record begins here
            place += left
            continue
        _, length, kind = _HEADER.unpack_from(data, place)
        record += data[place + _HEADER.size : place + _HEADER.size + length]
        place += _HEADER.size + length
        if kind in _LAST_KINDS:
            yield record
            record = b""


def history_of(folder: Path) -> list[dict[str, float]]:
    """Numbers that were logged in the folder of a run, one dict per call."""
    [path] = folder.glob("*.wandb")
    logged = []
    for data in _records(path.read_bytes()):
        record = wandb_internal_pb2.Record.FromString(data)
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            logged.append({each.key or ".".join(each.nested_key): json.loads(each.value_json) for each in items})
    return logged
