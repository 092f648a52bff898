"""Pack: a pass that cuts the tokens which a fold has left into the rows of the dataset."""

from dataclasses import dataclass, replace

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.prepare import passes
from penstock.prepare.budget.means import Means, Projection, Settings, memory_with
from penstock.prepare.passes.folds.fold import summed
from penstock.prepare.passes.folds.shards import ShardsInto
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.text.packing import TOKENS_AT_ONCE, PackWork, Span
from penstock.prepare.passes.text.token_stream import token_parts
from penstock.prepare.stages.text.pack import Pack
from penstock.shards.packed import TOKENS

_LEAST_SPANS, _SLICES_PER_SPAN = 8, 4
_HELD_BYTES = 64 << 20  # 2**20 tokens at a time, before and after; lengths of 2**17 documents
_ROW_COPIES = 16  # bytes for each token of a row: it waits, is joined with what comes, and is cut off again
_KEPT_COPIES = 4  # of each value of a kept column: as it comes, joined, cut into rows, encoded
_BYTES_PER_SECOND = 4e8  # of one worker


@dataclass(frozen=True)
class Packing(passes.Pass):
    job: Job
    before: int  # the pass that left the tokens
    is_for_good = True

    @property
    def _pack(self) -> Pack:
        stage = self.job.stages[-1]
        assert isinstance(stage, Pack)
        return stage

    @property
    def task_count(self) -> int:
        """Number of spans of rows: shards should not be tiny."""
        slices = len(self.job.survey.slices)
        return max(min(slices, _LEAST_SPANS), slices // _SLICES_PER_SPAN)

    def tasks(self, above: str) -> tuple[passes.Task, ...]:
        count = self.task_count
        inputs = [(Span(number, count), [[number, count]]) for number in range(count)]
        return self.job.make_tasks(self, above, len(self.job.stages), inputs)

    @property
    def _held_bytes(self) -> int:
        _, *kept = self._pack.document_columns(self.job.survey.given[-1])
        values = sum(each.dtype.itemsize for each in kept) * (TOKENS_AT_ONCE + self._pack.length)
        return _HELD_BYTES + _ROW_COPIES * self._pack.length + _KEPT_COPIES * values

    @property
    def _growth(self) -> float:
        """Bytes of the rows, per byte that the tasks before leave: a value per document becomes one per token."""
        columns = self._pack.document_columns(self.job.survey.given[-1])
        return sum(each.dtype.itemsize for each in columns) / sum(each.part_bytes for each in columns)

    def holds(self, means: Means) -> passes.Holds:
        need = passes.Need(self._held_bytes, "packing rows needs {needed}; {budget} is allowed")
        return passes.Holds(means.measured.slices, known=need)

    def _output_bytes(self, means: Means) -> int:
        return int(self.job.rows * means.measured.slices.output_row_bytes * self._growth)

    def workload(self, means: Means) -> passes.Workload:
        return passes.Workload(self._output_bytes(means) / _BYTES_PER_SECOND, reads=(self.before,))

    def project(self, settings: Settings, means: Means) -> Projection:
        output = self._output_bytes(means)
        at_once = output // max(1, len(self.job.survey.slices)) * max(1, settings.workers)
        memory = memory_with(settings.workers, self._held_bytes, means)
        seconds = self.workload(means).seconds_with(settings, means.cores)
        return Projection(memory, at_once, output, seconds, self.job.rows)

    def facts(self) -> passes.Facts:
        return passes.Facts(
            (len(self.job.stages) - 1,),
            "tokens",
            "output",
            f"the tokens of pass {self.before}{passes.in_ranges(self.task_count)}",
            note="pack begins when all tokens are counted, so that rows do not depend on tasks.",
        )

    def prepare(self, left: passes.Left, store: Store, kept: passes.LedgerRows, means: Means) -> PackWork:  # noqa: ARG002
        parts = token_parts(left.rows[self.before])
        container = self.job.config.format
        assert container in ("safetensors", "npy")
        into = ShardsInto(self.job.survey.output, self.job.splits, container, self.task_count, None)
        columns = self._pack.document_columns(self.job.survey.given[-1])
        return PackWork(store.root, parts, self._pack, into, columns, self.job.survey.origin_columns)

    def count(self, account: passes.Account, rows: passes.LedgerRows) -> passes.Account:
        """The rows that were made of documents; every token that was counted must have been packed."""
        last = len(self.job.stages) - 1
        written = sum(shard.records for row in rows for shard in row.shards.values())
        tokens, packed = account[passes.inner_key(last)], summed("", TOKENS, [row.steps[TOKENS] for row in rows])
        if packed.taken != tokens.given:
            raise PenstockError(f"defect: {tokens.given:,} tokens were counted and {packed.taken:,} packed")
        tokens = replace(tokens, given=packed.given, set_aside={**tokens.set_aside, **packed.set_aside})
        made = replace(account[str(last)], made={self.job.units[-1]: written})
        return {**account, str(last): made, passes.inner_key(last): tokens}

    def finish(self, left: passes.Left, store: Store) -> passes.Finished:  # noqa: ARG002
        return passes.Finished(passes.shards_of(left.rows[self.number], self.job.splits))
