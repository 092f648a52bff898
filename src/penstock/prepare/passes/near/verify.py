"""Verify: a pass over ranges of documents -> the pairs that are similar, and how similar. Next: choose.py."""

from dataclasses import dataclass

from penstock.prepare.passes import Facts, Left
from penstock.prepare.passes.near.near_pass import BYTES_PER_BLOCK, NearPass
from penstock.prepare.passes.near.pair import Pairing
from penstock.prepare.passes.near.pairing import PAIR
from penstock.prepare.passes.near.ranges import BLOCK, NUMBER_BITS
from penstock.prepare.passes.near.verifying import SIMILAR, VerifyWork


@dataclass(frozen=True)
class Verifying(NearPass):
    doing, writes, piece_bytes = "verifying near-duplicates", "similar pairs", 96 << 20
    rows_per_second, bytes_per_row = 5e4, 96
    left_blocks_per_row = bytes_per_row / SIMILAR.itemsize / BLOCK

    @property
    def task_count(self) -> int:
        return min(super().task_count, len(self.job.survey.slices))

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.keyed + 1, self.keyed + 2)

    @property
    def blocks_per_row(self) -> float:
        return Pairing.bytes_per_row / PAIR.itemsize / BLOCK

    @property
    def held_bytes(self) -> int:
        """Pairs of its range, and a set for each document, whichever range it is in."""
        return super().held_bytes + self.job.rows // BLOCK * BYTES_PER_BLOCK

    def facts(self) -> Facts:
        pairs, sets = self.keyed + 1, self.keyed + 2
        return self.told("pairs", f"the pairs of pass {pairs} and the shingles of pass {sets}")

    def work(self, left: Left, root: str) -> VerifyWork:
        sets = self.files_of(left, self.keyed + 2)
        slices = (len(sets.files) * each // self.task_count for each in range(self.task_count))
        pairs = self.files_of(left, self.keyed + 1, tuple(each << int(NUMBER_BITS) for each in slices))
        return VerifyWork(root, self.number, pairs, sets, self.near.threshold)
