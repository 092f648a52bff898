"""Hugging Face features: columns of a dataset -> their names, types and values in the `datasets` library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, did_you_mean
from penstock.shards import arrow as pa
from penstock.shards.columns import Column
from penstock.shards.packed import (
    DOCUMENTS,
    TOKENS,
    has_documents,
    has_tokens,
    read_document_lengths,
    read_tokens,
    refuse_null_tokens,
    token_number,
)
from penstock.shards.record import decode_range
from penstock.shards.schema import Field, Schema, Type

Columns = Mapping[str, Column]
INPUT_IDS, LENGTHS = "input_ids", "seq_lengths"


@dataclass(frozen=True)
class Feature:
    """One column as it will be: its name and type, and how some rows of it are read."""

    name: str
    type: Type
    read: Callable[[Columns, int, int], pa.Array]

    @property
    def described(self) -> dict[str, Any]:
        return _described(self.type)


def features_of(schema: Schema, where: str, columns: Sequence[str] | None) -> list[Feature]:
    features = [_feature(schema, field) for field in schema]
    names = [feature.name for feature in features]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(
                f"two columns would be called {name!r}: that one, and what packed rows have under this name",
                where=where,
                next_step="rename it with `select: {new_name: old_name}` when the dataset is made",
            )
    for name in columns or ():
        if name not in names:
            raise ConfigError(f"there is no column {name!r}.{did_you_mean(name, names)}", where=where)
    return [feature for feature in features if columns is None or feature.name in columns]


def _feature(schema: Schema, field: Field) -> Feature:
    if field.name == TOKENS and has_tokens(schema):
        number = token_number(schema)
        wide = number.itemsize > 4 or number == np.uint32
        return Feature(INPUT_IDS, Type("list", Type("int64" if wide else "int32")), _read_input_ids)
    if field.name == DOCUMENTS and has_documents(schema):
        return Feature(LENGTHS, Type("list", Type("int32")), _read_lengths)
    return Feature(field.name, _known(field.parsed), partial(_read_column, field))


def _known(kind: Type) -> Type:
    """The type of that library's that holds the same values."""
    if kind.is_dictionary and kind.inner:
        return kind.inner
    if kind.is_list and kind.inner:
        return Type("list", _known(kind.inner))
    return Type("binary") if kind.name == "fixed_size_binary" else kind


def _described(kind: Type) -> dict[str, Any]:
    """As dataset_info.json describes it. `Sequence` is understood by all versions, `List` only since the fourth."""
    if kind.inner:
        length = {"length": kind.width} if kind.is_fixed_list else {}
        return {"feature": _described(kind.inner), **length, "_type": "Sequence"}
    if kind.name == "decimal128":
        return {"dtype": f"decimal128({', '.join(kind.arguments)})", "_type": "Value"}
    unit, *zone = kind.arguments or ("",)
    inside = ", ".join([unit, *(f"tz={each}" for each in zone)])
    return {"dtype": f"{kind.name}[{inside}]" if inside else kind.name, "_type": "Value"}


def _read_input_ids(columns: Columns, start: int, stop: int) -> pa.Array:
    refuse_null_tokens(columns)
    values, edges = read_tokens(columns, start, stop)
    return _list_array(values, edges)


def _read_lengths(columns: Columns, start: int, stop: int) -> pa.Array:
    return _list_array(*read_document_lengths(columns, read_tokens(columns, start, stop)[1], start, stop))


def _list_array(values: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(edges.astype("i4")), pa.array(values))


def _read_column(field: Field, columns: Columns, start: int, stop: int) -> pa.Array:
    return decode_range((field,), columns, start, stop).column(0)
