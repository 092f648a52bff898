"""Cut short: a task's inside, into a folder that is thrown away, without its ledger."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from penstock.base.stores import open_store
from penstock.base.stores.scratch import release_scratch
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.chain import Chain, Count
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.passes.folds.sink import Produced, Sink
from penstock.prepare.passes.folds.work import FoldWork
from penstock.prepare.rows.rows import Rows


@dataclass
class Inside:
    chain: Chain
    sink: Sink
    produced: Produced = field(default_factory=Produced)  # when it is over

    def read(self, rows: Rows) -> Rows:
        """Take rows as a source gives them through the stages."""
        return self.chain(self.chain.count(rows, len(rows), Count()))

    @property
    def bytes(self) -> int:
        """Bytes of the files, each counted once: the splits of a part share one."""
        files = {file for facts in self.produced.shards.values() for file in facts.files}
        files |= {self.produced.spill} if self.produced.spill else set()
        return sum(file.bytes for file in files)


@contextmanager
def cut_short(work: FoldWork, number: int, settings: Settings) -> Iterator[Inside]:
    store = open_store(work.root)
    with ExitStack() as stack:
        rejected = Rejected(store, "rejected", stack, writes=False)
        chain = work.open_chain(number, settings, rejected)
        inside = Inside(chain, work.open_sink(number, stack, settings))
        yield inside
        inside.produced = inside.sink.finish()
    release_scratch(store.scratch_folder)
