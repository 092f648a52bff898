"""Verify: compare every byte of a finished dataset with the manifest, and labels with their masks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from penstock.base.errors import IntegrityError
from penstock.base.paths import dataset_path
from penstock.base.shown import Shown
from penstock.base.sizes import format_size
from penstock.base.stores import open_store
from penstock.base.stores.store import STATE, Store
from penstock.shards.columns import Column, check_file, damaged_block, damaged_file, open_columns
from penstock.shards.foreign.arrayrecord import FORMAT
from penstock.shards.foreign.arrayrecord_file import check_record_file
from penstock.shards.manifest import MANIFEST, Manifest, ShardFacts, dataset_id, read_manifest
from penstock.shards.record import Encoder, record_count
from penstock.shards.schema import Schema, Type

LABELS, MASKS = "labels_", "masks_"
NO_LABEL = -1
MOST_LISTED = 1000
_CHUNK = 2**16  # rows looked at together, so that memory does not grow with the shard


@dataclass(frozen=True)
class MaskViolation:
    """A label that its mask does not allow. `row` counts from the beginning of the split."""

    split: str
    row: int
    head: str
    label: int
    allowed: tuple[int, ...]


@dataclass(frozen=True)
class MaskFindings:
    """Counts of labels that were held against their masks, and of those not allowed, with the first of these."""

    labels: int = 0
    violation_count: int = 0
    violations: tuple[MaskViolation, ...] = ()

    def __add__(self, other: MaskFindings) -> MaskFindings:
        violations = (*self.violations, *other.violations)[:MOST_LISTED]
        return MaskFindings(self.labels + other.labels, self.violation_count + other.violation_count, violations)


@dataclass(frozen=True, repr=False)
class Verification(Shown):
    """Counts of what was read, and everything that is wrong with it. `penstock.verify` returns it.

    A head is a pair of columns, `labels_X` and `masks_X`: a class, and which classes were allowed.

    Attributes:
        dataset: Id of the dataset.
        files: Number of files that were read, including the manifest.
        bytes: Size of these files.
        records: Number of records in all splits.
        problems: IntegrityErrors: bytes that differ from the bytes that were written, by file and byte range.
        heads: Heads whose labels were compared with their masks.
        labels: Number of labels that were compared.
        violation_count: Number of labels that their masks do not allow.
        violations: The first 1,000 of these: split, row, head, label and the allowed classes.
        unchecked: Heads that could not be compared: labels are no whole numbers, or masks no lists of classes.
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
    unchecked: tuple[str, ...] = ()

    def facts(self) -> dict[str, str]:
        wrong = f"{len(self.problems):,} problems, {self.violation_count:,} labels that their masks do not allow"
        return {
            "result": "ok" if self.ok else wrong,
            "read": f"{self.files:,} files, {format_size(self.bytes)}, {self.records:,} records",
            "dataset": self.dataset,
        }

    @property
    def ok(self) -> bool:
        """Whether every byte is as it was written, and every label is allowed."""
        return not self.problems and not self.violation_count


def verify(path: str | os.PathLike[str]) -> Verification:
    """Check sizes, headers, every block, record counts, the account, that nothing is missing or foreign, and labels.

    Args:
        path: Folder that `penstock.run` wrote.

    Returns:
        A Verification: `problems` names each file and byte range that is wrong; none means intact.
    """
    store = open_store(dataset_path(path))
    manifest = read_manifest(store)
    # Record files and batch files have no columns, and so no labels that could be held against masks.
    schema = () if manifest.config.get("format") in (FORMAT, "npz") else manifest.schema
    heads = masked_heads(schema)
    problems, masks = _check_shards(store, manifest, heads)
    return Verification(
        dataset=dataset_id(store),
        files=len(manifest.files) + 1,
        bytes=sum(file.bytes for file in manifest.files),
        records=sum(map(manifest.records, manifest.splits)),
        problems=(*problems, *_other_problems(store, manifest)),
        heads=heads,
        **vars(masks),
        unchecked=unchecked_heads(schema),
    )


def _check_shards(store: Store, manifest: Manifest, heads: Sequence[str]) -> tuple[list[IntegrityError], MaskFindings]:
    """Labels of a damaged shard are not held against its masks: what they were is not known."""
    problems: list[IntegrityError] = []
    masks = MaskFindings()
    for split, shards in manifest.splits.items():
        row = 0
        for shard in shards:
            if manifest.config.get("format") in (FORMAT, "npz"):
                is_records = manifest.config["format"] == FORMAT
                check = partial(check_record_file, records=shard.records) if is_records else check_file
                problems += [each for file in shard.files for each in _problem(check, store, file)]
                continue
            found, columns = _shard_problems(store, shard, manifest.schema)
            problems += found
            if not found:
                masks += mask_violations(columns, heads, split, row)
            row += shard.records
    return problems, masks


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


# Columns `labels_X` and `masks_X` of the same X, which is a head: one whole number per row says which class, a fixed
# list of numbers or bools which classes were allowed.


def masked_heads(schema: Schema) -> tuple[str, ...]:
    """The heads that have both columns, each of its type, in the order of their labels."""
    types = {field.name: field.parsed for field in schema}
    labels = [name for name, kind in types.items() if name.startswith(LABELS) and kind.name.startswith(("int", "uint"))]
    heads = [name.removeprefix(LABELS) for name in labels]
    return tuple(head for head in heads if MASKS + head in types and _is_mask(types[MASKS + head]))


def unchecked_heads(schema: Schema) -> tuple[str, ...]:
    """Heads that have both columns, of types that do not say which class is allowed."""
    names = {field.name for field in schema}
    heads = [name.removeprefix(LABELS) for name in names if name.startswith(LABELS)]
    return tuple(sorted(head for head in heads if MASKS + head in names and head not in masked_heads(schema)))


def _is_mask(kind: Type) -> bool:
    return kind.is_fixed_list and len(kind.shape) == 1 and kind.number.name.startswith(("int", "uint", "float", "bool"))


def mask_violations(
    columns: Mapping[str, Column], heads: Sequence[str], split: str, first_row: int = 0
) -> MaskFindings:
    """Hold the labels of one shard against their masks; `first_row` is the number of its first row in the split.

    -1 and null are no label. A null mask allows no class.
    """
    found = MaskFindings()
    rows = len(columns[LABELS + heads[0]]) if heads else 0
    for start in range(0, rows, _CHUNK):
        for_each = [_in_chunk(columns, head, split, first_row, start, min(rows, start + _CHUNK)) for head in heads]
        listed = sorted((each for part in for_each for each in part.violations), key=lambda each: each.row)
        found += replace(sum(for_each, MaskFindings()), violations=tuple(listed))
    return found


def _in_chunk(
    columns: Mapping[str, Column], head: str, split: str, first_row: int, start: int, stop: int
) -> MaskFindings:
    labels, masks = columns[LABELS + head].read(start, stop), columns[MASKS + head].read(start, stop)
    is_label = labels != NO_LABEL
    if f"{LABELS}{head}/valid" in columns:
        is_label &= columns[f"{LABELS}{head}/valid"].read(start, stop) != 0
    is_class = (labels >= 0) & (labels < masks.shape[1])
    place = np.where(is_class, labels, 0).astype("i8")
    is_allowed = is_class & (masks[np.arange(len(masks)), place] != 0)
    wrong = np.flatnonzero(is_label & ~is_allowed)
    violations = tuple(
        MaskViolation(
            split, first_row + start + row, head, int(labels[row]), tuple(np.flatnonzero(masks[row]).tolist())
        )
        for row in wrong[:MOST_LISTED].tolist()
    )
    return MaskFindings(int(np.count_nonzero(is_label)), len(wrong), violations)
