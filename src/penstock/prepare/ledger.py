"""Ledger: which tasks are done and what they produced. One small immutable file per task; the listing is the state.

A row is committed after everything it names. A task with a row of its own fingerprint, whose files are still there,
is never done again; a second attempt of a task writes the same row.
"""

import json
import os
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.base.errors import IntegrityError
from penstock.base.files import doing
from penstock.base.fingerprint import fingerprint
from penstock.base.stores.store import PLACING, STATE, Store
from penstock.prepare.rows.rows import GIVEN_UP, TOO_LARGE_PIECE
from penstock.shards.columns import FileFacts, is_columns, open_columns
from penstock.shards.manifest import ShardFacts, Step, shard_from_dict

TASKS = f"{STATE}/tasks"
ANNOUNCED = f"{STATE}/announced.json"


IDENTITY = "layout"  # its key among the states


@dataclass(frozen=True)
class LedgerRow:
    task: str
    fingerprint: str
    shards: dict[str, ShardFacts] = field(default_factory=dict)
    spill: FileFacts | None = None
    rejected: FileFacts | None = None
    steps: dict[str, Step] = field(default_factory=dict)  # by number of the stage; what was read has none
    states: dict[str, Any] = field(default_factory=dict)
    lost_files: tuple[tuple[str, str], ...] = ()  # path, and what for
    engine: str = ""  # of a stage, that has made what the rows hold: a HasEngine's `made_by`
    boot: str = ""  # the store's session, while which its spill or placed shards last; "" if they last for good

    @property
    def rows_read(self) -> int:
        """Rows that the first of its steps took."""
        return next((step.taken for step in self.steps.values()), 0)

    @property
    def identity(self) -> str:
        """Identity of its work. A task that was placed, matched or packed from something else is done again."""
        return str(self.states.get(IDENTITY, ""))

    @property
    def gave_up(self) -> bool:
        """Whether rows were set aside for lack of time or memory. A resumed run may have more, and tries them again."""
        return any(title in GIVEN_UP for _, title in self.lost_files) or any(
            TOO_LARGE_PIECE in step.set_aside for step in self.steps.values()
        )

    @property
    def files(self) -> list[FileFacts]:
        """Files that later passes and the manifest need. A spill is needed only while rows wait to be gathered."""
        files = [file for shard in self.shards.values() for file in shard.files]
        return [*files, self.rejected] if self.rejected else files


def encode_row(row: LedgerRow) -> bytes:
    body = asdict(row)
    return json.dumps({**body, "digest": fingerprint(body)}, ensure_ascii=False).encode() + b"\n"


def decode_row(data: bytes) -> LedgerRow | None:
    """The row, or None if the file is damaged or foreign: then its task is done again."""
    try:
        body = json.loads(data)
        digest = body.pop("digest")
        row = LedgerRow(
            task=body["task"],
            fingerprint=body["fingerprint"],
            shards={split: shard_from_dict(shard) for split, shard in body["shards"].items()},
            spill=FileFacts(**body["spill"]) if body["spill"] else None,
            rejected=FileFacts(**body["rejected"]) if body["rejected"] else None,
            steps={number: Step(**step) for number, step in body["steps"].items()},
            states=body["states"],
            lost_files=tuple((path, title) for path, title in body["lost_files"]),
            engine=body.get("engine", ""),  # rows of earlier versions have none: their engines were proved before
            boot=body["boot"],
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return row if digest == fingerprint(body) else None


def write_row(store: Store, row: LedgerRow) -> None:
    """A row whose files last as long as the session need not outlast them, so it is not synced. Of a task of 10 ms, the
    two syncs were most."""
    with store.commit(_name(row.task), lasting=not row.boot) as file:
        file.write(encode_row(row))


def read_rows(store: Store) -> dict[str, LedgerRow]:
    """Rows by task name. Files that hold no row are left out, and so done again."""
    rows = (decode_row(store.read(name)) for name in store.list(TASKS))
    return {row.task: row for row in rows if row}


def read_row(store: Store, task: str) -> LedgerRow | None:
    """The row of a task, if there is one and it is whole."""
    return decode_row(store.read(_name(task))) if store.exists(_name(task)) else None


def done_tasks(store: Store) -> set[str]:
    """Names of the tasks that have a row. Looked at once a second, in a folder that may have a hundred thousand."""
    folder = store.local_path(TASKS)
    with doing("list", folder, "list"):
        try:
            return {name.removesuffix(".json") for name in os.listdir(folder)}
        except FileNotFoundError:  # nothing is done yet
            return set()


def forget(store: Store, tasks: Iterable[str]) -> None:
    for task in tasks:
        store.remove(_name(task))


def files_are_there(store: Store, row: LedgerRow, spill_needed: bool) -> bool:
    """Whether what the row names is on disk: sizes, and the header and checksum table of every shard."""
    spills = [row.spill] if row.spill and spill_needed else []
    if row.boot not in ("", store.session) and (row.shards or spills):
        return False
    files = [*row.files, *spills]
    if any(store.size(file.file) != file.bytes for file in files):
        return False
    placed = any(file.file.startswith(PLACING) for file in files)  # whose checksums are not there yet
    try:
        for shard in row.shards.values():
            if is_columns(shard.files) and not placed:
                open_columns(store, shard.files)
    except IntegrityError:
        return False
    return True


def announce(store: Store, names: Sequence[str]) -> None:
    """Write down the names of files that will appear beside the manifest. Should the run be killed and the job be
    changed before it is resumed, nothing else could tell them from a person's."""
    store.commit_bytes(ANNOUNCED, json.dumps(names).encode())


def remove_announced(store: Store) -> None:
    """Remove the files of an output that is to be replaced, finished or not."""
    if store.exists(ANNOUNCED):
        with suppress(ValueError):  # damaged: then the files stay, and `verify` names them
            for name in json.loads(store.read(ANNOUNCED)):
                store.remove(str(name))
        store.remove(ANNOUNCED)


def _name(task: str) -> str:
    return f"{TASKS}/{task}.json"
