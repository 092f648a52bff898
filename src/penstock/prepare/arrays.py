"""Arrays: the last steps of a job whose samples become .npy files: shared blocks, archives of heads, the split's proof.

Called by run.py when every row is at its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict

import numpy as np

from penstock.base.errors import PlanError
from penstock.base.files import STATE, Folder
from penstock.base.sizes import format_size
from penstock.prepare.groups import PartsByTask, prove_apart
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import direct_layout, part_schema, places_parts, split_of
from penstock.prepare.placing import EDGES, FromParts, lay_out_parts
from penstock.prepare.plan import Plan
from penstock.shards.batch_file import Member, write_archive
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.feature_names import FEATURE_FILE
from penstock.shards.manifest import FORMAT_VERSION, ShardFacts
from penstock.shards.placed import Array, Layout, PlacedColumn, file_of, finish_column, finish_split, read_placed

SPLIT_PROOF = "artifacts/split.json"
ANNOUNCED = f"{STATE}/announced.json"
ARCHIVES = ("labels", "masks")  # `labels_train.npz` holds every column `labels_*`


def refuse_without_room(source: FromParts, plan: Plan) -> None:
    """merge_strategy: accumulative, now that it is known how much there is."""
    allowed, used = plan.means.budget.allowed, plan.means.driver_bytes + plan.means.measured.slices.worker_bytes
    if source.in_memory and used + source.bytes > allowed:
        raise PlanError(
            f"merge_strategy: accumulative holds all samples at once, {format_size(source.bytes)}; "
            f"{plan.means.budget} leaves {format_size(max(0, allowed - used))}",
            where=plan.config.output_path,
            next_step="merge_strategy: sequential, which holds a few megabytes and gives the same bytes; "
            "what is done already is kept",
        )


def finish_arrays(
    plan: Plan, folder: Folder, rows: Mapping[str, LedgerRow]
) -> tuple[dict[str, tuple[ShardFacts, ...]], tuple[FileFacts, ...]]:
    """(the one shard of each split, the files made beside them)."""
    layout = _layout(plan, folder, rows)
    _announce(folder, layout)
    last = [rows[task.name] for task in plan.passes[-1].tasks]
    extra = [*_proof(plan, folder, rows), *_feature_file(plan, folder)]
    splits: dict[str, tuple[ShardFacts, ...]] = {}
    finished = {split: _finished_columns(folder, columns, last) for split, columns in layout.items()}
    for split, columns in finished.items():
        extra += _archives(folder, split, columns)
    for split, columns in finished.items():
        records = sum(row.shards[split].records for row in last if split in row.shards)
        splits[split] = (finish_split(folder, split, records, columns, _metadata(plan, records)),)
    return splits, tuple(extra)


Finished = dict[PlacedColumn, Array]  # with the checksums of its blocks


def _finished_columns(folder: Folder, columns: tuple[PlacedColumn, ...], rows: list[LedgerRow]) -> Finished:
    noted = [row.states[EDGES] for row in rows]
    return {
        column: finish_column(folder, column, [edge for each in noted for edge in each.get(column.file, ())])
        for column in columns
    }


def _announce(folder: Folder, layout: Layout) -> None:
    """Say which files will appear beside the manifest: should the run be killed and the job be changed before it goes
    on, nothing else could tell them from a person's."""
    names = [FEATURE_FILE, *(f"{split}.checksums.json" for split in layout)]
    names += [f"{kind}_{split}.npz" for split in layout for kind in ARCHIVES]
    names += [column.file for columns in layout.values() for column in columns]
    folder.commit_bytes(ANNOUNCED, json.dumps(names).encode())


def remove_announced(folder: Folder) -> None:
    """The arrays of an output that is to be replaced, finished or not."""
    if folder.exists(ANNOUNCED):
        with suppress(ValueError):  # damaged: then the files stay, and `verify` names them
            for name in json.loads(folder.read(ANNOUNCED)):
                folder.remove(str(name))
        folder.remove(ANNOUNCED)


def _layout(plan: Plan, folder: Folder, rows: Mapping[str, LedgerRow]) -> Layout:
    if not places_parts(plan.config, plan.survey):
        return direct_layout(plan.survey)
    written = part_schema(plan.survey)
    return lay_out_parts(folder, plan.splits, written, plan.survey.output, parts_of(plan, rows))


def parts_of(plan: Plan, rows: Mapping[str, LedgerRow]) -> PartsByTask:
    """What the tasks before the placing have put down."""
    return tuple(rows[task.name].shards for task in plan.passes[-2].tasks)


def _metadata(plan: Plan, records: int) -> dict[str, str]:
    return {
        "format": "penstock",
        "format_version": str(FORMAT_VERSION),
        "records": str(records),
        "schema": json.dumps([asdict(field) for field in plan.survey.output], ensure_ascii=False),
    }


def _proof(plan: Plan, folder: Folder, rows: Mapping[str, LedgerRow]) -> Iterator[FileFacts]:
    """How many groups each split has, where it is by group; none is in two."""
    split = split_of(plan.survey.stages)
    if split and split.by:
        found = prove_apart(folder, plan.splits, split.by, parts_of(plan, rows))
        yield commit_file(folder, SPLIT_PROOF, json.dumps(found, indent=1).encode() + b"\n")


def _feature_file(plan: Plan, folder: Folder) -> Iterator[FileFacts]:
    """`feature_cols.json` with the names of the columns of `X_train.npy`, where the input tells them."""
    for column, names in plan.survey.feature_names.items():
        if file_of(column, "train") == file_of("features", "train"):
            yield commit_file(folder, FEATURE_FILE, json.dumps(names, indent=2).encode())


def _archives(folder: Folder, split: str, columns: Finished) -> Iterator[FileFacts]:
    """`labels_train.npz` with a member a head, copied from the files of their own."""
    for kind in ARCHIVES:
        heads = [column for column in columns if column.column.startswith(f"{kind}_") and "/" not in column.column]
        if heads:
            members = (
                _member(folder, column, column.column.removeprefix(f"{kind}_"), columns[column]) for column in heads
            )
            yield write_archive(folder, f"{kind}_{split}.npz", members)


def _member(folder: Folder, column: PlacedColumn, name: str, hashes: Array) -> Member:
    pieces = read_placed(folder, column, hashes)
    return name, np.dtype(f"<{column.dtype}"), (column.items, *column.row_shape), pieces
