"""Scatter: the ending of a fold whose rows are spilled by bucket, for an exchange. Next: gather.py."""

from contextlib import ExitStack
from dataclasses import dataclass, replace

from penstock.base.sizes import counted
from penstock.base.stores.store import STATE, Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Batches
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.container import FORMAT, begin_container
from penstock.prepare.rows.order import Exchange, bucket_numbers, hash_keys
from penstock.prepare.rows.rows import Rows
from penstock.prepare.rows.spill import SpillWriter, with_codes

SPILL = f"{STATE}/spill"


@dataclass(frozen=True)
class SpillInto(Into):
    """A spill is needed for minutes, and costs the disk nothing if it is gone by then; the ledger remembers in which
    session of the store it was written, and in another it is written again."""

    number: int  # of the pass
    exchange: Exchange
    buckets: int

    def name(self, number: int) -> str:
        return f"{SPILL}/{self.number}-{number:05d}.spill"

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:
        file = begin_container(store, self.name(number), stack, lasting=False)
        writer = SpillWriter(file, self.buckets, settings.batch_bytes)

        def write(rows: Rows) -> None:
            if len(rows):
                batch = with_codes(rows.batch)
                hashes = hash_keys([batch.column(name) for name in self.exchange.by])
                writer.write(batch, bucket_numbers(hashes, self.buckets))

        return Sink(write, lambda: Produced(spill=writer.finish(), lasting=False))

    def for_trial(self) -> Into:
        return replace(self, buckets=1)

    def left(self, tasks: int) -> tuple[str, ...]:
        return tuple(self.name(number) for number in range(tasks))


def scatter_ending(job: Job, number: int, stage: int, exchange: Exchange, buckets: int) -> Ending:
    """The ending of pass `number`, whose last stage asks for the exchange."""
    return Ending(
        writes="spill",
        wrote=f"{{size}} of spill, in {counted(buckets, 'bucket')}",
        into=SpillInto(number, exchange, buckets),
        only={"container": FORMAT},
        is_for_good=True,
        for_others=True,
        buckets=buckets,
        batches=Batches(  # a batch becomes a chunk per bucket, and chunks should not be tiny
            wanted=_between(16 << 20, buckets * (256 << 10), 128 << 20),
            good=_between(1 << 20, buckets * (8 << 10), 16 << 20),
            least=_between(256 << 10, buckets << 10, 4 << 20),
        ),
        takes_codes=all(each.takes_codes() for each in job.stages[: stage + 1]),
        exchange={"to": side_of(job.names[stage], number, exchange, buckets)},
    )


def side_of(stage: str, scatter: int, exchange: Exchange, buckets: int) -> dict[str, object]:
    """Description of one side of an exchange, for people."""
    return {"stage": stage, "pass": scatter, "by": list(exchange.by), "order": list(exchange.order), "buckets": buckets}


def _between(low: int, value: int, high: int) -> int:
    return max(low, min(value, high))
