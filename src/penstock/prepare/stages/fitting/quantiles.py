"""Quantiles: numbers of all rows -> edges of bins that hold about equally many, in one pass. Used by bins.py.

A state counts values by cells. Numbers as float64 are put in order as 64-bit keys, and a cell is all keys with the same
highest bits. Cells are as fine as can be while at most `CELLS_PER_BIN` of them per bin have a value. So a state
depends on the set of values alone: rows may come in any order, blocks and tasks.

Every edge is the lower end of a cell, so the count of each bin is exact. Its share is not: it differs from an equal
share by at most the count of one cell, half at each edge. Up to 64 different values per bin, a cell is one value.
"""

from __future__ import annotations

import base64
import bisect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

Array = np.ndarray[Any, Any]
CELLS_PER_BIN = 64
PACKED_BYTES = 22  # of a cell in a packed state: two numbers of eight bytes, as base64
_BLOCK_ROWS, _BLOCK_RECORDS = 1 << 15, 8  # any numbers: it is exact. Blocks wait in memory, and lists may be long
_PIECE_VALUES = 1 << 17  # sorted together: 1 MiB as float64
_HIGHEST = np.uint64(1 << 63)
_ALL = np.uint64(2**64 - 1)


@dataclass(frozen=True)
class Cells:
    """Counts of the finite values of one column."""

    shift: int  # lowest bits of a key that do not tell cells apart
    keys: Array  # uint64, ascending: the keys of cells, shifted
    counts: Array  # int64, none 0
    low: float  # the smallest and the largest value
    high: float
    nulls: int = 0
    nans: int = 0
    infinities: int = 0


_NO_CELLS = Cells(0, np.zeros(0, "u8"), np.zeros(0, "i8"), float("inf"), float("-inf"))


@dataclass(frozen=True)
class Counting:
    """Cells, and finite values that wait until there are enough of them to sort."""

    cells: Cells
    waiting: tuple[Array, ...] = ()

    def with_values(self, array: pa.Array) -> Counting:
        values = array.drop_null().to_numpy(zero_copy_only=False).astype("f8")
        finite = values[np.isfinite(values)] + 0.0  # -0.0 is 0.0
        nans = int(np.isnan(values).sum())
        cells = replace(
            self.cells,
            nulls=self.cells.nulls + array.null_count,
            nans=self.cells.nans + nans,
            infinities=self.cells.infinities + len(values) - len(finite) - nans,
        )
        return Counting(cells, (*self.waiting, finite))


@dataclass(frozen=True)
class Quantiles:
    """The fit: how many bins each column gets."""

    bins: Mapping[str, int]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(self.bins)

    def block_rows(self, schema: pa.Schema) -> int:
        return _BLOCK_RECORDS if any(pa.types.is_nested(schema.field(name).type) for name in self.bins) else _BLOCK_ROWS

    def start(self) -> dict[str, Counting]:
        return dict.fromkeys(self.bins, Counting(_NO_CELLS))

    def update(self, state: dict[str, Counting], block: pa.RecordBatch) -> dict[str, Counting]:
        return {name: self._with(name, state[name], _flat(block.column(name))) for name in self.bins}

    def _with(self, name: str, state: Counting, array: pa.Array) -> Counting:
        for start in range(0, len(array), _PIECE_VALUES):
            state = state.with_values(array.slice(start, _PIECE_VALUES))
            if sum(map(len, state.waiting)) >= _PIECE_VALUES:
                state = Counting(self._counted(name, state))
        return state

    def _counted(self, name: str, state: Counting) -> Cells:
        return self._merged(name, state.cells, _cells_of(np.concatenate(state.waiting or (np.zeros(0),))))

    def pack(self, state: dict[str, Counting]) -> dict[str, Any]:
        return {name: encode(self._counted(name, each)) for name, each in state.items()}

    def merge(self, left: dict[str, Any], right: dict[str, Any]) -> dict[str, Any]:
        return {name: encode(self._merged(name, *(decode(side[name]) for side in (left, right)))) for name in self.bins}

    def _merged(self, name: str, left: Cells, right: Cells) -> Cells:
        return merged(left, right, CELLS_PER_BIN * self.bins[name])

    def finish(self, state: dict[str, Any]) -> dict[str, Any]:
        return {name: _finished(decode(state[name]), asked) for name, asked in self.bins.items()}


def encode(cells: Cells) -> dict[str, Any]:
    """Encode as JSON, each number in as few bytes as all of them need: the driver holds the states of all slices."""
    steps = np.diff(cells.keys, prepend=np.uint64(0))
    facts = {name: getattr(cells, name) for name in ("shift", "nulls", "nans", "infinities")}
    ends = [cells.low, cells.high] if len(cells.keys) else None
    return {**facts, "ends": ends, "steps": _packed(steps), "counts": _packed(cells.counts)}


def decode(state: dict[str, Any]) -> Cells:
    low, high = state["ends"] or (_NO_CELLS.low, _NO_CELLS.high)
    keys = np.cumsum(_unpacked(state["steps"]), dtype="u8")
    facts = {name: state[name] for name in ("nulls", "nans", "infinities")}
    return Cells(state["shift"], keys, _unpacked(state["counts"]).astype("i8"), low, high, **facts)


def _packed(numbers: Array) -> list[str]:
    kind = np.min_scalar_type(int(numbers.max(initial=0))).newbyteorder("<")
    return [kind.str, base64.b64encode(numbers.astype(kind).tobytes()).decode()]


def _unpacked(packed: list[str]) -> Array:
    return np.frombuffer(base64.b64decode(packed[1]), packed[0]).astype("u8")


def merged(left: Cells, right: Cells, most: int) -> Cells:
    """Both, in cells that are as fine as can be while there are at most `most`."""
    shift = max(left.shift, right.shift)
    keys = np.concatenate([each.keys >> np.uint64(shift - each.shift) for each in (left, right)])
    order = np.argsort(keys, kind="stable")  # two runs in order: a merge
    keys, counts = keys[order], np.concatenate([left.counts, right.counts])[order]
    apart = keys[1:] ^ keys[:-1]  # two keys are in one cell if they differ in bits that do not tell cells apart
    more = bisect.bisect_left(
        range(64), True, key=lambda bits: bool(np.count_nonzero(apart >> np.uint64(bits)) < max(most, 1))
    )
    keys, counts = _gathered(keys >> np.uint64(more), counts)
    return Cells(
        shift + more,
        keys,
        counts,
        min(left.low, right.low),
        max(left.high, right.high),
        left.nulls + right.nulls,
        left.nans + right.nans,
        left.infinities + right.infinities,
    )


def _gathered(keys: Array, counts: Array) -> tuple[Array, Array]:
    """Keys in order, each once, with the sum of its counts."""
    if not len(keys):
        return keys, counts
    starts = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(counts, starts)


def _flat(array: pa.Array) -> pa.Array:
    """The numbers in lists of any depth."""
    while pa.types.is_nested(array.type):
        array = array.flatten()
    return array


def _cells_of(values: Array) -> Cells:
    if not len(values):
        return _NO_CELLS
    keys, counts = np.unique(keys_of(values), return_counts=True)
    return replace(_NO_CELLS, keys=keys, counts=counts, low=float(values.min()), high=float(values.max()))


def keys_of(values: Array) -> Array:
    """float64 -> uint64 in the same order."""
    bits = values.view("u8")
    return np.where(bits >= _HIGHEST, bits ^ _ALL, bits | _HIGHEST)


def values_of(keys: Array) -> Array:
    bits: Array = np.where(keys >= _HIGHEST, keys ^ _HIGHEST, keys ^ _ALL)
    return bits.view("f8")


def _finished(cells: Cells, asked: int) -> dict[str, Any]:
    """Edges at the lower ends of the cells that are nearest to equal shares, each once."""
    found = {"nulls": cells.nulls, "nans": cells.nans, "infinities": cells.infinities}
    count = int(cells.counts.sum())
    if not count:
        return {"asked": asked, "bins": 0, "edges": [], "counts": [], "count": 0, **found}
    before = np.cumsum(cells.counts) - cells.counts  # values below each cell
    wanted = [count * number // asked for number in range(1, asked)]
    above = np.searchsorted(before, wanted)
    below = np.maximum(above - 1, 0)
    last = np.minimum(above, len(before) - 1)
    nearest = np.where(np.abs(before[last] - wanted) < np.abs(before[below] - wanted), last, below)
    starts = np.unique(np.concatenate([[0], nearest]).astype("i8"))
    edges = values_of(cells.keys[starts] << np.uint64(cells.shift)).tolist()
    edges = [cells.low, *edges[1:], cells.high]
    counts = np.add.reduceat(cells.counts, starts).tolist()
    return {"asked": asked, "bins": len(counts), "edges": edges, "counts": counts, "count": count, **found}
