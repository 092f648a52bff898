"""Packed rows: the columns `tokens` and `documents` of a dataset -> numpy: tokens, and how long each document is."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.shards.columns import Column
from penstock.shards.schema import NUMBERS, Schema, Type

TOKENS, DOCUMENTS = "tokens", "documents"
TAIL = "tail"  # tokens at the end of a split, which fill no row
RESERVED = ("position", "segmentation")  # no kept column: batches have `inputs_position` and so on of their own
SUMMARY, TOKENIZER = "artifacts/text.json", "artifacts/tokenizer.json"  # which datasets of text hold
TOKEN_TYPES = ("uint16", "int32", "uint8", "int16", "int8")  # batches are int32: a wider one would wrap around
Array = np.ndarray[Any, Any]
Columns = Mapping[str, Column]


def has_tokens(schema: Schema) -> bool:
    """Whether `tokens` is a list of whole numbers, of one length or of any."""
    kind = _types(schema).get(TOKENS)
    return bool(kind and (kind.is_list or kind.is_fixed_list) and kind.inner and _is_whole(kind.inner))


def has_documents(schema: Schema) -> bool:
    """Whether `documents` can say where in a row of `tokens` each document begins."""
    kind = _types(schema).get(DOCUMENTS)
    return bool(has_tokens(schema) and kind and kind.is_list and kind.inner and _is_whole(kind.inner))


def token_number(schema: Schema) -> np.dtype[Any]:
    inner = _types(schema)[TOKENS].inner
    assert inner
    return np.dtype(NUMBERS[inner.name])


def _types(schema: Schema) -> dict[str, Type]:
    return {field.name: field.parsed for field in schema}


def _is_whole(kind: Type) -> bool:
    return kind.name.startswith(("int", "uint"))


def refuse_null_tokens(columns: Columns) -> None:
    for name in (f"{TOKENS}/valid", f"{TOKENS}/values/valid"):
        if name in columns:
            raise ConfigError(
                f"column {TOKENS!r} has nulls, and a row of tokens cannot hold them",
                where=columns[name].file,
                next_step="filter them out or fill them when the dataset is made",
            )


def read_tokens(columns: Columns, start: int, stop: int) -> tuple[Array, Array]:
    """Tokens of these rows, one row behind the other, and where each begins; the last number is where all end."""
    if f"{TOKENS}/offsets" in columns:
        return _read_list(columns, TOKENS, start, stop)
    values = columns[TOKENS].read(start, stop)
    return values.reshape(-1), np.arange(stop - start + 1) * values.shape[1]


def read_document_lengths(columns: Columns, token_edges: Array, start: int, stop: int) -> tuple[Array, Array]:
    """Tokens of each document in these rows, and where the numbers of each row begin.

    As the loader takes them: 0 is understood, a start that is not behind those before it is none, and neither is one
    that is not in the row, nor what follows it.
    """
    starts, edges = _read_list(columns, DOCUMENTS, start, stop)
    rows = np.repeat(np.arange(stop - start), np.diff(edges))
    lengths = np.diff(token_edges)
    places = token_edges[rows] + np.clip(starts.astype("i8"), 0, lengths[rows])
    begins = np.maximum.accumulate(np.maximum(places, token_edges[rows]))
    before = np.concatenate([[-1], begins])[:-1]
    counts = (places > np.maximum(before, token_edges[rows])) & (places < token_edges[rows + 1])
    every = np.unique(np.concatenate([token_edges[:-1][lengths > 0], places[counts]]))
    return np.diff(every, append=token_edges[-1]), np.searchsorted(every, token_edges)


def count_documents(columns: Columns, start: int, stop: int) -> Array:
    """Documents of each of these rows, as the loader takes them: without `documents`, a row is one."""
    if f"{DOCUMENTS}/offsets" not in columns:
        return np.ones(stop - start, "i8")
    if f"{TOKENS}/offsets" in columns:
        edges = columns[f"{TOKENS}/offsets"].read(start, stop + 1)
        edges = edges - edges[0]
    else:
        edges = np.arange(stop - start + 1) * columns[TOKENS].array.shape[1]
    return np.diff(read_document_lengths(columns, edges, start, stop)[1])


def continues(columns: Columns, start: int, stop: int) -> Array:
    """Whether each of these rows begins inside a document that the row before began; none of them is empty."""
    starts, edges = _read_list(columns, DOCUMENTS, start, stop)
    found = np.ones(stop - start, bool)
    some = np.flatnonzero(np.diff(edges))
    found[some] = starts[edges[some]] > 0
    return found


def _read_list(columns: Columns, name: str, start: int, stop: int) -> tuple[Array, Array]:
    edges = columns[f"{name}/offsets"].read(start, stop + 1)
    return columns[f"{name}/values"].read(int(edges[0]), int(edges[-1])), edges - edges[0]
