"""Hugging Face dataset: a finished dataset -> a folder that `datasets.load_from_disk` reads.

Columns keep their names and values, but for two of packed rows, which get the names and types that trainers look for,
and for what that library has no type for (docs/reference/exports.md).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, did_you_mean
from penstock.base.files import WriteFile
from penstock.base.fingerprint import fingerprint
from penstock.base.stores.local import LocalStore
from penstock.shards import arrow as pa
from penstock.shards import packed
from penstock.shards.dataset import Dataset
from penstock.shards.foreign import export
from penstock.shards.foreign.pieces import row_ranges
from penstock.shards.origins import without_origins
from penstock.shards.record import decode_range
from penstock.shards.schema import Field, Schema, Type, type_to_arrow

_AT_ONCE = 2**20  # bytes of rows in a record batch
_VERSION = 1  # of what is written: a change of it changes the fingerprints, by which that library caches
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def export_hf(
    path: str,
    target: str,
    split: str | None = None,
    overwrite: bool = False,
    shard_size: str | int = export.SHARD_SIZE,
    columns: Sequence[str] | None = None,
) -> export.Exported:
    """Write all splits of a dataset, or one, into a folder that appears whole or not at all; all columns, or some."""
    splits = export.open_splits(path, split, "hf")
    most = export.shard_bytes(shard_size, splits)
    export.refuse_target(path, target, overwrite)
    features = features_of(next(iter(splits.values())).schema, path, columns)
    with export.written_beside(target) as store:
        alone = len(splits) == 1
        written = {
            each: _write_split(store, "" if alone else f"{each}/", dataset, features, most)
            for each, dataset in splits.items()
        }
        if not alone:
            export.write_json(store, "dataset_dict.json", {"splits": list(splits)})
        return export.finish(store, path, "hf", written)


def _write_split(store: LocalStore, place: str, dataset: Dataset, features: list[Feature], most: int) -> export.Written:
    described = {feature.name: _described(feature.type) for feature in features}
    fields = [pa.field(feature.name, type_to_arrow(feature.type)) for feature in features]
    schema = pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": described}})})
    written = export.Written(tokens=0 if INPUT_IDS in described and packed.has_tokens(dataset.schema) else None)
    overhead = export.Overhead(file=len(schema.serialize()) + len(_END_OF_STREAM))
    messages = _messages(_batches(dataset, features, schema, min(most, _AT_ONCE)), written, most - overhead.file)
    files = export.write_files(
        store, f"{place}data", ".arrow", messages, most, partial(_write_stream, schema), overhead
    )
    written.files = len(files)
    export.write_json(store, f"{place}dataset_info.json", {"features": described})
    state: dict[str, Any] = {
        "_data_files": [{"filename": os.path.basename(file)} for file in files],
        "_fingerprint": fingerprint([dataset.id, dataset.split, described, _VERSION])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": dataset.split,
    }
    export.write_json(store, f"{place}state.json", state)
    return written


def _batches(dataset: Dataset, features: list[Feature], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    for columns, start, stop in row_ranges(dataset, dataset.schema, most):
        arrays = [feature.read(columns, start, stop) for feature in features]
        arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _messages(batches: Iterator[pa.RecordBatch], written: export.Written, most: int) -> Iterator[pa.Buffer]:
    for batch in batches:
        written.rows += batch.num_rows
        if written.tokens is not None:
            written.tokens += len(batch.column(INPUT_IDS).values)
        yield from _serialized(batch, most)


def _serialized(batch: pa.RecordBatch, most: int) -> Iterator[pa.Buffer]:
    """Some rows take more bytes here than they are stored in: the batch is halved until a message fits, or is a row."""
    message = batch.serialize()
    if len(message) <= most or batch.num_rows == 1:
        yield message
        return
    middle = batch.num_rows // 2
    for part in (batch.slice(0, middle), batch.slice(middle)):
        yield from _serialized(part, most)


def _write_stream(schema: pa.Schema, file: WriteFile, messages: Iterator[pa.Buffer]) -> None:
    file.write(memoryview(schema.serialize()))
    for message in messages:
        file.write(memoryview(message))
    file.write(_END_OF_STREAM)


INPUT_IDS, LENGTHS = "input_ids", "seq_lengths"


@dataclass(frozen=True)
class Feature:
    """One column as it will be: its name and type, and how some rows of it are read."""

    name: str
    type: Type
    read: Callable[[packed.Columns, int, int], pa.Array]


def features_of(schema: Schema, where: str, columns: Sequence[str] | None) -> list[Feature]:
    features = [_feature(schema, field) for field in without_origins(schema)]
    names = [feature.name for feature in features]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two columns would be called {name!r}: that one, and one of packed rows",
                where=where,
                next_step="rename it with `select: {new_name: old_name}` when the dataset is made",
            )
    for name in columns or ():
        if name not in names:
            raise ConfigError(f"there is no column {name!r}.{did_you_mean(name, names)}", where=where)
    return [feature for feature in features if columns is None or feature.name in columns]


def _feature(schema: Schema, field: Field) -> Feature:
    if field.name == packed.TOKENS and packed.has_tokens(schema):
        number = packed.token_number(schema)
        wide = number.itemsize > 4 or number == np.uint32
        return Feature(INPUT_IDS, Type("list", Type("int64" if wide else "int32")), _read_input_ids)
    if field.name == packed.DOCUMENTS and packed.has_documents(schema):
        return Feature(LENGTHS, Type("list", Type("int32")), _read_lengths)
    return Feature(field.name, _known(field.parsed), lambda *rows: decode_range((field,), *rows).column(0))


def _known(kind: Type) -> Type:
    """The type of that library's that holds the same values."""
    if kind.is_dictionary and kind.inner:
        return kind.inner
    if kind.is_list and kind.inner:
        return Type("list", _known(kind.inner))
    return Type("binary") if kind.name == "fixed_size_binary" else kind


def _described(kind: Type) -> dict[str, Any]:
    """The feature in dataset_info.json. All versions read `Sequence`, only version 4 and later `List`."""
    if kind.inner:
        length = {"length": kind.width} if kind.is_fixed_list else {}
        return {"feature": _described(kind.inner), **length, "_type": "Sequence"}
    if kind.name == "decimal128":
        return {"dtype": f"decimal128({', '.join(kind.arguments)})", "_type": "Value"}
    unit, *zone = kind.arguments or ("",)
    inside = ", ".join([unit, *(f"tz={each}" for each in zone)])
    return {"dtype": f"{kind.name}[{inside}]" if inside else kind.name, "_type": "Value"}


def _read_input_ids(columns: packed.Columns, start: int, stop: int) -> pa.Array:
    packed.refuse_null_tokens(columns)
    values, edges = packed.read_tokens(columns, start, stop)
    return _list_array(values, edges)


def _read_lengths(columns: packed.Columns, start: int, stop: int) -> pa.Array:
    return _list_array(*packed.read_document_lengths(columns, packed.read_tokens(columns, start, stop)[1], start, stop))


def _list_array(values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(edges.astype("i4")), pa.array(values))
