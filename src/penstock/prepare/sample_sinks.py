"""Sample sinks: where the samples of a task end up: parts to be placed, their final places, or batch files."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.errors import InputError, PenstockError
from penstock.base.files import Folder
from penstock.prepare.groups import Groups
from penstock.prepare.placing import EDGES
from penstock.prepare.rows import Rows
from penstock.prepare.sinks import PARTS, Produced, Sink
from penstock.shards.batch_file import BatchFileWriter
from penstock.shards.feature_names import FeatureNames
from penstock.shards.manifest import ShardFacts
from penstock.shards.part import PartWriter, bytes_of
from penstock.shards.placed import Edges, Layout, Placer
from penstock.shards.record import encoders
from penstock.shards.schema import Schema

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class PartsInto:
    """How to put samples down that a later pass will place."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int
    group_by: tuple[str, ...]

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:  # noqa: ARG002
        return Parts(folder, self, number, stack)


class Parts:
    """The samples of one task, with the groups of them that each split has."""

    def __init__(self, folder: Folder, into: PartsInto, number: int, stack: ExitStack) -> None:
        self._splits = into.splits
        self._writer = PartWriter(
            folder, f"{PARTS}/{number:05d}-of-{into.task_count:05d}", into.schema, into.splits, stack
        )
        self._groups = Groups(into.splits, into.group_by)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        self._groups.add(rows)
        for number, split in enumerate(self._splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self._writer.write(split, batch)

    def finish(self) -> Produced:
        file = self._writer.finish(self._groups.encoded())
        return Produced({split: ShardFacts(split, count, (file,)) for split, count in self._writer.records.items()})


@dataclass(frozen=True)
class DirectInto:
    """How to write samples straight into the files of the dataset, where it is known how many there will be."""

    schema: Schema
    layout: Layout

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:  # noqa: ARG002
        return Direct(folder, self, number, stack)


class Direct:
    """The samples of one task on their way to their final places."""

    def __init__(self, folder: Folder, into: DirectInto, number: int, stack: ExitStack) -> None:
        self._into, self._number = into, number
        self._encoders = {split: encoders(into.schema) for split in into.layout}
        self._placers: dict[str, dict[str, Placer]] = {}
        for split, columns in into.layout.items():
            placers = {each.column: Placer(folder, each, each.starts[number]) for each in columns}
            self._placers[split] = placers
            for placer in placers.values():
                stack.callback(placer.close)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        for number, split in enumerate(self._into.layout):
            batch = rows.take_split(number)
            for encoder, values in zip(self._encoders[split], batch.columns, strict=True):
                for column, piece in encoder.encode(values):
                    self._placers[split][column].write(bytes_of(piece))

    def finish(self) -> Produced:
        shards: dict[str, ShardFacts] = {}
        edges: Edges = {}
        for split, columns in self._into.layout.items():
            for column in columns:
                placer, stop = self._placers[split][column.column], column.starts[self._number + 1]
                if placer.items != stop:
                    raise PenstockError(f"defect: {placer.items:,} items of {column.file} were placed, not {stop:,}")
                edges[column.file] = placer.finish()
            records = columns[0].starts[self._number + 1] - columns[0].starts[self._number]
            shards[split] = ShardFacts(split, records, tuple(column.placing for column in columns))
        return Produced(shards=shards, states={EDGES: edges}, outlasts_machine=False)


def refuse_nulls(rows: Rows) -> None:
    for name, column in zip(rows.batch.schema.names, rows.batch.columns, strict=True):
        missing = _null_rows(column)
        if len(missing):
            row = int(missing[0])
            inside = "" if column.null_count else "a value inside a list of "
            raise InputError(
                f"{inside}column {name!r} is null, and an array has no place for that",
                where=f"{rows.path_of(row)}, position {int(rows.ordinals[row]):,}",
                next_step="fill it in a stage of your own, or drop such rows: `filter: " + f"{name} is not null`",
            )


def _null_rows(column: pa.Array) -> Array:
    """Numbers of the rows that are null, or else of the lists that have a null inside."""
    if column.null_count:
        return np.flatnonzero(np.asarray(column.is_null()))
    is_list = pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    if not is_list or not column.flatten().null_count:
        return np.zeros(0, "i8")
    rows: Array = np.asarray(pc.list_parent_indices(column))[np.asarray(column.flatten().is_null())]
    return rows


@dataclass(frozen=True)
class BatchesInto:
    """How to keep samples as batch files, for a merge that comes later."""

    schema: Schema
    batch_size: int
    feature_names: FeatureNames

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:  # noqa: ARG002
        return Batches(folder, self, number, stack)


class Batches:
    def __init__(self, folder: Folder, into: BatchesInto, number: int, stack: ExitStack) -> None:
        self._writer = BatchFileWriter(folder, number, into.schema, into.batch_size, into.feature_names)
        stack.callback(self._writer.close)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        for path, own in rows.by_file():
            self._writer.write(rows.batch[own], path, rows.ordinals[own])

    def finish(self) -> Produced:
        shard = self._writer.commit()
        return Produced(shards={"train": shard} if shard.records else {})


SamplesInto = PartsInto | BatchesInto | DirectInto
