"""Megatron: rows of tokens -> a folder with SPLIT.bin and SPLIT.idx, in which each document is a sequence of its own.

Megatron packs documents itself, so packed rows are cut into documents again. A document that `pack` cut where a row
ended (`method: wrapped`) is whole: its pieces lie in rows that follow each other. Lengths go to their place in the
index while tokens are written; the places of documents follow from them in a second pass, some at a time.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.base.errors import InputError
from penstock.base.files import PlacedFile
from penstock.base.stores.local import LocalStore
from penstock.shards.dataset import Dataset
from penstock.shards.foreign import export
from penstock.shards.foreign.megatron_index import HEADER_BYTES, LENGTH, PLACE, IndexHeader, encode_header
from penstock.shards.foreign.token_rows import LARGEST, TokenRows, refuse_other_columns, token_rows
from penstock.shards.packed import Array, continues, has_documents, read_document_lengths, token_number

_AT_ONCE = 2**20  # bytes of tokens
_DOCUMENTS_AT_ONCE = 2**17
_SMALL_IDS = ("uint8", "uint16")  # as they are stored; Megatron has 16 or 32 bits for an id


def export_megatron(path: str, target: str, split: str | None = None, overwrite: bool = False) -> export.Exported:
    """Write the documents of all splits, or of one, into a folder that appears whole or not at all."""
    splits = export.open_splits(path, split, "megatron")
    refuse_other_columns(splits, path, "Megatron")
    export.refuse_target(path, target, overwrite)
    with export.written_beside(target) as store:
        written = {name: _write_split(store, dataset) for name, dataset in splits.items()}
        return export.finish(store, path, "megatron", written)


def _write_split(store: LocalStore, dataset: Dataset) -> export.Written:
    written = export.Written(tokens=0, files=2)
    dtype = np.dtype("<u2" if token_number(dataset.schema).name in _SMALL_IDS else "<i4")
    with (
        export.new_file(store, f"{dataset.split}.bin") as tokens,
        closing(store.place(f"{dataset.split}.idx", HEADER_BYTES)) as file,
    ):
        index = _Index(file, dtype)
        for rows in token_rows(dataset, _AT_ONCE, written):
            tokens.write(rows.values.astype(dtype, copy=False).tobytes())
            index.add(*_documents(rows, dataset), rows.where)
        index.finish()
    return written


def _documents(rows: TokenRows, dataset: Dataset) -> tuple[Array, Array]:
    """Tokens of each document, or piece of one, in these rows; and whether it goes on from the row before."""
    if not has_documents(dataset.schema):  # a row is a document
        lengths = np.diff(rows.edges)
        return lengths, np.zeros(len(lengths), bool)
    lengths, firsts = read_document_lengths(rows.columns, rows.edges, rows.start, rows.stop)
    goes_on = np.zeros(len(lengths), bool)
    if dataset.manifest.is_one_stream:
        goes_on[firsts[:-1]] = continues(rows.columns, rows.start, rows.stop)
    return lengths, goes_on


@dataclass
class _Index:
    """An .idx file while it is written. The length of the last document waits: the next rows may go on with it."""

    file: PlacedFile
    dtype: np.dtype[Any]
    documents: int = 0  # that are written
    waiting: int | None = None

    def add(self, lengths: Array, goes_on: Array, where: str) -> None:
        if not len(lengths):
            return
        begins = np.flatnonzero(~goes_on)
        if self.waiting is None:  # nothing is there that the first could go on from
            begins = np.union1d(begins, [0])
        else:
            lengths, begins = np.concatenate([[self.waiting], lengths]), np.concatenate([[0], begins + 1])
        whole = np.add.reduceat(lengths, begins)
        if whole.max() > LARGEST:
            raise InputError(
                f"a document has {int(whole.max()):,} tokens, and Megatron's index has room for {LARGEST:,}",
                where=where,
                next_step="cut it into several when the dataset is made",
            )
        self._write(whole[:-1])
        self.waiting = int(whole[-1])

    def _write(self, lengths: Array) -> None:
        self.file.write_at(HEADER_BYTES + LENGTH.itemsize * self.documents, lengths.astype(LENGTH).tobytes())
        self.documents += len(lengths)

    def finish(self) -> None:
        if self.waiting is not None:
            self._write(np.array([self.waiting]))
        header = IndexHeader(self.dtype, self.documents, self.documents + 1)
        self.file.write_at(0, encode_header(header))
        place = 0
        for first in range(0, self.documents, _DOCUMENTS_AT_ONCE):
            count = min(_DOCUMENTS_AT_ONCE, self.documents - first)
            data = self.file.read_at(header.lengths_at + LENGTH.itemsize * first, LENGTH.itemsize * count)
            ends = place + np.cumsum(np.frombuffer(data, LENGTH), dtype=PLACE) * self.dtype.itemsize
            self._write_places(header.pointers_at, first, np.concatenate([[place], ends[:-1]]))
            self._write_places(header.edges_at, first, np.arange(first, first + count))
            place = int(ends[-1])
        self._write_places(header.edges_at, self.documents, np.array([self.documents]))
        self.file.sync()

    def _write_places(self, at: int, first: int, places: Array) -> None:
        self.file.write_at(at + PLACE.itemsize * first, places.astype(PLACE).tobytes())
