"""Near pass: the driver's half that pair, verify and choose share. Next: pair.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.prepare.passes import Left
from penstock.prepare.passes.near.ranges import FOLDER
from penstock.prepare.passes.ranged import MOST_RANGES, Ranged, spills_of
from penstock.prepare.passes.run_ranges import RunRanges
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.dedup.near.near_dedup import VERSION, NearDedup

BYTES_PER_BLOCK = 128  # of a block's line in the index of its file, and in the table of a range
_BANDS_PER_RANGE = 480_000  # pairing halves such a range once; the halves may be unequal
_BYTES_PER_FILE = 4 << 10  # per slice: an open file, and blocks at both ends of a range. Measured: 1.7 kB


@dataclass(frozen=True)
class NearPass(Ranged):
    """`keyed` is the pass that signs documents: the first of five."""

    piece_bytes: ClassVar[int]  # of the entries that a task has in memory

    @property
    def near(self) -> NearDedup:
        stage = self.job.stages[self.stage]
        assert isinstance(stage, NearDedup)
        return stage

    @property
    def task_count(self) -> int:
        """Ranges decide nothing but speed: what is too much for one is taken in pieces."""
        return max(1, min(MOST_RANGES, -(-self.job.rows * self.near.banding.bands // _BANDS_PER_RANGE)))

    def files_of(self, left: Left, number: int, edges: tuple[int, ...] = (0,)) -> RunRanges:
        """Files of pass `number`, and the catalogue in which this pass finds their ranges."""
        return RunRanges(f"{FOLDER}/{self.number}-{number}.places", spills_of(left.rows[number]), edges)

    @property
    def reads(self) -> tuple[int, ...]:
        return (self.number - 1,)

    @property
    def only(self) -> Mapping[str, Any]:
        return {"near_dedup": self.near.describe(), "version": VERSION, "container": FORMAT}

    @property
    def blocks_per_row(self) -> float:
        """Blocks in the files that it reads, per row of the input."""
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """Bytes of pieces, of all files that it reads (they stay open), and of the blocks of its range."""
        blocks = int(self.job.rows * self.blocks_per_row) // self.task_count
        return self.piece_bytes + blocks * BYTES_PER_BLOCK + len(self.job.survey.slices) * _BYTES_PER_FILE
