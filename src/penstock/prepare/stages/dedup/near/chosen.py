"""Chosen: near_dedup when an earlier pass has found something: which documents are in pairs, and which of them lose."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from penstock.base.stores.store import Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.runs import open_written
from penstock.prepare.stages.dedup.same_rows import SameRows
from penstock.prepare.stages.interfaces import Ends, Opens, Says
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts
from penstock.shards.origins import SURVIVOR

PAIRED, LOST, PARTS, DOCUMENTS = "paired", "lost", "parts", "documents"  # in files that passes leave for each other
LOSER = np.dtype(
    [("number", "<u4"), ("origin", "<i8"), ("survivor", "<i8"), ("similarity", "<f8"), ("hash", "<u8")]
    + [("survivor_hash", "<u8")]
)
_SURVIVED = np.dtype([("number", "<u4"), ("survivor", "<i8")])
NUMBER = "number"  # beside rows: of a document among those of its slice
REASON = "near-duplicate"
_NONE = np.zeros(0, "i8")


def groups_in(
    store: Store, files: Sequence[FileFacts], name: str, dtype: np.dtype[Any], number: int
) -> Iterator[Array]:
    """Entries of one slice, part by part and file by file."""
    for file in (open_written(store, each).file for each in files):
        for part in range(file.facts[PARTS]):
            yield np.frombuffer(file.group(f"{name} {part}", number, f"slice {number}"), dtype)


def losers_of(store: Store, files: Sequence[FileFacts], number: int) -> Iterator[Array]:
    """The documents of one slice that lose, some at a time."""
    return groups_in(store, files, LOST, LOSER, number)


@dataclass(frozen=True)
class Pairs:
    """Files with the documents of each slice that share a band with another, and those of its bands."""

    files: tuple[FileFacts, ...]
    signed: tuple[FileFacts, ...]


@dataclass(frozen=True)
class Losers:
    """Files with the documents that lose, and with the bands, by slice; reasons by source; a line for the screen."""

    files: tuple[FileFacts, ...]
    signed: tuple[FileFacts, ...]
    reasons: tuple[str, ...]
    words: str


@dataclass(frozen=True, kw_only=True)
class InPairs(Opens):
    """Only documents that share a band with another, each with its number in the slice."""

    pairs: Pairs

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        same = _same(store, self.pairs.signed, number)
        paired = np.zeros(same.expected, bool)
        for numbers in groups_in(store, self.pairs.files, PAIRED, np.dtype("<u4"), number):
            paired[numbers] = True
        return _Paired(paired=paired, same=same)

    def closed(self) -> None: ...  # what was opened belongs to its task


@dataclass(frozen=True, kw_only=True)
class _Paired(Ends):
    paired: Array  # whether each document of the slice is
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start = self.same.start_of(rows)
        rows = with_numbers(rows, start)
        return rows.keep(self.paired[start : start + len(rows)], "in no pair")

    def ended(self) -> None:
        self.same.ended()


@dataclass(frozen=True, kw_only=True)
class NearMatched(Opens, Says):
    """Documents that are nearly the same as one that stays are set aside, or marked."""

    act: Literal["remove", "mark"]
    found: Losers

    def says(self) -> str:
        return self.found.words

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        same = _same(store, self.found.signed, number)
        if self.act == "mark":
            return _Marking(survivors=self._survivors(store, number), same=same)
        stays = np.ones(same.expected, bool)
        for losers in losers_of(store, self.found.files, number):
            stays[losers["number"]] = False
        return _Removing(stays=stays, reasons=self.found.reasons, same=same)

    def _survivors(self, store: Store, number: int) -> Array:
        """Numbers of the documents that lose, ascending, with the origins of their survivors."""
        found = [each[list(_SURVIVED.names or ())] for each in losers_of(store, self.found.files, number)]
        survivors = np.concatenate([np.zeros(0, _SURVIVED), *(each.astype(_SURVIVED) for each in found)])
        return survivors[np.argsort(survivors["number"])]

    def closed(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Removing(Ends):
    stays: Array  # whether each document of the slice does
    reasons: tuple[str, ...]  # by source
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start = self.same.start_of(rows)
        return rows.keep(self.stays[start : start + len(rows)], self.reasons[rows.source])

    def ended(self) -> None:
        self.same.ended()


@dataclass(frozen=True, kw_only=True)
class _Marking(Ends):
    survivors: Array
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start = self.same.start_of(rows)
        low, high = np.searchsorted(self.survivors["number"], [start, start + len(rows)])
        some = self.survivors[low:high]
        return with_survivors(rows, some["number"].astype("i8") - start, some["survivor"])

    def ended(self) -> None:
        self.same.ended()


def with_survivors(rows: Rows, numbers: Array = _NONE, survivors: Array = _NONE) -> Rows:
    """The rows with a column of the origins of what stays in their place; null where they stay themselves."""
    origins, missing = np.zeros(len(rows), "i8"), np.ones(len(rows), bool)
    origins[numbers], missing[numbers] = survivors, False
    return rows.with_batch(rows.batch.append_column(SURVIVOR, pa.array(origins, mask=missing)))


def with_numbers(rows: Rows, start: int) -> Rows:
    """The rows with their numbers among those of the slice, beside the columns."""
    return replace(rows, beside={**rows.beside, NUMBER: np.arange(start, start + len(rows))})


def _same(store: Store, signed: Sequence[FileFacts], number: int) -> SameRows:
    documents = open_written(store, signed[number]).file.facts[DOCUMENTS]
    return SameRows("near_dedup", "compared", number, documents)
