"""Buckets: the rows of a bucket -> the records that a stage makes of them. The worker's half of gather.py."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from penstock.base.stores import open_store
from penstock.prepare.passes.exchange.merging import Gathering, gather
from penstock.prepare.passes.folds.source import Attempt, Source
from penstock.prepare.rows.order import Bucket, Sorted
from penstock.prepare.rows.rows import Rows
from penstock.prepare.rows.spills import chunks_of_part, write_places
from penstock.prepare.stages.interfaces import Exchanges
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step


@dataclass(frozen=True)
class FromBuckets(Source):
    stage: int  # number of the stage that reduces the rows of a key
    name: str
    reducer: Exchanges
    spills: tuple[FileFacts, ...]  # in the order of their rows' positions
    buckets: int
    catalogue: str  # name of the catalogue of their chunks
    written: FileFacts | None = None  # the same, when it is there

    def ready(self, root: str) -> Self:
        """Write the catalogue, so that the index of each spill is read once, not by every task."""
        return replace(self, written=write_places(open_store(root), self.catalogue, self.spills, self.buckets))

    @property
    def reducers(self) -> dict[int, Stage]:
        return {self.stage: self.reducer}

    def rejected_name(self, number: int) -> str:
        return f"rejected/records-{self.stage}-{number:05d}.jsonl"

    def rows(self, attempt: Attempt) -> Iterator[Rows]:
        """The records that the reducer makes of a bucket."""
        bucket, first, taps = attempt.task.input.number, attempt.read, attempt.chain.taps
        sort_bytes, moved_rows = attempt.settings.batch_bytes, [0]

        def moved(rows: int) -> None:
            moved_rows[0] += rows
            attempt.report(moved_rows[0])

        def counting(runs: Iterator[Sorted]) -> Iterator[Sorted]:
            for run in runs:
                first.add(run.batch.num_rows, [])
                yield run

        ranges = max(sort_bytes - self.reducer.keeps_bytes(), sort_bytes // 4)  # beside what it keeps of the run before
        store = open_store(attempt.work.root)
        assert self.written
        how = Gathering(store, self.reducer.exchange(), sort_bytes, ranges, moved)
        chunks = chunks_of_part(store, self.written, self.spills, bucket)
        for batch in self.reducer.reduce(counting(gather(how, chunks))):
            if self.stage in taps:
                taps[self.stage].add_at_once(batch)
            yield Rows(batch, 0, (str(Bucket(bucket)),), np.arange(first.made, first.made + batch.num_rows))
            first.made += batch.num_rows

    def steps(self, attempt: Attempt) -> dict[str, Step]:
        return {str(self.stage): attempt.read.step(self.name, "", "made")}
