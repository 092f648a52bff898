"""Batches: the ending of a fold whose samples are kept as batch files, for a merge that comes later."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.shards_ending import ShardsEnding
from penstock.prepare.passes.folds.sink import Into, Produced
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.foreign.batch_file import BatchFileWriter
from penstock.shards.schema import FeatureNames, Schema

_HELD_BATCH = 1.3  # times its bytes: pieces of columns, and what writing them takes


@dataclass(frozen=True)
class BatchesInto(Into):
    """Writes samples as batch files, for a later merge."""

    schema: Schema
    batch_size: int
    feature_names: FeatureNames

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Batches:  # noqa: ARG002
        return Batches(store, self, number, stack)


class Batches:
    def __init__(self, store: Store, into: BatchesInto, number: int, stack: ExitStack) -> None:
        self._writer = BatchFileWriter(store, number, into.schema, into.batch_size, into.feature_names)
        stack.callback(self._writer.close)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        for path, own in rows.by_file():
            self._writer.write(rows.batch[own], path, rows.ordinals[own])

    def finish(self) -> Produced:
        shard = self._writer.commit()
        return Produced(shards={"train": shard} if shard.records else {})


@dataclass(frozen=True)
class BatchesEnding(ShardsEnding):
    batch_rows: int = 0  # of the largest file

    def held_later(self, row_bytes: float) -> int:
        """A batch file is held until it is full."""
        return int(_HELD_BATCH * self.batch_rows * row_bytes)


def batches_ending(job: Job) -> Ending | None:
    if job.config.format != "npz":
        return None
    survey = job.survey
    into = BatchesInto(survey.output, job.config.batch_size, survey.feature_names)
    most = min(job.config.batch_size, max(map(survey.rows_of, survey.slices), default=0))
    return BatchesEnding("batch files", into=into, is_for_good=True, splits=job.splits, batch_rows=most)
