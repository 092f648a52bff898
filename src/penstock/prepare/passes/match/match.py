"""Match: a pass over ranges of the keys that a fold has left -> which rows lose."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base.stores.store import Store
from penstock.prepare.passes import Facts, Finished, Learned, LedgerRows, Left
from penstock.prepare.passes.match.matching import MatchWork
from penstock.prepare.passes.ranged import MOST_RANGES, Ranged, spills_of
from penstock.prepare.passes.run_ranges import RunRanges, equal_edges
from penstock.prepare.rows.container import FORMAT
from penstock.prepare.stages.dedup.dedup import Remembering
from penstock.prepare.stages.dedup.losers import Found
from penstock.prepare.stages.dedup.remembered import Remembered
from penstock.prepare.stages.dedup.runs import KEYS, entries_of, kept_bytes

_KEYS_PER_RANGE = 1 << 19


@dataclass(frozen=True)
class Match(Ranged):
    doing, writes, rows_per_second, bytes_per_row = "matching keys", "duplicate marks", 5e6, 5

    @property
    def held_bytes(self) -> int:
        """Bytes of 2**18 keys, of sorting them, of the blocks of a range and of all keys of earlier jobs, and of what a
        process keeps of each file. A key has 20 bytes."""
        known = self.remembered.runs if self.remembered else ()
        keys = self.job.rows // self.task_count + sum(each.facts["keys"] for each in known)
        return (64 << 20) + kept_bytes(len(self.job.survey.slices) + len(known), keys)

    @property
    def remembered(self) -> Remembered | None:
        """Keys of earlier jobs, which those of this one are added to."""
        stage = self.job.stages[self.stage]
        return stage.remembered if isinstance(stage, Remembering) else None

    @property
    def task_count(self) -> int:
        """Ranges of keys: what is too much for one is taken in pieces, so they decide nothing but speed."""
        return max(1, min(MOST_RANGES, self.job.rows // _KEYS_PER_RANGE))

    @property
    def read_at_end(self) -> bool:
        return self.remembered is not None

    @property
    def only(self) -> Mapping[str, Any]:
        return {"dedup": self.job.stages[self.stage].describe(), "container": FORMAT}

    def facts(self) -> Facts:
        stage = self.job.names[self.stage]
        hashed = f"pass {self.keyed} hashes them, pass {self.number} finds the duplicates"
        note = f"{stage} compares all documents: {hashed}, and later passes leave them out."
        return self.told("keys", f"the keys of pass {self.keyed}", note)

    def work(self, left: Left, root: str) -> MatchWork:
        edges = equal_edges(self.task_count)
        keys = RunRanges(f"{KEYS}/{self.number}.places", spills_of(left.rows[self.keyed]), edges)
        return MatchWork(root, self.number, keys, self.remembered)

    def learn(self, left: Left, rows: LedgerRows) -> Mapping[int, Learned]:
        found = Found(keys=spills_of(left.rows[self.keyed]), losers=spills_of(rows))
        return {self.stage: Learned(found, is_written=False)}

    def finish(self, left: Left, store: Store) -> Finished:
        """Save the new keys for later jobs."""
        remembered, losers = self.remembered, spills_of(left.rows[self.number])
        return Finished(last=lambda: remembered.save(entries_of(store, losers))) if remembered else Finished()
