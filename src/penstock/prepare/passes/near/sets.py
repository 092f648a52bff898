"""Sets: files with the set of shingles of each candidate, written by shingle.py, read by verifying.py."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.prepare.passes.near.ranges import NUMBER_BITS, NUMBER_MASK
from penstock.prepare.rows.container import BLOCK, Array, bytes_of
from penstock.prepare.rows.marks import origins_of
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.near.paired import NUMBER
from penstock.prepare.stages.dedup.near.ranks import Rank
from penstock.prepare.stages.dedup.near.shingles import Giant, Shingling, distinct
from penstock.prepare.stages.dedup.runs import RunsFile, RunsWriter
from penstock.shards.columns import FileFacts
from penstock.shards.origins import HASH

# A piece of a document's set: `high` is the document's number in its slice. Most sets are one piece.
SET = np.dtype(
    [("high", "<u8"), ("start", "<i8"), ("count", "<i8"), ("checksum", "<u8"), ("origin", "<i8"), ("rank", "<u8")]
    + [("source", "<i8"), ("hash", "<u8")]
)


class SetsWriter:
    """The sets of one slice, in the order of its documents."""

    def __init__(
        self, file: RunsWriter, number: int, column: str, shingling: Shingling, rank: Rank | None, origin_bits: int
    ) -> None:
        self._file, self._slice, self._documents = file, number, 0
        self._column, self._shingling, self._rank, self._origin_bits = column, shingling, rank, origin_bits

    def write(self, rows: Rows) -> None:
        numbers = rows.beside.get(NUMBER, self._documents + np.arange(len(rows))).astype("u8")  # all, in a trial
        self._documents += len(rows)
        pieces: list[tuple[int, int, int, int]] = []
        for some in self._shingling.of(rows.batch.column(self._column)):
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
        entries["high"], entries["origin"] = numbers[rows_of], origins_of(rows, self._origin_bits)[0][rows_of]
        entries["source"] = rows.source
        entries["hash"] = rows.beside.get(HASH, np.zeros(len(rows), "u8"))[rows_of]
        ranks = self._rank.of(rows.batch) if self._rank else numbers | np.uint64(self._slice) << NUMBER_BITS
        entries["rank"] = ranks[rows_of]
        self._file.write(entries[np.argsort(entries["high"], kind="stable")])

    def _put(self, documents: list[int], sets: list[Array]) -> list[tuple[int, int, int, int]]:
        """Write pieces of sets: document, start, size and checksum of each."""
        sizes = [len(each) for each in sets]
        edges = np.append(0, np.cumsum(sizes)) * 8
        starts, checksums = self._file.file.write(bytes_of(np.concatenate(sets)), edges)
        return list(zip(documents, starts.tolist(), sizes, checksums, strict=True))

    def finish(self) -> FileFacts:
        return self._file.finish({})


def _sets(hashes: Array, bounds: Array) -> list[Array]:
    """The distinct hashes of each document, ascending."""
    edges = np.append(bounds, len(hashes)).tolist()
    return [distinct(hashes[first:last]) for first, last in itertools.pairwise(edges)]


@dataclass(frozen=True)
class Known:
    """Documents in order, and the pieces of each one's set: those from its bound to the next."""

    documents: Array
    pieces: Array
    bounds: Array
    sizes: Array

    def places(self, documents: Array) -> Array:
        return np.searchsorted(self.documents, documents)

    def facts(self, places: Array) -> Array:
        """Origin, rank, source and hash of the document at each place."""
        found: Array = self.pieces[self.bounds[places]]
        return found


@dataclass(frozen=True)
class Sets:
    """The sets of all candidates, a file per slice."""

    files: Sequence[RunsFile]

    def find(self, documents: Array) -> Known:
        """Facts of these documents, which ascend."""
        found = []
        slices, starts = np.unique(documents >> NUMBER_BITS, return_index=True)
        for each, numbers in zip(slices.tolist(), np.split(documents & NUMBER_MASK, starts[1:]), strict=True):
            for entries in self.files[each].near(numbers):
                wanted = entries[np.isin(entries["high"], numbers)]
                wanted["high"] |= np.uint64(each) << NUMBER_BITS
                found.append(wanted)
        pieces = np.concatenate(found)
        bounds = np.append(np.searchsorted(pieces["high"], documents), len(pieces))
        return Known(documents, pieces, bounds, np.add.reduceat(pieces["count"], bounds[:-1]))

    def read(self, known: Known, place: int) -> Iterator[Array]:
        """The set of a document, ascending, piece by piece."""
        pieces = known.pieces[known.bounds[place] : known.bounds[place + 1]]
        return self._blocks(int(known.documents[place] >> NUMBER_BITS), pieces)

    def read_all(self, known: Known, places: Array) -> dict[int, Array]:
        """The sets of documents at these places, which ascend. Sets side by side in a file are read at once."""
        found: dict[int, Array] = {}
        slices = (known.documents[places] >> NUMBER_BITS).astype("i8")
        for some in np.split(places, np.flatnonzero(np.diff(slices)) + 1):
            counts = known.bounds[some + 1] - known.bounds[some]
            first = np.cumsum(counts) - counts
            pieces = np.repeat(known.bounds[some] - first, counts) + np.arange(counts.sum())
            read = self._blocks(int(known.documents[some[0]] >> NUMBER_BITS), known.pieces[pieces])
            for place, count in zip(some.tolist(), counts.tolist(), strict=True):
                found[place] = np.concatenate(list(itertools.islice(read, count)))
        return found

    def _blocks(self, number: int, pieces: Array) -> Iterator[Array]:
        places = np.empty(len(pieces), BLOCK)
        places["start"], places["length"], places["checksum"] = pieces["start"], 8 * pieces["count"], pieces["checksum"]
        return (np.frombuffer(data, "<u8") for data in self.files[number].file.blocks(places, ", a set of shingles"))
