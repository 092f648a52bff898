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
NUMBER = "number"  # beside rows: of a document among those of its slice
REASON = "near-duplicate"
_NONE = np.zeros(0, "i8")


def groups_in(
    store: Store, files: Sequence[FileFacts], name: str, dtype: np.dtype[Any], number: int
) -> Iterator[Array]:
    """What each part of each file has for one slice."""
    for file in (open_written(store, each).file for each in files):
        for part in range(file.facts[PARTS]):
            yield np.frombuffer(file.group(f"{name} {part}", number, f"slice {number}"), dtype)


def losers_of(store: Store, files: Sequence[FileFacts], number: int) -> Array:
    """The documents of one slice that lose, by number."""
    losers = np.concatenate([np.zeros(0, LOSER), *groups_in(store, files, LOST, LOSER, number)])
    return losers[np.argsort(losers["number"])]


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
        losers = losers_of(store, self.found.files, number)
        same = _same(store, self.found.signed, number)
        return (_Marking if self.act == "mark" else _Removing)(losers=losers, reasons=self.found.reasons, same=same)

    def closed(self) -> None: ...


@dataclass(frozen=True, kw_only=True)
class _Removing(Ends):
    losers: Array  # by number
    reasons: tuple[str, ...]  # by source
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        numbers, _ = self._lost(rows)
        kept = np.ones(len(rows), bool)
        kept[numbers] = False
        return rows.keep(kept, self.reasons[rows.source])

    def ended(self) -> None:
        self.same.ended()

    def _lost(self, rows: Rows) -> tuple[Array, Array]:
        """Numbers in these rows of those that lose, and the origins of what stays in their place."""
        start = self.same.start_of(rows)
        low, high = np.searchsorted(self.losers["number"], [start, start + len(rows)])
        some = self.losers[low:high]
        return some["number"].astype("i8") - start, some["survivor"]


@dataclass(frozen=True, kw_only=True)
class _Marking(_Removing):
    def __call__(self, rows: Rows) -> Rows:
        return with_survivors(rows, *self._lost(rows))


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
