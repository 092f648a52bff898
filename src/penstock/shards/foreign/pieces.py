"""Pieces: the columns of a dataset -> rows to read together, a bounded number of bytes at a time. Read by exports."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from penstock.shards.arrays import fixed_dtype
from penstock.shards.columns import Column
from penstock.shards.dataset import Dataset
from penstock.shards.schema import NUMBERS, Field, Schema, Type

_ROWS_AT_ONCE = 2**16


def row_ranges(dataset: Dataset, schema: Schema, most: int) -> Iterator[tuple[dict[str, Column], int, int]]:
    """Columns of a shard and the rows to read together: `most` bytes of the fields of `schema`, or one row."""
    for shard, records in enumerate(dataset.counts):
        columns, start = dataset.columns(shard), 0
        while start < records:
            stop = min(records, start + _ROWS_AT_ONCE)
            while stop - start > 1 and sum(_field_bytes(field, columns, start, stop) for field in schema) > most:
                stop = start + (stop - start) // 2
            yield columns, start, stop
            start = stop


def fixed_pieces(column: Column, kind: Type, most: int) -> Iterator[np.ndarray[Any, Any]]:
    """Values of a flat column, `most` bytes at a time or one row, as other programs know them."""
    dtype = fixed_dtype(kind)
    rows = max(1, most // (dtype.itemsize * math.prod(kind.shape)))
    for start in range(0, len(column), rows):
        yield column.read(start, min(start + rows, len(column))).view(dtype)


def _field_bytes(field: Field, columns: Mapping[str, Column], start: int, stop: int) -> int:
    """Bytes of these values; of a dictionary those of the text that its codes stand for."""
    kind, name = field.parsed, field.name
    if start == stop:
        return 0
    if kind.is_dictionary:
        codes = columns[f"{name}/codes"].read(start, stop)
        edges = columns[f"{name}/dictionary/offsets"]
        if len(edges) == 1:  # all are null
            return codes.nbytes
        first, last = int(codes.min()), int(codes.max())
        return codes.nbytes + int(np.diff(edges.read(first, last + 2))[codes - first].sum())
    if kind.is_fixed:
        return (stop - start) * np.dtype(NUMBERS[kind.number.name]).itemsize * int(np.prod(kind.shape))
    offsets = columns[f"{name}/offsets"]
    low, high = int(offsets.read(start, start + 1)[0]), int(offsets.read(stop, stop + 1)[0])
    return 4 * (stop - start) + (_field_bytes(field.inner, columns, low, high) if kind.is_list else high - low)
