"""Pairing: a range of band keys -> the documents that share one, two by two. The worker's half of pair.py.

In a band with more than REPRESENTATIVES + 1 documents, each is paired with those that rank first. So the pairs of a
band grow with its documents, not with their square. Pairs that are left out are counted.
"""

from collections.abc import Iterator
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
    NUMBER_BITS,
    NUMBER_MASK,
    WORD,
    Piece,
    distinct_entries,
    ordered_writer,
    pieces_of,
)
from penstock.prepare.passes.ranged_work import RangedWork
from penstock.prepare.passes.run_ranges import RunRanges
from penstock.prepare.rows.container import Array
from penstock.prepare.stages.dedup.near.paired import PAIRED, PAIRED_NUMBER
from penstock.prepare.stages.dedup.parts import PartsWriter
from penstock.shards.columns import FileFacts

PAIR = np.dtype(
    [("high", "<u8"), ("low", "<u8")]
)  # documents: the one that is removed if they are similar, and the other
REPRESENTATIVES = 8
NOT_COMPARED = "not_compared"
_AT_ONCE = 1 << 18  # band keys: 40 MB while they are sorted, and their pairs
_KNOWN = np.dtype([("key", "<u8"), ("rank", "<u8"), ("document", "<u8")])


@dataclass(frozen=True)
class PairWork(RangedWork):
    signed: RunRanges  # one file per slice, in the order of slices

    @property
    def read(self) -> tuple[FileFacts, ...]:
        return self.signed.files

    def ready(self) -> Self:
        return replace(self, signed=self.signed.ready(self.store))

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        store, number = self.store, task.input.number
        files = self.signed.of_range(store, number)
        low, high = (WORD * each for each in self.signed.ends(number))
        counted = Counted()
        with ExitStack() as stack:
            writer = ordered_writer(store, f"{FOLDER}/{self.number}-{number:05d}.pairs", stack, PAIR)
            parts = PartsWriter(writer.file, PAIRED, PAIRED_NUMBER, len(files))
            for pairs in pairs_in(pieces_of(files, _AT_ONCE, low, high), counted):
                writer.write(pairs)
                documents = np.unique(np.concatenate([pairs["high"], pairs["low"]]))
                parts.add(documents >> NUMBER_BITS, (documents & NUMBER_MASK).astype(PAIRED_NUMBER))
                report(counted.entries)
            facts = writer.finish(parts.finish())
        crash_point("pair.before_ledger")
        return self.row(task, "pair", facts, counted.entries, {NOT_COMPARED: counted.not_compared})


@dataclass
class Counted:
    entries: int = 0
    not_compared: int = 0


def pairs_in(pieces: Iterator[Piece], counted: Counted) -> Iterator[Array]:
    """Pairs of all bands, in sorted runs without repeats."""
    waiting: list[Array] = []
    held = 0
    for piece in pieces:
        for pairs in _pairs_of(piece, counted):
            waiting.append(pairs)
            held += len(pairs)
            if held >= _AT_ONCE:
                yield distinct_entries(np.concatenate(waiting))
                waiting, held = [], 0
    if waiting:
        yield distinct_entries(np.concatenate(waiting))


def _pairs_of(piece: Piece, counted: Counted) -> Iterator[Array]:
    if piece.found or piece.most_entries <= _AT_ONCE or not piece.is_one_word:
        known = _known(piece)
        counted.entries += len(known)
        yield from _pairs(known[np.lexsort((known["document"], known["rank"], known["key"]))], counted)
    else:
        yield from _pairs_of_large_band(piece, counted)


def _known(piece: Piece) -> Array:
    """Keys, ranks and documents. Without `keep`, the document is its rank."""
    entries, slices = piece.read()
    known = np.empty(len(entries), _KNOWN)
    known["key"], known["document"] = entries["high"], slices.astype("u8") << NUMBER_BITS | entries["number"]
    known["rank"] = entries["rank"] if "rank" in (entries.dtype.names or ()) else 0
    return known


def _pairs(known: Array, counted: Counted) -> Iterator[Array]:
    """Pairs of sorted entries: each document with the representatives of its band that rank before it."""
    begins = np.append(True, known["key"][1:] != known["key"][:-1])
    starts = np.flatnonzero(begins)
    sizes = np.diff(np.append(starts, len(known)))
    counted.not_compared += _left_out(sizes)
    first = np.repeat(starts, sizes)
    places = np.arange(len(known)) - first
    for place in range(min(REPRESENTATIVES, int(sizes.max(initial=1)) - 1)):
        later = np.flatnonzero(places > place)
        pairs = np.empty(len(later), PAIR)
        pairs["high"], pairs["low"] = known["document"][later], known["document"][first[later] + place]
        yield pairs


def _left_out(sizes: Array) -> int:
    """Number of pairs that are left out in bands of these sizes."""
    further = (sizes[sizes > REPRESENTATIVES + 1] - REPRESENTATIVES - 1).astype(object)
    return int((further * (further + 1) // 2).sum())


def _pairs_of_large_band(piece: Piece, counted: Counted) -> Iterator[Array]:
    """Pairs of one band that does not fit in memory: its representatives first, then part by part."""
    first, size = np.zeros(0, _KNOWN), 0
    for part in piece.parts(_AT_ONCE):
        known = _known(part)
        size += len(known)
        first = np.concatenate([first, known])
        first = first[np.lexsort((first["document"], first["rank"]))][:REPRESENTATIVES]
    counted.entries += size
    counted.not_compared += _left_out(np.array([size]))
    yield from _pairs(first, Counted())
    for part in piece.parts(_AT_ONCE):
        others = _known(part)["document"]
        others = others[~np.isin(others, first["document"])]
        for each in first["document"]:
            pairs = np.empty(len(others), PAIR)
            pairs["high"], pairs["low"] = others, each
            yield pairs
