"""Shingle: the ending of a fold over candidates that leaves the set of shingles of each. Next: verify.py."""

import itertools
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.passes.near.ranges import FOLDER
from penstock.prepare.rows.container import Array, bytes_of
from penstock.prepare.rows.marks import origins_of
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.near.chosen import NUMBER
from penstock.prepare.stages.dedup.near.ranks import Rank
from penstock.prepare.stages.dedup.near.shingles import Giant, Shingling, distinct
from penstock.prepare.stages.dedup.runs import RunsWriter
from penstock.shards.origins import HASH

# A piece of a document's set of shingles: `high` is the document's number in its slice. Most sets are one piece.
SET = np.dtype(
    [("high", "<u8"), ("start", "<i8"), ("count", "<i8"), ("checksum", "<u8"), ("origin", "<i8"), ("rank", "<u8")]
    + [("source", "<i8"), ("hash", "<u8")]
)


@dataclass(frozen=True)
class SetsInto(Into):
    number: int  # of the pass
    column: str
    shingling: Shingling
    rank: Rank | None
    bits: int  # of a position in an origin

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        sets = Sets(self, store, f"{FOLDER}/{self.number}-{number:05d}.sets", stack, number)
        return Sink(sets.write, sets.finish)


class Sets:
    """The sets of one slice, in the order of its documents."""

    def __init__(self, into: SetsInto, store: Store, name: str, stack: ExitStack, slice_number: int) -> None:
        self._into, self._slice, self._documents = into, slice_number, 0
        self._writer = RunsWriter(store, name, stack, SET, lasting=False)

    def write(self, rows: Rows) -> None:
        numbers = rows.beside.get(NUMBER, self._documents + np.arange(len(rows))).astype("u8")  # all, in a trial
        self._documents += len(rows)
        pieces: list[tuple[int, int, int, int]] = []
        for some in self._into.shingling.of(rows.batch.column(self._into.column)):
            if isinstance(some, Giant):
                for chunk in some.sorted_set():
                    pieces += self._put([some.document], [chunk])
            else:
                pieces += self._put(some.documents.tolist(), _sets(some.hashes, some.bounds))
        entries = np.zeros(len(pieces), SET)
        if not pieces:
            return
        rows_of, entries["start"], entries["count"], entries["checksum"] = (
            np.array(each, "u8") for each in zip(*pieces, strict=True)
        )
        entries["high"], entries["origin"] = numbers[rows_of], origins_of(rows, self._into.bits)[0][rows_of]
        entries["source"] = rows.source
        entries["hash"] = rows.beside.get(HASH, np.zeros(len(rows), "u8"))[rows_of]
        ranks = self._into.rank.of(rows.batch) if self._into.rank else numbers | np.uint64(self._slice << 32)
        entries["rank"] = ranks[rows_of]
        self._writer.write(entries[np.argsort(entries["high"], kind="stable")])

    def _put(self, documents: list[int], sets: list[Array]) -> list[tuple[int, int, int, int]]:
        sizes = [len(each) for each in sets]
        edges = np.append(0, np.cumsum(sizes)) * 8
        starts, checksums = self._writer.file.write(bytes_of(np.concatenate(sets)), edges)
        return list(zip(documents, starts.tolist(), sizes, checksums, strict=True))

    def finish(self) -> Produced:
        return Produced(spill=self._writer.finish({}), lasting=False)


def _sets(hashes: Array, bounds: Array) -> list[Array]:
    """The distinct hashes of each document, ascending."""
    edges = np.append(bounds, len(hashes)).tolist()
    return [distinct(hashes[first:last]) for first, last in itertools.pairwise(edges)]
