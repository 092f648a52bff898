"""Choose: the last of the five passes: similar pairs -> which documents are removed, and why. Next: evidence.py."""

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.passes import Facts, Finished, Learned, LedgerRows, Left
from penstock.prepare.passes.near.choosing import ChooseWork
from penstock.prepare.passes.near.evidence import Removals, write_evidence
from penstock.prepare.passes.near.near_pass import NearPass
from penstock.prepare.passes.near.pairing import NOT_COMPARED
from penstock.prepare.passes.near.sign import SOURCES
from penstock.prepare.passes.near.verify import Verifying
from penstock.prepare.passes.near.verifying import ALIKE, COMPARED
from penstock.prepare.passes.ranged import spills_of
from penstock.prepare.stages.dedup.near.removed import REASON, REMOVED, Removed


@dataclass(frozen=True)
class Choosing(NearPass):
    doing, writes, piece_bytes = "choosing near-duplicates", "removals", 64 << 20
    rows_per_second, bytes_per_row = 1e6, 16
    task_count = 1  # documents are visited one after the other, in the order of their ranks
    read_at_end = True

    @property
    def blocks_per_row(self) -> float:
        return Verifying.left_blocks_per_row

    @property
    def held_bytes(self) -> int:
        return super().held_bytes + self.job.rows // 8  # a bit for each document

    def facts(self) -> Facts:
        return self.told("similar pairs", f"the similar pairs of pass {self.number - 1}")

    def work(self, left: Left, root: str) -> ChooseWork:
        similar, signed = self.files_of(left, self.number - 1), spills_of(left.rows[self.keyed])
        return ChooseWork(root, self.number, similar, signed, _documents(left.rows[self.keyed]))

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        removals = self._removals(Left({**left.rows, self.number: rows}))
        inputs = len(self.job.config.input)
        reasons = tuple(f"{REASON}, source {number}" for number in range(inputs)) if inputs > 1 else (REASON,)
        words = removals.words(self.near, self._titles)
        found = Removed(spills_of(rows), spills_of(left.rows[self.keyed]), reasons, words)
        return {self.stage: Learned(found, is_written=False)}

    @property
    def _titles(self) -> list[str]:
        return [", ".join(source.patterns) or str(number) for number, source in enumerate(self.job.config.input)]

    def _removals(self, left: Left) -> Removals:
        def total(name: str, pass_number: int) -> int:
            return sum(row.states[name] for row in left.rows[pass_number])

        documents = dict.fromkeys(range(len(self.job.config.input)), 0)
        for row in left.rows[self.keyed]:
            for source, count in row.states[SOURCES].items():
                documents[int(source)] = documents.get(int(source), 0) + count
        removed = {int(source): count for source, count in left.rows[self.number][0].states[REMOVED].items()}
        compared, similar = total(COMPARED, self.number - 1), total(ALIKE, self.number - 1)
        return Removals(documents, removed, compared, similar, total(NOT_COMPARED, self.keyed + 1))

    def finish(self, left: Left, store: Store) -> Finished:
        documents = _documents(left.rows[self.keyed])
        files = spills_of(left.rows[self.number])
        evidence = write_evidence(store, files, documents, self.job.survey)
        summary = self._removals(left).write(store, self.near)
        return Finished(files=evidence, summaries=(summary,))


def _documents(signed: LedgerRows) -> tuple[int, ...]:
    """Number of documents in each slice."""
    return tuple(sum(row.states[SOURCES].values()) for row in signed)
