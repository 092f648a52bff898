"""Counted: documents and tokens that tasks have written, by split and source, in the states of their ledger rows."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.passes import Rows
from penstock.shards.columns import FileFacts, commit_file
from penstock.shards.packed import SUMMARY

Array = np.ndarray[Any, Any]
COUNTED = "documents"  # in the states of a ledger row: by split and source, documents and tokens
CONTENT = "content"  # likewise: hashes of the tokens and of their counts, whatever batches they came in
_BINS = 32  # lengths of documents by powers of two


class Counted:
    """Documents, their tokens, and how many documents have 0, 1, 2 to 3, 4 to 7, ... tokens."""

    def __init__(self, documents: int = 0, tokens: int = 0, lengths: list[int] | None = None) -> None:
        self.documents, self.tokens, self.lengths = documents, tokens, lengths or [0] * _BINS

    def add(self, lengths: Array) -> None:
        self.documents += len(lengths)
        self.tokens += int(lengths.sum())
        bins = np.bincount(np.frexp(lengths)[1], minlength=_BINS)[:_BINS]
        self.lengths = (np.array(self.lengths) + bins).tolist()

    def merge(self, other: Mapping[str, Any]) -> None:
        self.documents += other["documents"]
        self.tokens += other["tokens"]
        self.lengths = (np.array(self.lengths) + np.array(other["lengths"])).tolist()


def commit_summary(store: Store, rows: Rows) -> FileFacts:
    return commit_file(store, SUMMARY, json.dumps(_summary(rows), indent=1).encode() + b"\n")


def _summary(rows: Rows) -> dict[str, Any]:
    """By split and source: documents, tokens, and how many documents have up to 0, 1, 3, 7, ... tokens."""
    splits: dict[str, dict[str, Counted]] = {}
    for row in rows:
        for split, sources in row.states[COUNTED].items():
            found = splits.setdefault(split, {})
            for source, counted in sources.items():
                found.setdefault(source, Counted()).merge(counted)
    return {
        split: {source: vars(counted) for source, counted in sorted(sources.items(), key=lambda each: int(each[0]))}
        for split, sources in splits.items()
    }
