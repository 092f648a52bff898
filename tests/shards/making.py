"""Make small datasets of every type, and name an array's exact bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.stores import open_store
from penstock.base.stores.scratch import release_scratch
from penstock.shards.columns import Container, Hold
from penstock.shards.manifest import Manifest, Step, write_manifest
from penstock.shards.schema import schema_from_arrow
from penstock.shards.shard import ShardWriter

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float16(), pa.float32(), pa.float64()]
TIMES = [
    *[pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")],
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "America/New_York"),
    pa.timestamp("ms", "+05:30"),
    *[pa.duration(unit) for unit in ("s", "ms", "us", "ns")],
    pa.date32(),
    pa.date64(),
    pa.time32("s"),
    pa.time32("ms"),
    pa.time64("us"),
    pa.time64("ns"),
]
FIXED = [*INTEGERS, *FLOATS, *TIMES, pa.bool_()]
TEXTS = [pa.string(), pa.binary(), pa.large_string(), pa.large_binary()]
TYPES = [
    *FIXED,
    *TEXTS,
    pa.decimal128(38, 10),
    pa.binary(3),
    *[pa.list_(kind) for kind in (pa.int8(), pa.float64(), pa.bool_(), pa.timestamp("us", "UTC"))],
    *[pa.list_(kind) for kind in (pa.duration("ms"), pa.date32(), pa.decimal128(38, 3), pa.binary(3), *TEXTS)],
    *[pa.list_(pa.dictionary(pa.int32(), kind)) for kind in (pa.string(), pa.large_binary())],
    *[pa.large_list(kind) for kind in (pa.float32(), pa.string(), pa.dictionary(pa.int32(), pa.binary()))],
    pa.list_(pa.float16(), 3),
    pa.list_(pa.bool_(), 2),
    pa.list_(pa.int64(), 1),
    pa.list_(pa.list_(pa.int8(), 8), 8),
    pa.list_(pa.list_(pa.bool_(), 3), 2),
    pa.list_(pa.list_(pa.list_(pa.float16(), 2), 1), 3),
    pa.list_(pa.list_(pa.timestamp("us", "UTC"), 2), 2),
    *[pa.dictionary(pa.int32(), kind) for kind in TEXTS],
]
WORDS = ["", "a", "\0", "naïve", "\U0001f600", "a\0b", "x" * 70, "\n", "e\u0301", "\uffff"]
ODD_BITS = {  # -0.0, NaNs with payloads, infinities, the smallest subnormal
    2: [0x8000, 0x7E00, 0xFE01, 0x7C00, 0xFC00, 0x0001],
    4: [0x80000000, 0x7FC00000, 0xFFC12345, 0x7F800000, 0xFF800000, 0x00000001],
    8: [0x8000000000000000, 0x7FF8000000000000, 0xFFF8DEADBEEF0001, 0x7FF0000000000000, 0xFFF0000000000000, 1],
}


def make_array(kind: pa.DataType, rows: int, rng: np.random.Generator, nulls: float) -> pa.Array:
    """Random values of `kind` with the awkward ones among them; a share `nulls` of them null."""
    mask = rng.random(rows) < nulls
    if kind in TEXTS:
        words = [WORDS[i] for i in rng.integers(0, len(WORDS), rows)]
        values = [word.encode() + (b"\xff" if "binary" in str(kind) else b"") for word in words]
        if "string" in str(kind):
            values = words
        return pa.array([None if null else value for null, value in zip(mask, values, strict=True)], kind)
    if pa.types.is_dictionary(kind):
        return make_array(kind.value_type, rows, rng, nulls).dictionary_encode().cast(kind)
    if pa.types.is_fixed_size_list(kind):
        inner = make_array(kind.value_type, rows * kind.list_size, rng, 0)
        return pa.FixedSizeListArray.from_arrays(inner, type=kind, mask=pa.array(mask))
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _ragged(kind, rows, rng, mask, nulls)
    if pa.types.is_boolean(kind):
        return pa.array(rng.random(rows) < 0.5, mask=mask)
    width = kind.bit_width // 8
    data = rng.integers(0, 256, rows * width, dtype="u1")
    if pa.types.is_decimal(kind):
        data.reshape(-1, 16)[:, 15] = 0  # within 38 digits
        data.reshape(-1, 16)[:, 14] %= 64
    elif pa.types.is_date64(kind):
        data = (rng.integers(-(10**6), 10**6, rows) * 86_400_000).view("u1")
    elif pa.types.is_time(kind):
        data = rng.integers(0, 86_400, rows, dtype=f"i{width}").view("u1")
    elif pa.types.is_floating(kind) and rows:
        words = data.view(f"u{width}")
        words[rng.random(rows) < 0.4] = rng.choice(np.array(ODD_BITS[width], words.dtype))
    bitmap = None if not mask.any() else pa.array(~mask).buffers()[1]
    return pa.Array.from_buffers(kind, rows, [bitmap, pa.py_buffer(data)])


def _ragged(kind: pa.DataType, rows: int, rng: np.random.Generator, mask: np.ndarray, nulls: float) -> pa.Array:
    """A null list may have values: they are not part of the data."""
    lengths = rng.integers(0, 4, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    inner = make_array(kind.value_type, int(offsets[-1]), rng, nulls)
    array_class = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
    offsets = pa.array(offsets, pa.int64() if pa.types.is_large_list(kind) else pa.int32())
    return array_class.from_arrays(offsets, inner, type=kind, mask=pa.array(mask))


def make_batch(rows: int, seed: int, nulls: float = 0.3, types: list[pa.DataType] = TYPES) -> pa.RecordBatch:
    """A column of each type; all that can be stored, unless told."""
    rng = np.random.default_rng(seed)
    arrays = [make_array(kind, rows, rng, nulls) for kind in types]
    return pa.RecordBatch.from_arrays(arrays, [f"{i:02d} {kind}".replace("/", "|") for i, kind in enumerate(types)])


def bits(array: pa.Array) -> list[Any]:
    """Values as they are told apart on disk: NaNs by their payload, -0.0 from 0.0, times as numbers."""
    kind = array.type
    if pa.types.is_dictionary(kind):
        return bits(array.dictionary_decode())
    if pa.types.is_nested(kind):
        return [None if not each.is_valid else bits(each.values) for each in array]
    if pa.types.is_floating(kind) or pa.types.is_temporal(kind):
        return array.view(f"{'uint' if pa.types.is_floating(kind) else 'int'}{kind.bit_width}").to_pylist()
    return array.to_pylist()


def write_dataset(
    path: Path, shards: dict[str, list[list[pa.RecordBatch]]], container: Container = "safetensors"
) -> Manifest:
    """A finished dataset: for each split its shards, for each shard its batches."""
    folder = open_store(str(path))
    first = next(batch for each in shards.values() for shard in each for batch in shard)
    schema = schema_from_arrow(first.schema, "a test")
    splits, rows = {}, 0
    for split, members in shards.items():
        facts = []
        for number, batches in enumerate(members):
            writer = ShardWriter(folder, f"{split}/{number:05d}-of-{len(members):05d}", schema, container, Hold(100))
            for batch in batches:
                writer.write(batch)
            facts.append(writer.commit())
            rows += writer.records
        splits[split] = tuple(facts)
    account = (Step("read", "rows", rows, rows),)
    manifest = Manifest({"stages": []}, {"files": 1}, schema, splits, account, (), (), "job")
    write_manifest(folder, manifest)
    release_scratch(folder.scratch_folder)
    return manifest
