"""Removed: near_dedup when it is decided which documents stay: the others are removed, or marked."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa

from penstock.base.stores.store import Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.near.paired import same_documents
from penstock.prepare.stages.dedup.parts import parts_of
from penstock.prepare.stages.dedup.same_rows import SameRows
from penstock.prepare.stages.interfaces import Ends, Opens, Says
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts
from penstock.shards.origins import SURVIVOR

REMOVED = "removed"  # parts of the file that choose leaves
REMOVAL = np.dtype(
    [("number", "<u4"), ("origin", "<i8"), ("survivor", "<i8"), ("similarity", "<f8"), ("hash", "<u8")]
    + [("survivor_hash", "<u8")]
)
_MARK = np.dtype([("number", "<u4"), ("survivor", "<i8")])
REASON = "near-duplicate"
_NONE = np.zeros(0, "i8")


def removals_in(store: Store, files: Sequence[FileFacts], number: int) -> Iterator[Array]:
    """Removed documents of one slice, some at a time."""
    return parts_of(store, files, REMOVED, REMOVAL, number)


@dataclass(frozen=True)
class Removed:
    """Files with the removed documents, and with the bands of each slice; reasons by source; a line for the screen."""

    files: tuple[FileFacts, ...]
    signed: tuple[FileFacts, ...]
    reasons: tuple[str, ...]
    words: str


@dataclass(frozen=True, kw_only=True)
class NearMatched(Opens, Says):
    act: Literal["remove", "mark"]
    found: Removed

    def says(self) -> str:
        return self.found.words

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        same = same_documents(store, self.found.signed, number)
        if self.act == "mark":
            return _Marking(marks=self._marks(store, number), same=same)
        stays = np.ones(same.expected, bool)
        for removals in removals_in(store, self.found.files, number):
            stays[removals["number"]] = False
        return _Removing(stays=stays, reasons=self.found.reasons, same=same)

    def _marks(self, store: Store, number: int) -> Array:
        """Documents to mark, in the order of their numbers, each with the origin of its survivor."""
        found = [each[list(_MARK.names or ())].astype(_MARK) for each in removals_in(store, self.found.files, number)]
        marks = np.concatenate([np.zeros(0, _MARK), *found])
        return marks[np.argsort(marks["number"])]

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
    marks: Array
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start = self.same.start_of(rows)
        low, high = np.searchsorted(self.marks["number"], [start, start + len(rows)])
        some = self.marks[low:high]
        return with_survivors(rows, some["number"].astype("i8") - start, some["survivor"])

    def ended(self) -> None:
        self.same.ended()


def with_survivors(rows: Rows, numbers: Array = _NONE, survivors: Array = _NONE) -> Rows:
    """The rows with a column of the origins of what stays in their place; null where they stay themselves."""
    origins, missing = np.zeros(len(rows), "i8"), np.ones(len(rows), bool)
    origins[numbers], missing[numbers] = survivors, False
    return rows.with_batch(rows.batch.append_column(SURVIVOR, pa.array(origins, mask=missing)))
