"""Ledger: which tasks are done and what they produced. One small immutable file a task; the listing is the state.

A row is committed after everything it names. A task with a row of its own fingerprint, whose files are still there,
is never done again; a second attempt of a task writes the same row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from penstock.base.errors import IntegrityError
from penstock.base.files import STATE, Folder
from penstock.base.fingerprint import fingerprint
from penstock.shards.columns import FileFacts, open_columns
from penstock.shards.manifest import ShardFacts, Step, shard_from_dict

TASKS = f"{STATE}/tasks"


@dataclass(frozen=True)
class LedgerRow:
    task: str
    fingerprint: str
    shards: dict[str, ShardFacts]
    rejected: FileFacts | None
    steps: tuple[Step, ...]
    states: dict[str, Any]
    lost_files: tuple[str, ...]

    @property
    def files(self) -> list[FileFacts]:
        files = [file for shard in self.shards.values() for file in shard.files]
        return [*files, self.rejected] if self.rejected else files


def encode_row(row: LedgerRow) -> bytes:
    body = asdict(row)
    return json.dumps({**body, "digest": fingerprint(body)}, ensure_ascii=False).encode() + b"\n"


def decode_row(data: bytes) -> LedgerRow | None:
    """The row, or None if the file is not one that was written here: its task is then done again."""
    try:
        body = json.loads(data)
        digest = body.pop("digest")
        row = LedgerRow(
            task=body["task"],
            fingerprint=body["fingerprint"],
            shards={split: shard_from_dict(shard) for split, shard in body["shards"].items()},
            rejected=FileFacts(**body["rejected"]) if body["rejected"] else None,
            steps=tuple(Step(**step) for step in body["steps"]),
            states=body["states"],
            lost_files=tuple(body["lost_files"]),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row if digest == fingerprint(body) else None


def write_row(folder: Folder, row: LedgerRow) -> None:
    folder.commit_bytes(_name(row.task), encode_row(row))


def read_rows(folder: Folder) -> dict[str, LedgerRow]:
    """Rows by task name. Files that hold no row are left out, and so done again."""
    rows = (decode_row(folder.read(name)) for name in folder.list(TASKS))
    return {row.task: row for row in rows if row}


def forget(folder: Folder, tasks: Iterable[str]) -> None:
    for task in tasks:
        folder.remove(_name(task))


def files_are_there(folder: Folder, row: LedgerRow) -> bool:
    """Whether what the row names is on disk: sizes, and the header and checksum table of every shard."""
    try:
        for shard in row.shards.values():
            open_columns(folder, shard.files)
    except IntegrityError:
        return False
    return all(folder.size(file.file) == file.bytes for file in row.files)


def _name(task: str) -> str:
    return f"{TASKS}/{task}.json"
