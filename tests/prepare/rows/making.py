"""Columns of every type, the canonical order in plain Python, and the two sides of an exchange over a folder."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from penstock.base.stores import open_store
from penstock.prepare.passes.exchange.merging import Gathering, gather
from penstock.prepare.rows import order
from penstock.prepare.rows.container import ContainerWriter, Stored
from penstock.prepare.rows.order import Exchange, Sorted, bucket_numbers, sort_rows
from penstock.prepare.rows.spill import SpillWriter, read_chunks, read_table, with_codes
from penstock.prepare.rows.spills import chunks_of_part, write_places
from penstock.shards.columns import FileFacts

_MICROSECONDS = st.integers(-(2**40), 2**40)

# What values a column of each type may have; few enough that ties are common.
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int64": (pa.int64(), st.sampled_from([-(2**63), -(2**63) + 1, -5, 0, 7, 2**63 - 2, 2**63 - 1])),
    "uint64": (pa.uint64(), st.sampled_from([0, 1, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])),
    "int8": (pa.int8(), st.integers(-128, 127)),
    "uint16": (pa.uint16(), st.integers(0, 9)),
    "float64": (pa.float64(), st.sampled_from([-math.inf, -1.5, -5e-324, -0.0, 0.0, 2.5, 1e300, math.inf, math.nan])),
    "float32": (pa.float32(), st.sampled_from([-math.inf, -0.0, 0.0, 0.5, 3.0, math.inf, math.nan])),
    "bool": (pa.bool_(), st.booleans()),
    "string": (
        pa.string(),
        st.sampled_from(["", "a", "a\0", "a\0b", "ab", "12345678", "123456789", "é", "\U0001f600"]),
    ),
    "large_string": (pa.large_string(), st.text(max_size=12)),
    "binary": (pa.binary(), st.sampled_from([b"", b"\0", b"\0\0", b"\x7f", b"\x80", b"\xff" * 8, b"\xff" * 9])),
    "fixed_binary": (pa.binary(3), st.binary(min_size=3, max_size=3)),
    "timestamp": (pa.timestamp("us"), _MICROSECONDS),
    "zoned": (pa.timestamp("ns", "Pacific/Chatham"), _MICROSECONDS),
    "date32": (pa.date32(), st.integers(-9, 9)),
    "date64": (pa.date64(), st.integers(-3, 3).map(lambda day: day * 86_400_000)),
    "time32": (pa.time32("ms"), st.integers(0, 9)),  # Parquet has no seconds
    "time64": (pa.time64("us"), st.integers(0, 9)),
    "duration": (pa.duration("ms"), st.integers(-9, 9)),
}


@st.composite
def columns(draw: Any, rows: int, kind: str | None = None) -> pa.Array:
    """A column of some type, with nulls."""
    name = kind or draw(st.sampled_from(sorted(VALUES)))
    arrow, values = VALUES[name]
    drawn = draw(st.lists(st.none() | values, min_size=rows, max_size=rows))
    return typed(drawn, arrow)


def typed(values: list[Any], kind: pa.DataType) -> pa.Array:
    """An array of raw values; those of times are whole numbers."""
    if pa.types.is_temporal(kind):
        return pa.array(values, pa.int64() if kind.bit_width == 64 else pa.int32()).view(kind)
    return pa.array(values, kind)


def raw(array: pa.Array) -> list[Any]:
    """A column's values with times as whole numbers, so that Python can compare all of them."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_temporal(array.type):
        array = array.view(pa.int64() if array.type.bit_width == 64 else pa.int32())
    return array.to_pylist()


def place(value: Any) -> tuple[Any, ...]:
    """A value's place in a column: numbers ascend, NaN after all of them, null after everything, text by its bytes."""
    if value is None:
        return (2,)
    if isinstance(value, float):
        return (1,) if math.isnan(value) else (0, value)
    return (0, value.encode() if isinstance(value, str) else value)


def in_order(table: pa.Table, exchange: Exchange) -> list[int]:
    """Row numbers in canonical order, by a stable sort of Python tuples."""
    named = {name: raw(table.column(name).combine_chunks()) for name in (*exchange.by, *exchange.order)}
    hashes = order.hash_keys([table.column(name).combine_chunks() for name in exchange.by]).tolist()
    return sorted(
        range(table.num_rows), key=lambda row: (hashes[row], *(place(values[row]) for values in named.values()))
    )


def coded(table: pa.Table) -> pa.Table:
    """The table in the form rows have when they come from a spill."""
    batches = [with_codes(batch) for batch in table.to_batches()]
    return pa.Table.from_batches(batches, with_codes(pa.RecordBatch.from_pylist([], table.schema)).schema)


def sorted_rows(table: pa.Table, exchange: Exchange) -> Sorted:
    """The table through `sort_rows`, as gather.py gives it rows; one of no rows comes as one empty batch."""
    coded_table = coded(table)
    return sort_rows(coded_table.to_batches() or [pa.RecordBatch.from_pylist([], coded_table.schema)], exchange)


def values_of(batch: pa.RecordBatch | pa.Table) -> list[str]:
    """Rows as text: NaN equals NaN, -0.0 differs from 0.0, and codes are the values they stand for."""
    arrays = [
        raw(pa.concat_arrays(column.chunks) if isinstance(column, pa.ChunkedArray) else column)
        for column in batch.columns
    ]
    return [repr(row) for row in zip(*arrays, strict=True)]


def spill(
    root: Path, tables: list[pa.Table], exchange: Exchange, buckets: int = 1, hold_bytes: int = 1 << 20
) -> list[FileFacts]:
    """One spill a table, as scatter tasks write them."""
    folder, spills = open_store(str(root)), []
    for number, table in enumerate(tables):
        with folder.commit(f"{number}.spill") as file:
            writer = SpillWriter(ContainerWriter(file, f"{number}.spill"), buckets, hold_bytes)
            for batch in table.to_batches(max_chunksize=100):
                hashes = order.hash_keys([batch.column(name) for name in exchange.by])
                writer.write(with_codes(batch), bucket_numbers(hashes, buckets))
            spills.append(writer.finish())
    return spills


def gathered(
    root: Path, spills: list[FileFacts], exchange: Exchange, buckets: range, sort_bytes: int, told: Any = lambda _: None
) -> list[Sorted]:
    how = Gathering(open_store(str(root)), exchange, sort_bytes, sort_bytes // 2, told)
    _, bounds = read_table(Stored(how.store, spills[0].file), spills[0].digest)
    written = write_places(how.store, "places", spills, len(bounds) - 1)
    return [run for bucket in buckets for run in gather(how, chunks_of_part(how.store, written, spills, bucket))]


def rows_of_parts(path: Path, parts: range) -> Iterator[pa.RecordBatch]:
    for part in parts:
        yield from read_chunks(Stored(open_store(path.parent), path.name), part).read()


def keys_and_rows(runs: list[Sorted]) -> tuple[list[str], list[int]]:
    """(all rows in order, the rows at which a key begins), whatever runs they came in."""
    rows: list[str] = []
    starts: list[int] = []
    for run in runs:
        starts += (np.asarray(run.starts) + len(rows)).tolist()
        rows += values_of(run.batch)
    return rows, starts
