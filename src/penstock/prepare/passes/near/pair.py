"""Pair: a pass over ranges of the band keys that a fold has left -> which documents share one. Next: shingle.py."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from penstock.prepare.budget.means import Means
from penstock.prepare.passes import Facts, Learned, LedgerRows, Left, Workload
from penstock.prepare.passes.near.near_pass import NearPass
from penstock.prepare.passes.near.pairing import PairWork
from penstock.prepare.passes.near.sign import BLOCK
from penstock.prepare.passes.ranged import spills_of
from penstock.prepare.passes.run_ranges import equal_edges
from penstock.prepare.stages.dedup.near.paired import Pairs


@dataclass(frozen=True)
class Pairing(NearPass):
    doing, writes, piece_bytes = "pairing near-duplicates", "pairs", 96 << 20
    rows_per_second, bytes_per_row = 4e5, 160  # 10 pairs of a document, where few bands are large

    def workload(self, means: Means) -> Workload:
        """What it reads at the ends of its ranges grows with tasks times files: the square of the corpus."""
        return replace(super().workload(means), left_out="pair also reads a block of every file of keys in each task")

    @property
    def blocks_per_row(self) -> float:
        return self.near.banding.bands / BLOCK

    def facts(self) -> Facts:
        signed, shingled, last = self.keyed, self.keyed + 2, self.keyed + 4
        how = f"pass {signed} signs them, passes {self.number} to {shingled + 1} find pairs and compare their shingles"
        note = f"near_dedup compares all documents: {how}, pass {last} chooses which of them stay."
        weakness = self.near.banding.weakness(self.near.threshold)
        note += f" WARNING: {weakness}." if weakness else ""
        return self.told("bands", f"the bands of pass {signed}", note)

    def work(self, left: Left, root: str) -> PairWork:
        return PairWork(root, self.number, self.files_of(left, self.keyed, equal_edges(self.task_count)))

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        found = Pairs(spills_of(rows), spills_of(left.rows[self.keyed]))
        return {self.stage: Learned(found, is_written=False)}
