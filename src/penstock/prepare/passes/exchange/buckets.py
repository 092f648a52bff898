"""Buckets: the rows of a bucket -> the records that a stage makes of them. The worker's half of gather.py."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from penstock.base.stores import open_store
from penstock.base.stores.store import Store
from penstock.prepare.passes import Lost, Report, TaskInput
from penstock.prepare.passes.exchange.merging import Gathering, gather
from penstock.prepare.passes.folds.chain import Chain, Count
from penstock.prepare.passes.folds.source import Attempt
from penstock.prepare.rows.order import Bucket, Exchange, Sorted
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import UnreadablePart
from penstock.prepare.stages.interfaces import Exchanges
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import Step


@dataclass(frozen=True)
class FromBuckets:
    """The worker's half of Buckets."""

    stage: int  # number of the stage that reduces the rows of a key
    name: str
    reducer: Exchanges
    exchange: Exchange
    spills: tuple[str, ...]
    refuses: bool

    @property
    def reducers(self) -> dict[int, Stage]:
        return {self.stage: self.reducer}

    def may_lose(self, title: str) -> bool:  # noqa: ARG002
        return False

    def fails_on(self, part: UnreadablePart) -> bool:  # noqa: ARG002
        return True

    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]:  # noqa: ARG002
        return []

    def files(self, piece: TaskInput) -> list[tuple[int, str]]:  # noqa: ARG002
        return []

    def rejected_name(self, number: int) -> str:
        return f"rejected/records-{self.stage}-{number:05d}.jsonl"

    def rows(self, attempt: Attempt) -> Iterator[Rows]:
        store, sort_bytes = open_store(attempt.work.root), attempt.settings.batch_bytes
        bucket = attempt.task.input.number
        return self.reduced(store, bucket, sort_bytes, attempt.chain, attempt.read, attempt.report)

    def reduced(
        self, store: Store, bucket: int, sort_bytes: int, chain: Chain, first: Count, report: Report
    ) -> Iterator[Rows]:
        """The records that the reducer makes of a bucket."""
        read = [0]

        def moved(rows: int) -> None:
            read[0] += rows
            report(read[0])

        def counting(runs: Iterator[Sorted]) -> Iterator[Sorted]:
            for run in runs:
                first.add(run.batch.num_rows, [])
                yield run

        ranges = max(sort_bytes - self.reducer.keeps_bytes(), sort_bytes // 4)  # beside what it keeps of the run before
        how = Gathering(store, self.exchange, sort_bytes, ranges, moved)
        for batch in self.reducer.reduce(counting(gather(how, self.spills, bucket))):
            if self.stage in chain.taps:
                chain.taps[self.stage].add_at_once(batch)
            yield Rows(batch, 0, (str(Bucket(bucket)),), np.arange(first.made, first.made + batch.num_rows))
            first.made += batch.num_rows

    def steps(self, attempt: Attempt) -> dict[str, Step]:
        return {str(self.stage): attempt.read.step(self.name, "", "made")}
