"""Finishing: the last steps of a job whose samples become .npy files, when every row is at its place."""

import json
import math
from collections.abc import Iterator
from dataclasses import asdict

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.ledger import announce
from penstock.prepare.passes import Finished, LedgerRows
from penstock.prepare.passes.job import Job
from penstock.prepare.samples.groups import PartsByTask, prove_apart
from penstock.prepare.stages.interfaces import split_of
from penstock.shards import placed
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.foreign.batch_file import Member, write_archive
from penstock.shards.manifest import FORMAT_VERSION, ShardFacts
from penstock.shards.schema import FEATURE_FILE, NUMBERS

ARCHIVES = ("labels", "masks")  # `labels_train.npz` holds every column `labels_*`


def archive_bytes(job: Job) -> int:
    """Bytes of labels and masks that are written a second time, in archives of all heads."""
    heads = [field.parsed for field in job.survey.output if field.name.startswith(("labels_", "masks_"))]
    fixed = [kind for kind in heads if kind.is_fixed]
    return job.rows * sum(np.dtype(NUMBERS[kind.number.name]).itemsize * math.prod(kind.shape) for kind in fixed)


def finish_arrays(job: Job, layout: placed.Layout, rows: LedgerRows, store: Store, parts: PartsByTask = ()) -> Finished:
    """The one shard of each split, and the files made beside them. `rows` are those of the tasks that placed."""
    _announce(store, layout)
    extra = [*_proof(job, store, parts), *_feature_file(job, store)]
    finished = {split: _finished_columns(store, columns, rows) for split, columns in layout.items()}
    for split, columns in finished.items():
        extra += _archives(store, split, columns)
    splits: dict[str, tuple[ShardFacts, ...]] = {}
    for split, columns in finished.items():
        records = sum(row.shards[split].records for row in rows if split in row.shards)
        splits[split] = (placed.finish_split(store, split, records, columns, _metadata(job, records)),)
    return Finished(splits, tuple(extra))


Columns = dict[placed.PlacedColumn, placed.Array]  # with the checksums of its blocks


def _finished_columns(store: Store, columns: tuple[placed.PlacedColumn, ...], rows: LedgerRows) -> Columns:
    noted = [row.states[placed.EDGES] for row in rows]
    return {
        column: placed.finish_column(store, column, [edge for each in noted for edge in each.get(column.file, ())])
        for column in columns
    }


def _announce(store: Store, layout: placed.Layout) -> None:
    names = [FEATURE_FILE, *(f"{split}.checksums.json" for split in layout)]
    names += [f"{kind}_{split}.npz" for split in layout for kind in ARCHIVES]
    names += [column.file for columns in layout.values() for column in columns]
    announce(store, names)


def _proof(job: Job, store: Store, parts: PartsByTask) -> Iterator[FileFacts]:
    """File that counts the groups of each split, for a split by group. No group is in two splits."""
    split = split_of(job.stages)
    if split and split.by:
        found = prove_apart(store, job.splits, split.by, parts)
        yield commit_file(store, placed.SPLIT_PROOF, json.dumps(found, indent=1).encode() + b"\n")


def _metadata(job: Job, records: int) -> dict[str, str]:
    return {
        "format": "penstock",
        "format_version": str(FORMAT_VERSION),
        "records": str(records),
        "schema": json.dumps([asdict(field) for field in job.survey.output], ensure_ascii=False),
    }


def _feature_file(job: Job, store: Store) -> Iterator[FileFacts]:
    """`feature_cols.json` with the names of the columns of `X_train.npy`, where the input tells them."""
    for column, names in job.survey.feature_names.items():
        if placed.file_of(column, "train") == placed.file_of("features", "train"):
            yield commit_file(store, FEATURE_FILE, json.dumps(names, indent=2).encode())


def _archives(store: Store, split: str, columns: Columns) -> Iterator[FileFacts]:
    """`labels_train.npz` with one member per head, copied from the separate files."""
    for kind in ARCHIVES:
        heads = [column for column in columns if column.column.startswith(f"{kind}_") and _is_in_archive(column)]
        if heads:
            members = (_member(store, column, _head(column, kind), columns[column]) for column in heads)
            yield write_archive(store, f"{kind}_{split}.npz", members)


def _is_in_archive(column: placed.PlacedColumn) -> bool:
    """Whether it has one row per record."""
    return column.is_validity or "/" not in column.column


def _head(column: placed.PlacedColumn, kind: str) -> str:
    """`action`, and `action.valid` for which of its labels are there."""
    return column.column.removeprefix(f"{kind}_").replace("/", ".")


def _member(store: Store, column: placed.PlacedColumn, name: str, hashes: placed.Array) -> Member:
    pieces = placed.read_placed(store, column, hashes)
    return name, np.dtype(f"<{column.dtype}"), (column.items, *column.row_shape), pieces
