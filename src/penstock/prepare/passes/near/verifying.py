"""Verifying: pairs of documents -> those that are similar, by their shingles. The worker's half of verify.py."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from penstock.base.faults import crash_point
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task
from penstock.prepare.passes.near.ranges import (
    FOLDER,
    WORD,
    distinct_entries,
    ordered_writer,
    pieces_of,
)
from penstock.prepare.passes.near.sets import Known, Sets
from penstock.prepare.passes.ranged_work import RangedWork
from penstock.prepare.passes.run_ranges import RunRanges
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.kept import keep
from penstock.prepare.stages.dedup.runs import RunsWriter
from penstock.shards.columns import FileFacts

# `high` and `low` are the rank and the number of the document that is removed if the other stays.
SIMILAR = np.dtype(
    [("high", "<u8"), ("low", "<u8"), ("rank", "<u8"), ("other", "<u8"), ("origin", "<i8"), ("other_origin", "<i8")]
    + [("source", "<i8"), ("similarity", "<f8"), ("hash", "<u8"), ("other_hash", "<u8")]
)
COMPARED, ALIKE = "compared", "similar"
_PAIRS_AT_ONCE = 1 << 16
_PAIRS_PER_RUN = 1 << 17  # 10 MB, and as much again while they are sorted
_HASHES_AT_ONCE = 1 << 21  # of sets: 16 MiB, and as much again while they are compared


@dataclass(frozen=True)
class VerifyWork(RangedWork):
    pairs: RunRanges  # each range has the documents of whole slices
    sets: RunRanges  # one file per slice, in order. One range: a pair may be of any two slices
    threshold: float

    @property
    def read(self) -> tuple[FileFacts, ...]:
        return (*self.pairs.files, *self.sets.files)

    def ready(self) -> Self:
        return replace(self, pairs=self.pairs.ready(self.store), sets=self.sets.ready(self.store))

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        store, number = self.store, task.input.number
        files = self.pairs.of_range(store, number)
        sets = keep(("sets", store, self.sets), lambda: Sets(self.sets.of_range(store, 0)))
        low, high = (WORD * each for each in self.pairs.ends(number))
        compared = alike = 0
        with ExitStack() as stack:
            writer = ordered_writer(store, f"{FOLDER}/{self.number}-{number:05d}.similar", stack, SIMILAR)
            run = _Run(writer)
            for piece in pieces_of(files, _PAIRS_AT_ONCE, low, high):
                pairs = distinct_entries(piece.read()[0])
                pairs = pairs[np.argsort(pairs["low"], kind="stable")]
                for similar in compare(pairs, sets, self.threshold):
                    run.add(similar)
                    alike += len(similar)
                compared += len(pairs)
                report(compared)
            run.put()
            facts = writer.finish({})
        crash_point("verify.before_ledger")
        return self.row(task, "verify", facts, compared, {COMPARED: compared, ALIKE: alike})


class _Run:
    """Collects similar pairs, and writes them in sorted runs: choose reads a block of each run at a time."""

    def __init__(self, writer: RunsWriter) -> None:
        self._writer, self._waiting, self._count = writer, [np.zeros(0, SIMILAR)], 0

    def add(self, pairs: Array) -> None:
        self._waiting.append(pairs)
        self._count += len(pairs)
        if self._count >= _PAIRS_PER_RUN:
            self.put()

    def put(self) -> None:
        self._writer.write(in_order(np.concatenate(self._waiting)))
        self._waiting, self._count = [np.zeros(0, SIMILAR)], 0


def in_order(pairs: Array) -> Array:
    """Similar pairs by the rank of the document that may be removed, then by that of the other."""
    found: Array = pairs[np.lexsort((pairs["other"], pairs["rank"], pairs["low"], pairs["high"]))]
    return found


def compare(pairs: Array, sets: Sets, threshold: float) -> Iterator[Array]:
    """The similar ones among pairs that are sorted by their second document."""
    if not len(pairs):
        return
    known = sets.find(np.unique(np.concatenate([pairs["high"], pairs["low"]])))
    ones, others = known.places(pairs["high"]), known.places(pairs["low"])
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
    held = sets.read_all(known, np.unique(np.append(ones, others)))
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
    one, other = known.facts(ones), known.facts(others)
    found = np.empty(len(ones), SIMILAR)
    for name, of_one in (
        ("high", "rank"),
        ("low", "high"),
        ("origin", "origin"),
        ("source", "source"),
        ("hash", "hash"),
    ):
        found[name] = one[of_one]
    for name, of_other in (("rank", "rank"), ("other", "high"), ("other_origin", "origin"), ("other_hash", "hash")):
        found[name] = other[of_other]
    found["similarity"] = similarity[kept]
    return found
