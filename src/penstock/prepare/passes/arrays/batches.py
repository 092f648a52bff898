"""Batches: the ending of a fold whose samples are kept as batch files, for a merge that comes later."""

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.shards_ending import ShardsEnding
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.samples import refuse_nulls
from penstock.shards.foreign.batch_file import BatchFileWriter
from penstock.shards.schema import FeatureNames, Schema

_HELD_BATCH = 1.3  # times its bytes, until it is full: pieces of columns, and what writing them takes


@dataclass(frozen=True)
class BatchesInto(Into):
    schema: Schema
    batch_size: int
    feature_names: FeatureNames

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        writer = BatchFileWriter(store, number, self.schema, self.batch_size, self.feature_names)
        stack.callback(writer.close)

        def write(rows: Rows) -> None:
            refuse_nulls(rows)
            for path, own in rows.by_file():
                writer.write(rows.batch[own], path, rows.ordinals[own])

        def finish() -> Produced:
            shard = writer.commit()
            return Produced(shards={"train": shard} if shard.records else {})

        return Sink(write, finish)


def batches_ending(job: Job) -> Ending:
    survey = job.survey
    into = BatchesInto(survey.output, job.config.batch_size, survey.feature_names)
    most = min(job.config.batch_size, max(map(survey.rows_of, survey.slices), default=0))
    return ShardsEnding("batch files", into=into, is_for_good=True, splits=job.splits, held_rows=_HELD_BATCH * most)
