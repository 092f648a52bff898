"""Hugging Face dataset: a finished dataset -> a folder that `datasets.load_from_disk` reads.

Files of Arrow record batches, with dataset_info.json and state.json beside them; of several splits, a folder each and
dataset_dict.json. Columns keep their names and values, with two exceptions. Of packed rows, `tokens` is called
`input_ids`, a list of int32, and `documents` becomes `seq_lengths`, the lengths of a row's documents: the names and
types that trainers look for. And what that library has no type for is spelled out: codes as their text, bytes of a
fixed size as bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from penstock.base.files import WriteFile
from penstock.base.fingerprint import fingerprint
from penstock.base.paths import dataset_path, local_path
from penstock.base.stores import open_store
from penstock.base.stores.local import LocalStore
from penstock.shards import arrow as pa
from penstock.shards.dataset import Dataset
from penstock.shards.foreign.export import (
    SHARD_SIZE,
    Exported,
    Overhead,
    Written,
    finish,
    open_splits,
    refuse_target,
    row_ranges,
    shard_bytes,
    write_files,
    write_json,
    written_beside,
)
from penstock.shards.foreign.hf_features import INPUT_IDS, Feature, features_of
from penstock.shards.manifest import dataset_id
from penstock.shards.packed import has_tokens
from penstock.shards.schema import type_to_arrow

_AT_ONCE = 2**20  # bytes of rows in a record batch
_VERSION = 1  # of what is written: a change of it changes the fingerprints, by which that library caches
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


def export_hf(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    split: str | None = None,
    overwrite: bool = False,
    shard_size: str | int = SHARD_SIZE,
    columns: Sequence[str] | None = None,
) -> Exported:
    """Write all splits of a dataset, or one, into a folder that appears whole or not at all; all columns, or some."""
    path, target = dataset_path(path), os.path.abspath(local_path(output, is_output=True))
    splits = open_splits(path, split, "hf")
    most = shard_bytes(shard_size, splits)
    refuse_target(path, target, overwrite)
    features = features_of(next(iter(splits.values())).schema, path, columns)
    name = dataset_id(open_store(path))
    with written_beside(target) as store:
        alone = len(splits) == 1
        written = {
            each: _write_split(store, "" if alone else f"{each}/", dataset, features, most, name)
            for each, dataset in splits.items()
        }
        if not alone:
            write_json(store, "dataset_dict.json", {"splits": list(splits)})
        return finish(store, path, "hf", written)


def _write_split(
    store: LocalStore, place: str, dataset: Dataset, features: list[Feature], most: int, name: str
) -> Written:
    described = {feature.name: feature.described for feature in features}
    schema = _arrow_schema(features, described)
    written = Written(tokens=0 if INPUT_IDS in described and has_tokens(dataset.schema) else None)
    overhead = Overhead(file=len(schema.serialize()) + len(_END_OF_STREAM))
    messages = _messages(_batches(dataset, features, schema, min(most, _AT_ONCE)), written, most - overhead.file)
    files = write_files(store, f"{place}data", ".arrow", messages, most, partial(_write_stream, schema), overhead)
    written.files = len(files)
    write_json(store, f"{place}dataset_info.json", {"features": described})
    state: dict[str, Any] = {
        "_data_files": [{"filename": os.path.basename(file)} for file in files],
        "_fingerprint": fingerprint([name, dataset.split, described, _VERSION])[:16],
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": dataset.split,
    }
    write_json(store, f"{place}state.json", state)
    return written


def _arrow_schema(features: list[Feature], described: dict[str, Any]) -> pa.Schema:
    fields = [pa.field(feature.name, type_to_arrow(feature.type)) for feature in features]
    return pa.schema(fields, metadata={"huggingface": json.dumps({"info": {"features": described}})})


def _batches(dataset: Dataset, features: list[Feature], schema: pa.Schema, most: int) -> Iterator[pa.RecordBatch]:
    for columns, start, stop in row_ranges(dataset, dataset.schema, most):
        arrays = [feature.read(columns, start, stop) for feature in features]
        arrays = [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _messages(batches: Iterator[pa.RecordBatch], written: Written, most: int) -> Iterator[pa.Buffer]:
    """Each batch as an Arrow stream has it, and counted."""
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
