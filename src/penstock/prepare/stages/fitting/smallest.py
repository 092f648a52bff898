"""Smallest: hashes of all rows -> the hash with which each split of an exact size ends.

A state holds as many of the smallest hashes as all splits need, and one more, which tells that `train` gets something.
It depends on the set of hashes alone, so rows may come in any order and any blocks.
"""

import base64
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.errors import PlanError

Array = np.ndarray[Any, Any]
HASH = "hash"
PACKED_BYTES = 11  # of a hash in a packed state: eight, as base64
_BLOCK_ROWS = 1 << 16


@dataclass(frozen=True)
class Smallest:
    """The fit of a column of uint64 hashes. `counts` are the splits in their order; `unit` is what they count."""

    counts: tuple[tuple[str, int], ...]
    unit: str
    is_distinct: bool  # equal hashes are one key; else they are two rows

    @property
    def columns(self) -> tuple[str, ...]:
        return (HASH,)

    def block_rows(self, schema: pa.Schema) -> int:  # noqa: ARG002
        return _BLOCK_ROWS

    def start(self) -> Array:
        return np.empty(0, "<u8")

    def update(self, state: Array, block: pa.RecordBatch) -> Array:
        hashes = np.asarray(block.column(HASH))
        if len(state) == self._most:
            hashes = hashes[hashes < state[-1]]  # most rows end here, and nothing is sorted
        return self._first(state, hashes) if len(hashes) else state

    def _first(self, left: Array, right: Array) -> Array:
        both = np.concatenate([left, right])
        ordered = np.unique(both) if self.is_distinct else np.sort(both)
        return ordered[: self._most].copy()  # a view would hold all of them

    @property
    def _most(self) -> int:
        return sum(count for _, count in self.counts) + 1

    def pack(self, state: Array) -> str:
        return base64.b64encode(state.astype("<u8").tobytes()).decode()

    def merge(self, left: str, right: str) -> str:
        return self.pack(self._first(_unpacked(left), _unpacked(right)))

    def finish(self, state: str) -> dict[str, int]:
        """The last hash of each split. Raises PlanError where there are too few."""
        hashes = _unpacked(state)
        if len(hashes) < self._most:
            raise self._too_few(len(hashes))
        ends = list(accumulate(count for _, count in self.counts))
        for (name, count), end in zip(self.counts, ends, strict=True):
            if hashes[end - 1] == hashes[end]:  # 1 in 10^10, or rows that say the same of where they came from
                raise PlanError(
                    f"split: {name}: {count} cannot be exact: two rows at its end have the same hash",
                    where="the hash of file and row, by which rows are chosen",
                    next_step="choose another seed: split: {..., seed: 1}, or split by a column: {by: user, ...}",
                )
        return {name: int(hashes[end - 1]) for (name, _), end in zip(self.counts, ends, strict=True)}

    def _too_few(self, found: int) -> PlanError:
        wanted = ", ".join(f"{name}: {count}" for name, count in self.counts)
        reached = f"{found:,} {self.unit} reach the split"
        if found == self._most - 1:
            what = f"split: {{{wanted}}} takes all, since {reached}: nothing is left for train"
        else:
            what = f"split: {{{wanted}}} asks for {self._most - 1:,}, and {reached}"
        return PlanError(what, next_step="ask for fewer, or use shares such as {test: 0.1}")


def _unpacked(state: str) -> Array:
    return np.frombuffer(base64.b64decode(state), "<u8")
