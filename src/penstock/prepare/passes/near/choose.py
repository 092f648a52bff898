"""Choose: the last of the five passes: similar pairs -> which documents lose, and why. Next: evidence.py."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Means
from penstock.prepare.passes import Finished, Learned, LedgerRows, Left
from penstock.prepare.passes.near.choosing import REMOVED, ChooseWork
from penstock.prepare.passes.near.evidence import Removals, Removed, write_evidence
from penstock.prepare.passes.near.own import OwnTasks, spills_of
from penstock.prepare.passes.near.pairing import NOT_COMPARED
from penstock.prepare.passes.near.sign import SOURCES
from penstock.prepare.passes.near.verifying import ALIKE, COMPARED
from penstock.prepare.stages.dedup.near.chosen import REASON, Losers


@dataclass(frozen=True)
class Choosing(OwnTasks):
    reads, writes, rows_per_second, bytes_per_row = "similar pairs", "losers", 1e6, 16
    task_count = 1  # documents are visited one after the other, in the order of their ranks
    read_at_end = True

    @property
    def held_bytes(self) -> int:  # type: ignore[override]
        """A bit per document, and some pairs, as Python has them."""
        return (64 << 20) + self.job.rows // 8

    def prepare(self, left: Left, store: Store, kept: LedgerRows, means: Means) -> ChooseWork:  # noqa: ARG002
        return ChooseWork(store.root, self.number, spills_of(left, self.number - 1), spills_of(left, self.signed))

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        removals = self._removals(Left({**left.rows, self.number: rows}))
        inputs = len(self.job.config.input)
        reasons = tuple(f"{REASON}, source {number}" for number in range(inputs)) if inputs > 1 else (REASON,)
        files = tuple(row.spill for row in rows if row.spill)
        found = Losers(files, spills_of(left, self.signed), reasons, removals.words(self.near, self._titles))
        return {self.stage: Learned(found, is_written=False)}

    @property
    def _titles(self) -> list[str]:
        return [", ".join(source.patterns) or str(number) for number, source in enumerate(self.job.config.input)]

    def _removals(self, left: Left) -> Removals:
        def total(name: str, pass_number: int) -> int:
            return sum(row.states[name] for row in left.rows[pass_number])

        documents = dict.fromkeys(range(len(self.job.config.input)), 0)
        for row in left.rows[self.signed]:
            for source, count in row.states[SOURCES].items():
                documents[int(source)] = documents.get(int(source), 0) + count
        removed = {int(source): count for source, count in left.rows[self.number][0].states[REMOVED].items()}
        compared, similar = total(COMPARED, self.number - 1), total(ALIKE, self.number - 1)
        return Removals(documents, removed, compared, similar, total(NOT_COMPARED, self.signed + 1))

    def finish(self, left: Left, store: Store) -> Finished:
        documents = [sum(row.states[SOURCES].values()) for row in left.rows[self.signed]]
        removed = Removed(spills_of(left, self.number), documents)
        files, summary = write_evidence(store, removed, self.job.survey, self.near, self._removals(left))
        return Finished(files=files, summaries=(summary,))
