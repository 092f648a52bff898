"""Groups: which groups a split has, noted with each part; at the end, the proof that no group is in two splits.

A group is told by a hash of its value that has nothing to do with the one that `split` decides by.
"""

import base64
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.prepare.rows.part import open_part
from penstock.prepare.rows.rows import Rows
from penstock.shards.manifest import ShardFacts

Array = np.ndarray[Any, Any]
PartsByTask = tuple[dict[str, ShardFacts], ...]  # what each task has put down, by split
_AT_ONCE = 1 << 20  # groups that are compared at a time


class Groups:
    def __init__(self, splits: tuple[str, ...], by: tuple[str, ...]) -> None:
        self._splits, self._by = splits, by
        self._found = {split: np.empty(0, "u8") for split in splits}

    def add(self, rows: Rows) -> None:
        if not self._by or rows.splits is None or not len(rows):
            return
        values, inverse = _identities(rows.batch.select(list(self._by)))
        for number, split in enumerate(self._splits):
            here = values[np.unique(inverse[rows.splits == number])]
            self._found[split] = np.union1d(self._found[split], here)

    def encoded(self) -> dict[str, str]:
        return {split: base64.b64encode(found.astype("<u8").tobytes()).decode() for split, found in self._found.items()}


def _identities(batch: pa.RecordBatch) -> tuple[Array, Array]:
    """(a number for each distinct combination of values, which of them each row has)."""
    codes = np.zeros(batch.num_rows, "i8")
    texts = [""]
    for column in batch.columns:
        encoded = column.dictionary_encode() if not pa.types.is_dictionary(column.type) else column
        # -0.0 + 0.0 is 0.0: `split` holds the two for one value, and so does the proof.
        values = [repr(value + 0.0 if type(value) is float else value) for value in encoded.dictionary.to_pylist()]
        indices = np.asarray(encoded.indices.fill_null(len(values)))
        codes, inverse = np.unique(codes * (len(values) + 1) + indices, return_inverse=True)
        every = [*values, "null"]
        texts = [f"{texts[code // len(every)]}\0{every[code % len(every)]}" for code in codes.tolist()]
        codes = inverse
    return np.array([xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass")) for text in texts], "u8"), codes


def prove_apart(store: Store, splits: tuple[str, ...], by: Sequence[str], parts: PartsByTask) -> dict[str, Any]:
    """Groups per split, counted over all parts. A group in two of them is a defect, and stops the job."""
    files = {split: [part[split] for part in parts if split in part] for split in splits}
    ranges = 1 + sum(len(_groups_of(store, each, of)) for of, every in files.items() for each in every) // _AT_ONCE
    edges = [number * 2**64 // ranges for number in range(ranges + 1)]
    counts, shared = dict.fromkeys(splits, 0), 0
    for low, high in itertools.pairwise(edges):
        found = {split: _between(store, split, every, low, high) for split, every in files.items()}
        for split, groups in found.items():
            counts[split] += len(groups)
        shared += sum(map(len, found.values())) - len(_distinct(list(found.values())))
    if shared:
        raise PenstockError(f"defect: {shared:,} groups are in more than one split")
    return {"by": list(by), "groups": counts, "groups_in_two_splits": shared}


def _groups_of(store: Store, part: ShardFacts, split: str) -> Array:
    return np.frombuffer(base64.b64decode(open_part(store, part.files[0]).groups(split)), "<u8")


def _between(store: Store, split: str, parts: list[ShardFacts], low: int, high: int) -> Array:
    found = [np.empty(0, "u8")]
    for part in parts:
        groups = _groups_of(store, part, split)
        first = np.searchsorted(groups, np.uint64(low))
        found.append(groups[first : np.searchsorted(groups, np.uint64(high - 1), side="right")])
    return _distinct(found)


def _distinct(found: list[Array]) -> Array:
    """Distinct values, sorted. `np.unique` imports numpy.ma, which takes longer than the groups of a small job."""
    ordered: Array = np.sort(np.concatenate(found))
    is_new: Array = np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)]
    return ordered[is_new]
