"""Shards: the ending of a fold whose rows are the dataset: a file per task and split, or one file per split."""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Literal

import pyarrow as pa

from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measurement
from penstock.prepare.budget.means import Means, Settings
from penstock.prepare.passes import Finished, Need, Rows
from penstock.prepare.passes.folds.fold import Ending, Reader, Written
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.exchange import Exchange
from penstock.prepare.rows.rows import Rows as Batch
from penstock.shards.columns import Container, Hold
from penstock.shards.foreign.arrayrecord_file import PartWriter, merge_parts
from penstock.shards.manifest import ShardFacts
from penstock.shards.schema import Schema
from penstock.shards.shard import ShardWriter

_MERGE_BYTES, _MERGE_RECORD_BYTES = 32 << 20, 75  # measured 20 MB and 60 B: docs/decisions/0007-arrayrecord.md


@dataclass(frozen=True)
class ShardsInto(Into):
    """Writes the shards of a task."""

    schema: Schema
    splits: tuple[str, ...]
    container: Container | Literal["arrayrecord"]
    task_count: int
    exchange: Exchange | None  # by which its records were grouped

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Shards:
        return Shards(store, self, number, stack, settings.hold_bytes)


class Shards:
    """The shards of one task, one a split, each opened when its first record comes."""

    def __init__(self, store: Store, into: ShardsInto, number: int, stack: ExitStack, hold_bytes: int) -> None:
        self._store, self._into, self._number = store, into, number
        self._writers: dict[str, ShardWriter | PartWriter] = {}
        self._hold = Hold(hold_bytes)
        stack.callback(self._close)

    def write(self, rows: Batch) -> None:
        for number, split in enumerate(self._into.splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self.add(split, batch)

    def add(self, split: str, batch: pa.RecordBatch) -> None:
        if split not in self._writers:
            self._writers[split] = self._open(split)
        self._writers[split].write(batch)

    def _open(self, split: str) -> ShardWriter | PartWriter:
        into, name = self._into, f"{split}/{self._number:05d}-of-{self._into.task_count:05d}"
        if into.container == "arrayrecord":
            assert into.exchange
            return PartWriter(self._store, f"{PARTS}/{name}", into.exchange.by[0], into.exchange.order[0])
        return ShardWriter(self._store, name, into.schema, into.container, self._hold)

    def finish(self) -> Produced:
        writers = {split: self._writers[split] for split in self._into.splits if split in self._writers}
        return Produced(shards={split: writer.commit() for split, writer in writers.items()})

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()


@dataclass(frozen=True)
class ShardsEnding(Ending):
    splits: tuple[str, ...] = ()

    def disk(self, rows: int, written: Written, cost: Measurement) -> tuple[int, int]:  # noqa: ARG002
        return written.at_once, written.in_all

    def behind(self, reader: Reader) -> Ending:
        assert isinstance(self.into, ShardsInto)
        return replace(self, into=replace(self.into, task_count=reader.task_count, exchange=reader.exchange))

    def finish(self, rows: Rows, store: Store) -> Finished:  # noqa: ARG002
        return Finished(shards_of(rows, self.splits))


@dataclass(frozen=True)
class OneFile(ShardsEnding):
    """The records of all tasks in one ArrayRecord file per split, which the driver puts together."""

    job: Job | None = None

    def driver(self, means: Means) -> Need:
        """Bytes of the driver while it writes the file: its index is in memory until the end."""
        assert self.job
        rows = self.job.rows * means.measured.slices.given_per_row
        records = means.measured.growth.records_of(rows) if means.measured.growth else 0
        needed = means.driver_bytes + _MERGE_BYTES + int(_MERGE_RECORD_BYTES * records)
        return Need(
            needed,
            "putting the ArrayRecord file together needs {needed} at the end, most of it for the index of its records; "
            "only {budget} is allowed",
            "estimated from the keys among the first rows of the input",
            f"memory: {math.ceil(needed * 1.1 / 10e6) * 10}MB, or leave `format:` out",
        )

    def finish(self, rows: Rows, store: Store) -> Finished:
        parts = shards_of(rows, self.splits)
        return Finished({split: (merge_parts(store, split, parts[split]),) for split in self.splits})


def shards_of(rows: Rows, splits: tuple[str, ...]) -> dict[str, tuple[ShardFacts, ...]]:
    """The shards of each split, in order."""
    return {split: tuple(row.shards[split] for row in rows if split in row.shards) for split in splits}


def shards_ending(job: Job) -> Ending:
    config, survey = job.config, job.survey
    assert config.format in ("safetensors", "npy", "arrayrecord")
    into = ShardsInto(survey.output, job.splits, config.format, len(survey.slices), None)
    if config.format == "arrayrecord":
        return OneFile("output", into=into, is_for_good=True, holds_output=True, splits=job.splits, job=job)
    return ShardsEnding("output", into=into, is_for_good=True, holds_output=True, splits=job.splits)
