"""Batches: the ending of a fold whose samples are kept as batch files, for a merge that comes later."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.store import Store
from penstock.prepare.means import Settings
from penstock.prepare.passes.fold import Ending
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.shards import ShardsEnding
from penstock.prepare.passes.sink import Into, Produced
from penstock.prepare.rows import Rows
from penstock.prepare.samples_checked import refuse_nulls
from penstock.shards.batch_file import BatchFileWriter
from penstock.shards.feature_names import FeatureNames
from penstock.shards.schema import Schema


@dataclass(frozen=True)
class BatchesInto(Into):
    """How to keep samples as batch files, for a merge that comes later."""

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


def batches_ending(job: Job) -> Ending:
    into = BatchesInto(job.survey.output, job.config.batch_size, job.survey.feature_names)
    return ShardsEnding("batch files", into=into, is_for_good=True, splits=job.splits)
