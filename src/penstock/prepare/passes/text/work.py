"""Work: the tokens that tasks have left -> the shards of one span of rows. The worker's half of pack.py."""

from contextlib import ExitStack
from dataclasses import dataclass

from penstock.base.faults import crash_point
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task
from penstock.prepare.passes.folds.shards import Shards, ShardsInto
from penstock.prepare.passes.own_tasks import OwnWork
from penstock.prepare.passes.text.packing import TAIL, Span, packed_rows, tail_of
from penstock.prepare.passes.text.token_stream import Stream, TokenPart, token_dtype
from penstock.prepare.stages.pack import Pack
from penstock.shards.manifest import Step
from penstock.shards.packed import DOCUMENTS, TOKENS


@dataclass(frozen=True)
class PackWork(OwnWork):
    parts: tuple[TokenPart, ...]
    pack: Pack
    into: ShardsInto
    identity: str  # of all that is to be packed: rows that were made of something else must not stay

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        """Write the shards of one span, one per split."""
        span, store = task.input, open_store(self.root)
        assert isinstance(span, Span)
        given = documents = tail = 0
        with ExitStack() as stack:
            shards = Shards(store, self.into, span.number, stack, settings.hold_bytes)
            for split in self.into.splits:
                stream = Stream(store, self.parts, split, token_dtype(self.into.schema))
                for batch in packed_rows(stream, self.pack, span):
                    shards.add(split, batch)
                    given += len(batch.column(TOKENS).flatten())
                    documents += len(batch.column(DOCUMENTS).flatten())  # or pieces of them
                    report(documents)
                tail += tail_of(stream, self.pack) if span.number == span.count - 1 else 0
            produced = shards.finish()
        crash_point("pack.before_ledger")
        return LedgerRow(
            task=task.name,
            fingerprint=task.fingerprint,
            shards=produced.shards,
            spill=None,
            rejected=None,
            steps={
                DOCUMENTS: Step("pack", "", documents, documents),
                TOKENS: Step("pack", TOKENS, given + tail, given, {TAIL: tail} if tail else {}),
            },
            states={"layout": self.identity},
            lost_files=(),
        )
