"""Tokens: the ending of a fold whose documents are packed by a later pass. Next: pack.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import xxhash

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Finished
from penstock.prepare.passes import Rows as LedgerRows
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.part import PLACES, PartWriter
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.pack import Pack, narrowed
from penstock.shards.columns import commit_file
from penstock.shards.packed import SUMMARY, TOKENS
from penstock.shards.schema import Schema, schema_from_arrow

COUNTED = "documents"  # in the states of a ledger row: by split and source, documents and tokens
CONTENT = "content"  # likewise: hashes of the tokens and of their counts, whatever batches they came in
_BINS = 32  # lengths of documents by powers of two


class Counted:
    """Documents, their tokens, and how many documents have 0, 1, 2 to 3, 4 to 7, ... tokens."""

    def __init__(self) -> None:
        self.documents, self.tokens, self.lengths = 0, 0, [0] * _BINS

    def add(self, lengths: np.ndarray[Any, Any]) -> None:
        self.documents += len(lengths)
        self.tokens += int(lengths.sum())
        bins = np.bincount(np.frexp(lengths)[1], minlength=_BINS)[:_BINS]
        self.lengths = (np.array(self.lengths) + bins).tolist()

    def merge(self, other: Mapping[str, Any]) -> None:
        self.documents += other["documents"]
        self.tokens += other["tokens"]
        self.lengths = (np.array(self.lengths) + np.array(other["lengths"])).tolist()


@dataclass(frozen=True)
class TokensInto(Into):
    """Writes the tokens of a task's documents."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Tokens:  # noqa: ARG002
        return Tokens(store, self, number, stack)


class Tokens:
    """The documents of one slice, by split: their ids, and how many each has."""

    def __init__(self, store: Store, into: TokensInto, number: int, stack: ExitStack) -> None:
        name = f"{PARTS}/{number:05d}-of-{into.task_count:05d}"
        self._splits = into.splits
        self._writer = PartWriter(store, name, into.schema, into.splits, stack, lasting=False)
        self._counted: dict[str, dict[str, Counted]] = {split: {} for split in into.splits}
        self._content = {split: (xxhash.xxh3_128(), xxhash.xxh3_128()) for split in into.splits}

    def write(self, rows: Rows) -> None:
        for number, split in enumerate(self._splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self._writer.write(split, batch)
                lists = batch.column(TOKENS)
                lengths = np.diff(np.asarray(lists.offsets))
                self._counted[split].setdefault(str(rows.source), Counted()).add(lengths)
                for hasher, numbers in zip(self._content[split], (np.asarray(lists.flatten()), lengths), strict=True):
                    hasher.update(np.ascontiguousarray(numbers).data)

    def finish(self) -> Produced:
        counted = {split: {source: vars(each) for source, each in of.items()} for split, of in self._counted.items()}
        content = {split: [hasher.hexdigest() for hasher in both] for split, both in self._content.items()}
        states = {COUNTED: counted, CONTENT: content}
        return Produced(spill=self._writer.finish({}), states=states, lasting=False)


@dataclass(frozen=True)
class TokensEnding(Ending):
    def finish(self, rows: LedgerRows, store: Store) -> Finished:
        """Summary of the documents by length."""
        summary = json.dumps(_summary(rows), indent=1).encode() + b"\n"
        return Finished(summaries=(commit_file(store, SUMMARY, summary),))


def _summary(rows: LedgerRows) -> dict[str, Any]:
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


def tokens_ending(job: Job) -> Ending | None:
    if not (job.stages and isinstance(job.stages[-1], Pack)):
        return None
    ids = narrowed(job.survey.given[-1].field(TOKENS).type.value_type)
    schema = schema_from_arrow(pa.schema([(TOKENS, pa.list_(ids))]), "the tokens")
    into = TokensInto(schema, job.splits, len(job.survey.slices))
    hidden = (len(job.stages) - 1,)
    return TokensEnding("tokens", into=into, is_for_good=True, for_others=True, places=PLACES, hidden=hidden)
