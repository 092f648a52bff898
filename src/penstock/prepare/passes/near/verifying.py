"""Verifying: pairs of documents -> those that are similar, by their shingles. The worker's half of verify.py."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import IDENTITY, LedgerRow
from penstock.prepare.passes import Lost, Report, Task, Work
from penstock.prepare.passes.near.ranges import FOLDER, NUMBER_BITS, WORD, OrderedWriter, Piece, pieces_of
from penstock.prepare.rows.container import Array
from penstock.prepare.stages.dedup.runs import RunsFile, open_written
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step

# `high` and `low` are the rank and the number of the document that loses if the other stays.
SIMILAR = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("rank", "<u8"), ("other", "<u8"), ("origin", "<i8"), ("other_origin", "<i8")]
    + [("source", "<i8"), ("similarity", "<f8"), ("hash", "<u8"), ("other_hash", "<u8")]
)
COMPARED, ALIKE = "compared", "similar"
_PAIRS_AT_ONCE = 1 << 16
_HASHES_AT_ONCE = 1 << 21  # of sets: 16 MiB, and as much again while they are compared
_NUMBER = (1 << int(NUMBER_BITS)) - 1


@dataclass(frozen=True)
class VerifyWork(Work):
    number: int  # of the pass
    pairs: tuple[FileFacts, ...]
    sets: tuple[FileFacts, ...]  # of each slice, in their order
    threshold: float
    ranges: int

    @cached_property
    def identity(self) -> str:
        return fingerprint([each.digest for each in (*self.pairs, *self.sets)])

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        store, number = open_store(self.root), task.input.number
        files = [open_written(store, each) for each in self.pairs]
        sets = Sets([open_written(store, each) for each in self.sets])
        low, high = (_first_of(len(sets.files) * each // self.ranges) for each in (number, number + 1))
        compared = alike = 0
        with ExitStack() as stack:
            writer = OrderedWriter(store, f"{FOLDER}/{self.number}-{number:05d}.similar", stack, SIMILAR)
            for piece in pieces_of(files, _PAIRS_AT_ONCE, low, high):
                pairs = _distinct(piece)
                similar = [np.zeros(0, SIMILAR), *compare(pairs, sets, self.threshold)]
                writer.write(in_order(np.concatenate(similar)))
                compared, alike = compared + len(pairs), alike + sum(map(len, similar))
                report(compared)
            facts = writer.finish({})
        crash_point("verify.before_ledger")
        steps = {"verify": Step("verify", "", compared, compared)}
        states = {IDENTITY: self.identity, COMPARED: compared, ALIKE: alike}
        return LedgerRow(task.name, task.fingerprint, spill=facts, steps=steps, states=states, boot=store.session)


def in_order(pairs: Array) -> Array:
    """Similar pairs by the rank of the document that may lose, then by that of the other."""
    found: Array = pairs[np.lexsort((pairs["other"], pairs["rank"], pairs["low"], pairs["high"]))]
    return found


def _first_of(slice_number: int) -> int:
    """The range that begins with the first document of a slice."""
    return (slice_number << int(NUMBER_BITS)) * WORD


def _distinct(piece: Piece) -> Array:
    """The pairs of a piece, each once: documents share several bands."""
    pairs, _ = piece.read()
    pairs = pairs[np.lexsort((pairs["high"], pairs["low"]))]
    same = (pairs["high"][1:] == pairs["high"][:-1]) & (pairs["low"][1:] == pairs["low"][:-1])
    kept: Array = pairs[np.append(np.ones(min(1, len(pairs)), bool), ~same)]
    return kept


@dataclass(frozen=True)
class Known:
    """Documents in order, and the pieces of each one's set: those from its bound to the next."""

    documents: Array
    pieces: Array
    bounds: Array
    sizes: Array

    def of(self, documents: Array) -> Array:
        """Place of each."""
        return np.searchsorted(self.documents, documents)


@dataclass(frozen=True)
class Sets:
    """The sets of all candidates, on disk."""

    files: Sequence[RunsFile]

    def find(self, documents: Array) -> Known:
        """Facts of these documents, which ascend."""
        found = []
        slices, starts = np.unique(documents >> NUMBER_BITS, return_index=True)
        for each, numbers in zip(slices.tolist(), np.split(documents & np.uint64(_NUMBER), starts[1:]), strict=True):
            for entries in self.files[each].near(numbers):
                wanted = entries[np.isin(entries["high"], numbers)]
                wanted["high"] |= np.uint64(each) << NUMBER_BITS
                found.append(wanted)
        pieces = np.concatenate(found)
        bounds = np.append(np.searchsorted(pieces["high"], documents), len(pieces))
        return Known(documents, pieces, bounds, np.add.reduceat(pieces["count"], bounds[:-1]))

    def read(self, known: Known, place: int) -> Iterator[Array]:
        """The set of a document, ascending, piece by piece."""
        file = self.files[int(known.documents[place] >> NUMBER_BITS)].file
        for piece in known.pieces[known.bounds[place] : known.bounds[place + 1]]:
            data = file.block(
                int(piece["start"]), 8 * int(piece["count"]), int(piece["checksum"]), ", a set of shingles"
            )
            yield np.frombuffer(data, "<u8")


def compare(pairs: Array, sets: Sets, threshold: float) -> Iterator[Array]:
    """The similar ones among pairs that are sorted by their second document."""
    if not len(pairs):
        return
    known = sets.find(np.unique(np.concatenate([pairs["high"], pairs["low"]])))
    ones, others = known.of(pairs["high"]), known.of(pairs["low"])
    sizes = known.sizes[ones], known.sizes[others]
    possible = np.minimum(*sizes) / np.maximum(*sizes) >= threshold
    ones, others = ones[possible], others[possible]
    for first, last in _batches(known.sizes[ones] + known.sizes[others]):
        common = _common(sets, known, ones[first:last], others[first:last])
        yield _similar(known, ones[first:last], others[first:last], common, threshold)


def _batches(sizes: Array) -> Iterator[tuple[int, int]]:
    """Ranges of pairs whose sets fit in memory together. A pair that is too large is alone."""
    ends, first = np.cumsum(sizes), 0
    while first < len(sizes):
        before = int(ends[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + _HASHES_AT_ONCE, side="right")))
        yield first, last
        first = last


def _common(sets: Sets, known: Known, ones: Array, others: Array) -> Array:
    """Number of shingles that both documents of each pair have."""
    if len(ones) == 1 and known.sizes[ones[0]] + known.sizes[others[0]] > _HASHES_AT_ONCE:
        return np.array([_common_of_giants(sets.read(known, ones[0]), sets.read(known, others[0]))])
    held = {
        place: np.concatenate(list(sets.read(known, place))) for place in np.unique(np.append(ones, others)).tolist()
    }
    counts = np.empty(len(ones), "i8")
    starts = np.flatnonzero(np.diff(others, prepend=-1)).tolist()
    for first, last in zip(starts, [*starts[1:], len(ones)], strict=True):
        mine = [held[place] for place in ones[first:last].tolist()]
        counts[first:last] = _counts_in(held[int(others[first])], mine)
    return counts


def _counts_in(known: Array, sets: Sequence[Array]) -> Array:
    """How many of each set are in the known one, which ascends."""
    hashes = np.concatenate(sets)
    places = np.searchsorted(known, hashes)
    places[places == len(known)] = 0
    bounds = np.append(0, np.cumsum([len(each) for each in sets[:-1]]))
    found: Array = np.add.reduceat((known[places] == hashes).astype("i8"), bounds.astype("i8"))
    return found


def _common_of_giants(ones: Iterator[Array], others: Iterator[Array]) -> int:
    """Number of hashes that both have; both ascend, piece by piece."""
    count, one, other = 0, next(ones), next(others)
    while True:
        last = min(one[-1], other[-1])
        a, b = (int(np.searchsorted(each, last, side="right")) for each in (one, other))
        count += len(np.intersect1d(one[:a], other[:b], assume_unique=True))
        one, other = one[a:], other[b:]
        try:
            one = one if len(one) else next(ones)
            other = other if len(other) else next(others)
        except StopIteration:
            return count


def _similar(known: Known, ones: Array, others: Array, common: Array, threshold: float) -> Array:
    similarity = common / (known.sizes[ones] + known.sizes[others] - common)
    kept = similarity >= threshold
    ones, others = ones[kept], others[kept]
    one, other = known.pieces[known.bounds[ones]], known.pieces[known.bounds[others]]
    found = np.empty(len(ones), SIMILAR)
    found["high"], found["low"], found["origin"], found["source"] = (
        one["rank"],
        one["high"],
        one["origin"],
        one["source"],
    )
    found["rank"], found["other"], found["other_origin"] = other["rank"], other["high"], other["origin"]
    found["similarity"], found["hash"], found["other_hash"] = similarity[kept], one["hash"], other["hash"]
    return found
