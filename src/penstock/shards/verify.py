"""Verify: re-read every byte of a finished dataset and hold it against the manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.base.errors import IntegrityError
from penstock.base.files import STATE, Folder
from penstock.base.fingerprint import digest
from penstock.shards.arrayrecord import FORMAT
from penstock.shards.arrayrecord_file import check_file
from penstock.shards.columns import FileFacts, damaged_block, damaged_file, open_columns
from penstock.shards.manifest import MANIFEST, Manifest, ShardFacts, dataset_id, read_manifest
from penstock.shards.record import Encoder, record_count
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class Verification:
    """What was read, and everything that is wrong with it."""

    dataset: str
    files: int
    bytes: int
    records: int
    problems: tuple[IntegrityError, ...]

    @property
    def ok(self) -> bool:
        return not self.problems


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check sizes, headers, every block, record counts, the account, and that nothing is missing or foreign."""
    folder = Folder(os.fspath(path))
    manifest = read_manifest(folder)
    return Verification(
        dataset=dataset_id(folder),
        files=len(manifest.files) + 1,
        bytes=sum(file.bytes for file in manifest.files),
        records=sum(map(manifest.records, manifest.splits)),
        problems=tuple(_problems(folder, manifest)),
    )


def _problems(folder: Folder, manifest: Manifest) -> Iterator[IntegrityError]:
    for shards in manifest.splits.values():
        for shard in shards:
            if manifest.config.get("format") == FORMAT:
                yield from _record_file_problems(folder, shard)
            else:
                yield from _shard_problems(folder, shard, manifest.schema)
    for file in (*manifest.artifacts, *manifest.rejected):
        yield from _plain_file_problems(folder, file)
    yield from _foreign_files(folder, manifest)
    for step in manifest.account:
        if not step.balances:
            yield IntegrityError(f"the account of {step.step!r} does not balance: {step}", where=MANIFEST)


def _shard_problems(folder: Folder, shard: ShardFacts, schema: Schema) -> Iterator[IntegrityError]:
    try:
        columns = open_columns(folder, shard.files)
    except IntegrityError as error:
        yield error
        return
    for field in schema:
        for name, empty in Encoder(field).start():
            found = columns[name].array if name in columns else None
            if found is None or found.dtype != empty.dtype or found.shape[1:] != empty.shape[1:]:
                yield damaged_file(shard.name, f"does not hold column {name!r} as the manifest describes it")
                return
    if record_count(schema, columns) != shard.records:
        yield damaged_file(shard.name, f"does not hold the {shard.records:,} records it should")
    for column in columns.values():
        for block in column.damaged(0, len(column)):
            yield damaged_block(column.file, column.name, block)


def _record_file_problems(folder: Folder, shard: ShardFacts) -> Iterator[IntegrityError]:
    for file in shard.files:
        try:
            check_file(folder, file, shard.records)
        except IntegrityError as error:
            yield error


def _plain_file_problems(folder: Folder, file: FileFacts) -> Iterator[IntegrityError]:
    if folder.size(file.file) < 0:
        yield damaged_file(file.file, "is missing")
    elif folder.size(file.file) != file.bytes:
        yield damaged_file(file.file, f"has {folder.size(file.file):,} bytes, {file.bytes:,} were written")
    elif digest(folder.read(file.file)) != file.digest:
        yield damaged_file(file.file, "is not the file that was written")


def _foreign_files(folder: Folder, manifest: Manifest) -> Iterator[IntegrityError]:
    known = {file.file for file in manifest.files} | {MANIFEST}
    for name in folder.list():
        hidden = os.path.basename(name).startswith(".")  # what file browsers leave
        if name not in known and not name.startswith(f"{STATE}/") and not hidden:
            yield IntegrityError(f"{name} does not belong to this dataset", where=name, next_step="move it elsewhere")
