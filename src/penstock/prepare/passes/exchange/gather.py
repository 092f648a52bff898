"""Gather: the reader of the buckets that an exchange left, of which the stage that asked makes records."""

from dataclasses import dataclass, replace

from penstock.base.errors import PenstockError
from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measured, Measurement
from penstock.prepare.passes import Account, Batches, Facts, LedgerRows, Left, Task, Workload
from penstock.prepare.passes.exchange.buckets import FromBuckets
from penstock.prepare.passes.exchange.scatter import SPILL, side_of
from penstock.prepare.passes.folds.fold import Reader, Written
from penstock.prepare.passes.job import Inputs, Job
from penstock.prepare.rows.catalogue import count_by_part
from penstock.prepare.rows.order import Bucket, Exchange
from penstock.prepare.stages.interfaces import Exchanges

BUCKETS = "buckets"
# A bucket of up to a twelfth of all rows is sorted at once, where memory allows: keys are often that uneven. One that
# is cut is read five times by one worker, while the others wait.
_SHARE_OF_A_KEY = 12
_MOST_SORTED = 1 << 30  # what Arrow's 32-bit offsets of text hold with room to spare


@dataclass(frozen=True)
class Buckets(Reader):
    job: Job
    stage: int
    scatter: int  # the pass that spilled
    reducer: Exchanges
    buckets: int
    word = BUCKETS

    @property
    def exchange(self) -> Exchange:
        return self.reducer.exchange()

    @property
    def task_count(self) -> int:
        return self.buckets

    def inputs(self) -> Inputs:
        return [(Bucket(number), [number]) for number in range(self.buckets)]

    def bytes_to_sort(self, measured: Measured) -> int:
        return self._spilled_bytes(measured) // self.buckets

    def _spilled_bytes(self, measured: Measured) -> int:
        return int(self.job.rows * measured.slices.given_per_row * measured.spilled_row_bytes)

    def batches(self, measured: Measured) -> Batches:
        every, bucket = self._spilled_bytes(measured), self.bytes_to_sort(measured)
        kept = min(self.reducer.keeps_bytes(), every or 2**62)  # beside a run, when it has several
        least = kept + (2 << 20)
        wanted = min(max(8 * bucket, every // _SHARE_OF_A_KEY), every, _MOST_SORTED)
        return Batches(max(wanted, least), max(bucket, least), least)

    def written(self, measured: Measured, workers: int) -> Written:
        output = measured.output_bytes(self.job.rows, self.buckets)
        at_once = output // self.buckets * max(workers, 1) + int(output * measured.parts_per_output_byte)
        return Written(output, at_once, 2 * output / self.buckets)

    def workload(self, measured: Measured, cost: Measurement) -> Workload:
        rows = self.job.rows * measured.slices.given_per_row
        seconds = cost.seconds(rows, measured.records(self.job.rows))
        return Workload(seconds, reads=(self.scatter,), pieces=len(self.job.survey.slices) * self.buckets)

    def source(self, takes_codes: bool, left: Left) -> FromBuckets:  # noqa: ARG002
        spills = tuple(row.spill for row in left.rows.get(self.scatter, ()) if row.spill)
        return FromBuckets(self.stage, self.job.names[self.stage], self.reducer, spills, self.buckets, self._catalogue)

    @property
    def _catalogue(self) -> str:
        return f"{SPILL}/{self.scatter}.places"

    def order(self, tasks: list[Task], store: Store) -> list[Task]:
        """Buckets, largest first: a large one at the end would leave the other workers idle."""
        rows = count_by_part(store, self._catalogue)
        return sorted(tasks, key=lambda task: -int(rows[task.input.number]))

    def count(self, account: Account, rows: LedgerRows) -> Account:
        """The records that were made; every row that was scattered must have come."""
        before, steps = account[str(self.stage)], [row.steps[str(self.stage)] for row in rows]
        if (gathered := sum(step.taken for step in steps)) != before.given:
            raise PenstockError(f"defect: {before.given:,} rows were scattered and {gathered:,} gathered")
        made = {self.job.units[self.stage + 1]: sum(step.made["made"] for step in steps)}
        return {**account, str(self.stage): replace(before, made=made)}

    def facts(self) -> Facts:
        side = side_of(self.job.names[self.stage], self.scatter, self.exchange, self.buckets)
        origin = f"{counted(self.buckets, 'bucket')} of pass {self.scatter}"
        return Facts((self.stage,), "buckets", "", origin, exchange={"from": side})
