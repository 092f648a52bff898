"""Marks: rows as they are read -> the same rows with what is kept of their origins, beside the columns of stages."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.prepare.rows.rows import Array, Rows
from penstock.shards.origins import HASH, ORIGIN, content_hash, encode_origins

PIECE, POSITION = "piece", "position"  # beside rows of a dataset that has origins itself


@dataclass(frozen=True)
class Marks:
    """Notes about every row. `firsts` has the number of the first piece that the dataset of a file brings."""

    hashed: str = ""  # column with the text of the documents, as the input has it
    firsts: Mapping[tuple[int, str], int] = field(default_factory=dict)  # by source and path

    def on(self, rows: Rows) -> Rows:
        """Rows of one file, with their marks."""
        beside = dict(rows.beside)
        if PIECE in beside:
            beside[PIECE] = beside[PIECE] + self.firsts[rows.source, rows.paths[0]]
        if self.hashed and HASH not in beside:
            beside[HASH] = hash_texts(rows.batch.column(self.hashed))
        return replace(rows, beside=beside) if beside else rows


def hash_texts(texts: pa.Array) -> Array:
    """One content hash per text; a null is hashed like an empty text."""
    if pa.types.is_dictionary(texts.type):
        texts = texts.dictionary_decode()
    values = (each.as_buffer() for each in texts.cast(pa.large_binary()))
    return np.array([content_hash(b"" if each is None else each) for each in values], "u8")


def with_origins(rows: Rows, bits: int, columns: tuple[str, ...], per_segment: bool) -> Rows:
    """The rows with the columns of their origins. In a trial nothing is marked: all rows are of the first piece.

    With `per_segment` they are lists. A row that brings no origins of its documents has one, which is its own.
    """
    hashes = rows.beside.get(HASH, np.zeros(len(rows), "u8"))
    origins, offsets = origins_of(rows, bits)
    values = {ORIGIN: origins, HASH: _flat(hashes, "u8")[0]}
    batch = rows.batch
    for name in columns:
        array = pa.array(values[name])
        batch = batch.append_column(name, pa.ListArray.from_arrays(offsets, array) if per_segment else array)
    return rows.with_batch(batch)


def origins_of(rows: Rows, bits: int) -> tuple[Array, pa.Array]:
    """Origins of all rows, one row after the other, and where those of each row begin."""
    files = np.zeros(len(rows), "i8") if rows.files is None else rows.files
    pieces = rows.beside.get(PIECE, np.array(rows.pieces or (0,) * len(rows.paths), "i8")[files])
    flat, offsets = _flat(pieces, "i8")
    return encode_origins(flat, _flat(rows.beside.get(POSITION, rows.ordinals), "i8")[0], bits), offsets


def _flat(values: Array, dtype: str) -> tuple[Array, pa.Array]:
    """Values of all rows one behind the other, and where those of each row begin: a row has a number, or an array."""
    counts = [len(each) for each in values] if values.dtype == object else np.ones(len(values), "i4")
    flat = np.concatenate([np.empty(0, dtype), *values]) if values.dtype == object else values
    return flat, pa.array(np.cumsum([0, *counts], dtype="i4"))
