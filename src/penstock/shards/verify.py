"""Verify: re-read every byte of a finished dataset and hold it against the manifest, and labels against their masks."""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.errors import IntegrityError
from penstock.base.paths import dataset_path
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.shards.columns import Column, check_file, damaged_block, damaged_file, open_columns
from penstock.shards.foreign.arrayrecord import FORMAT
from penstock.shards.foreign.arrayrecord_file import check_record_file
from penstock.shards.manifest import MANIFEST, Manifest, ShardFacts, dataset_id, read_manifest
from penstock.shards.masks import MaskFindings, MaskViolation, mask_violations, masked_heads, unchecked_heads
from penstock.shards.record import Encoder, record_count
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class Verification:
    """Counts of what was read, and everything that is wrong with it.

    `problems` are bytes that are not the ones that were written; `violations` (the first 1,000) labels, of `heads`
    that have masks, which their masks do not allow.
    """

    dataset: str
    files: int
    bytes: int
    records: int
    problems: tuple[IntegrityError, ...]
    heads: tuple[str, ...] = ()
    labels: int = 0
    violation_count: int = 0
    violations: tuple[MaskViolation, ...] = ()
    unchecked: tuple[str, ...] = ()  # heads whose labels are no whole numbers, or whose masks no lists of classes

    @property
    def ok(self) -> bool:
        return not self.problems and not self.violation_count


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check sizes, headers, every block, record counts, the account, that nothing is missing or foreign, and labels."""
    store = open_store(dataset_path(path))
    manifest = read_manifest(store)
    problems, masks = _check_shards(store, manifest)
    return Verification(
        dataset=dataset_id(store),
        files=len(manifest.files) + 1,
        bytes=sum(file.bytes for file in manifest.files),
        records=sum(map(manifest.records, manifest.splits)),
        problems=(*problems, *_other_problems(store, manifest)),
        heads=_heads(manifest),
        labels=masks.labels,
        violation_count=masks.violation_count,
        violations=masks.violations,
        unchecked=unchecked_heads(manifest.schema) if manifest.config.get("format") not in (FORMAT, "npz") else (),
    )


def _check_shards(store: Store, manifest: Manifest) -> tuple[list[IntegrityError], MaskFindings]:
    """Labels of a damaged shard are not held against its masks: what they were is not known."""
    problems: list[IntegrityError] = []
    masks, heads = MaskFindings(), _heads(manifest)
    for split, shards in manifest.splits.items():
        row = 0
        for shard in shards:
            if manifest.config.get("format") == "npz":
                problems += [each for file in shard.files for each in _problem(check_file, store, file)]
                continue
            if manifest.config.get("format") == FORMAT:
                records = shard.records
                problems += [each for file in shard.files for each in _problem(check_record_file, store, file, records)]
                continue
            found, columns = _shard_problems(store, shard, manifest.schema)
            problems += found
            if not found:
                masks += mask_violations(columns, heads, split, row)
            row += shard.records
    return problems, masks


def _heads(manifest: Manifest) -> tuple[str, ...]:
    """Heads whose labels can be held against masks. Record files and batch files have no columns."""
    return () if manifest.config.get("format") in (FORMAT, "npz") else masked_heads(manifest.schema)


def _shard_problems(
    store: Store, shard: ShardFacts, schema: Schema
) -> tuple[list[IntegrityError], Mapping[str, Column]]:
    try:
        columns = open_columns(store, shard.files)
    except IntegrityError as error:
        return [error], {}
    return list(_column_problems(shard, schema, columns)), columns


def _column_problems(shard: ShardFacts, schema: Schema, columns: Mapping[str, Column]) -> Iterator[IntegrityError]:
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


def _problem(check: Callable[..., None], *arguments: Any) -> list[IntegrityError]:
    try:
        check(*arguments)
    except IntegrityError as error:
        return [error]
    return []


def _other_problems(store: Store, manifest: Manifest) -> Iterator[IntegrityError]:
    for file in (*manifest.artifacts, *manifest.rejected):
        yield from _problem(check_file, store, file)
    yield from _foreign_files(store, manifest)
    for step in manifest.account:
        if not step.balances:
            yield IntegrityError(f"the account of {step.step!r} does not balance: {step}", where=MANIFEST)


def _foreign_files(store: Store, manifest: Manifest) -> Iterator[IntegrityError]:
    known = {file.file for file in manifest.files} | {MANIFEST}
    for name in store.list():
        hidden = os.path.basename(name).startswith(".")  # what file browsers leave
        if name not in known and not name.startswith(f"{STATE}/") and not hidden:
            yield IntegrityError(f"{name} does not belong to this dataset", where=name, next_step="move it elsewhere")
