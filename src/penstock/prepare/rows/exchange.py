"""Exchange: bring the rows of a key together and in order, in bounded memory.

The scatter side partitions rows into buckets, ranges of the key's hash, and spills them (spill.py). The gather side
takes one bucket, sorts it (order.py), cutting it into finer ranges where it is too large (merging.py), and hands it to
the stage that asked for the exchange. The order is (hash of key, key, order columns, position), whatever the buckets.
"""

from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.hashing import combine, hash_distinct

Array = np.ndarray[Any, Any]
BUCKETS_IN_A_SLICE = 8  # a bucket is sorted in memory, with copies; a slice only passes through
MOST_BUCKETS = 4096


@dataclass(frozen=True)
class Exchange:
    """Order of rows that a stage needs: those of equal `by` together, in the order of `order`, then of position."""

    by: tuple[str, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bucket:
    """The rows of one range of hashes. It is to a gather task what a Slice is to the others."""

    number: int

    def describe(self) -> int:
        return self.number

    def __str__(self) -> str:
        return f"bucket {self.number}"


@dataclass(frozen=True)
class Sorted:
    """A run of rows in order. `starts` are the rows at which a key begins; the first run of a bucket has row 0."""

    batch: pa.RecordBatch
    starts: Array


def bucket_count(input_bytes: int, slice_bytes: int) -> int:
    """From the size of the data alone, so that no machine decides where a record goes."""
    return max(1, min(MOST_BUCKETS, -(-input_bytes * BUCKETS_IN_A_SLICE // max(slice_bytes, 1))))


def hash_keys(columns: list[pa.Array]) -> Array:
    """One uint64 per row: the hash that `split: {by: ...}` takes of the same columns."""
    return reduce(combine, [hash_distinct(column) for column in columns])


def bucket_numbers(hashes: Array, buckets: int) -> Array:
    """Equal ranges of the hash, so that the buckets one after the other are in the order of the hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype("u2")
