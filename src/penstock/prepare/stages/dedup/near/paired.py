"""Paired: near_dedup when candidates are known: it lets through documents that share a band with another."""

from dataclasses import dataclass, replace

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.budget.room import Room
from penstock.prepare.rows.container import Array
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.parts import parts_of
from penstock.prepare.stages.dedup.runs import open_index
from penstock.prepare.stages.dedup.same_rows import SameRows
from penstock.prepare.stages.interfaces import Ends, Opens
from penstock.prepare.stages.stage import Stage
from penstock.shards.columns import FileFacts

DOCUMENTS = "documents"  # a fact of a file with bands: how many the slice has
PAIRED, PAIRED_NUMBER = "paired", np.dtype("<u4")  # parts of a file with pairs
NUMBER = "number"  # beside rows: of a document among those of its slice


@dataclass(frozen=True)
class Pairs:
    """Files with pairs, of each range, and with the bands, of each slice."""

    files: tuple[FileFacts, ...]
    signed: tuple[FileFacts, ...]


@dataclass(frozen=True, kw_only=True)
class InPairs(Opens):
    """Only documents that share a band with another, each with its number in the slice."""

    pairs: Pairs

    def opened(self, store: Store, number: int, threads: int, room: Room) -> Stage:  # noqa: ARG002
        same = same_documents(store, self.pairs.signed, number)
        paired = np.zeros(same.expected, bool)
        for numbers in parts_of(store, self.pairs.files, PAIRED, PAIRED_NUMBER, number):
            paired[numbers] = True
        return _Paired(paired=paired, same=same)

    def closed(self) -> None: ...  # what was opened belongs to its task


@dataclass(frozen=True, kw_only=True)
class _Paired(Ends):
    paired: Array  # whether each document of the slice is
    same: SameRows

    def __call__(self, rows: Rows) -> Rows:
        start = self.same.start_of(rows)
        numbers = np.arange(start, start + len(rows))
        rows = replace(rows, beside={**rows.beside, NUMBER: numbers})
        return rows.keep(self.paired[start : start + len(rows)], "in no pair")

    def ended(self) -> None:
        self.same.ended()


def same_documents(store: Store, signed: tuple[FileFacts, ...], number: int) -> SameRows:
    """The documents of a slice, as many as were signed."""
    documents = open_index(store, signed[number]).facts[DOCUMENTS]
    return SameRows("near_dedup", "compared", number, documents)
