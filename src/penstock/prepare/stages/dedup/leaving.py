"""Leaving: the rows that a match has found to be repeated are left out, in the pass that reads them for good."""

from dataclasses import dataclass

from penstock.base.errors import TaskError
from penstock.base.stores.store import Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.losers import DUPLICATE, REASONS, SEEN, Bitmap, read_losers
from penstock.prepare.stages.dedup.runs import open_written
from penstock.prepare.stages.interfaces import Ends, Opens
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts


@dataclass(frozen=True)
class Found:
    """Files that a match has left: the keys of each slice, and the losers of each bucket."""

    keys: tuple[FileFacts, ...]
    losers: tuple[FileFacts, ...]


@dataclass(frozen=True, kw_only=True)
class Matched(Opens):
    """Dedup when all keys were matched: it leaves out the rows that lose."""

    keep: bool
    found: Found

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        keys = open_written(store, self.found.keys[number])
        losers = [open_written(store, each) for each in self.found.losers]
        found = read_losers(keys, losers, number)
        return _Leaving(keep=self.keep, losers=found, hashed=keys.file.facts["rows"], number=number, place=_Place())

    def closed(self) -> None: ...  # what was opened belongs to its task


@dataclass
class _Place:
    """Rows of a slice that have come by."""

    rows: int = 0


@dataclass(frozen=True, kw_only=True)
class _Leaving(Ends):
    """Leaves out the losers of one slice, whose rows come one after the other, as many as were hashed."""

    keep: bool
    losers: tuple[Bitmap, Bitmap]
    hashed: int
    number: int
    place: _Place

    def __call__(self, rows: Rows) -> Rows:
        start, count = self.place.rows, len(rows)
        self.place.rows += count
        if self.place.rows > self.hashed:
            raise self._other_rows(f"more than {self.hashed:,}")
        duplicates, seen = (each.of(start, count) for each in self.losers)
        rows = rows.keep(~seen, REASONS[SEEN], self.keep)
        return rows.keep(~duplicates[~seen], REASONS[DUPLICATE], self.keep)

    def ended(self) -> None:
        if self.place.rows != self.hashed:
            raise self._other_rows(f"{self.place.rows:,}")

    def _other_rows(self, now: str) -> TaskError:
        return TaskError(
            f"dedup was given {now} documents of a slice of which {self.hashed:,} were hashed: which of them are "
            "duplicates cannot be told",
            where=f"slice {self.number}",
            next_step="a stage before dedup, or the input, does not give the same rows twice: mend that and run again",
        )
