"""Tokens: the ending of a fold whose documents are packed by a later pass. Next: pack.py."""

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
from penstock.prepare.passes import Finished, LedgerRows
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced, Sink
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.part import PLACES, PartWriter
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.text.pack import Pack
from penstock.shards.columns import commit_file
from penstock.shards.packed import SUMMARY, TOKENS
from penstock.shards.schema import Schema, schema_from_arrow

COUNTED = "documents"  # in the states of a ledger row: by split and source, documents and tokens
CONTENT = "content"  # likewise: hashes of the tokens, their counts and kept columns, whatever batches they came in
_BINS = 32  # lengths of documents by powers of two
Counted = dict[str, dict[str, Any]]  # by source


def _count(lengths: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Documents, their tokens, and how many documents have 0, 1, 2 to 3, 4 to 7, ... tokens."""
    bins = np.bincount(np.frexp(lengths)[1], minlength=_BINS)[:_BINS]
    return {"documents": len(lengths), "tokens": int(lengths.sum()), "lengths": bins.tolist()}


def _add(counted: Counted, source: str, more: Mapping[str, Any]) -> None:
    one = counted.get(source) or _count(np.zeros(0))
    lengths = [a + b for a, b in zip(one["lengths"], more["lengths"], strict=True)]
    documents, tokens = one["documents"] + more["documents"], one["tokens"] + more["tokens"]
    counted[source] = {"documents": documents, "tokens": tokens, "lengths": lengths}


@dataclass(frozen=True)
class TokensInto(Into):
    """Writes the documents of a task, by split: their ids, how many each has, and the columns kept beside them."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        name = f"{PARTS}/{number:05d}-of-{self.task_count:05d}"
        writer = PartWriter(store, name, self.schema, self.splits, stack, lasting=False)
        counted: dict[str, Counted] = {split: {} for split in self.splits}
        hashers = {split: [xxhash.xxh3_128() for _ in range(1 + len(self.schema))] for split in self.splits}

        def write(rows: Rows) -> None:
            for number, split in enumerate(self.splits):
                batch = rows.take_split(number)
                if batch.num_rows:
                    writer.write(split, batch)
                    lists = batch.column(TOKENS)
                    lengths = np.diff(np.asarray(lists.offsets))
                    _add(counted[split], str(rows.source), _count(lengths))
                    hashed = [np.asarray(lists.flatten()), lengths, *map(_numbers, batch.columns[1:])]
                    for hasher, numbers in zip(hashers[split], hashed, strict=True):
                        hasher.update(np.ascontiguousarray(numbers).data)

        def finish() -> Produced:
            content = {split: [hasher.hexdigest() for hasher in own] for split, own in hashers.items()}
            states = {COUNTED: counted, CONTENT: content}
            return Produced(spill=writer.finish({}), states=states, lasting=False)

        return Sink(write, finish)


@dataclass(frozen=True)
class TokensEnding(Ending):
    def finish(self, rows: LedgerRows, store: Store) -> Finished:
        """Summary of the documents by length."""
        summary = json.dumps(_summary(rows), indent=1).encode() + b"\n"
        return Finished(summaries=(commit_file(store, SUMMARY, summary),))


def _summary(rows: LedgerRows) -> dict[str, Any]:
    """By split and source: documents, tokens, and how many documents have up to 0, 1, 3, 7, ... tokens."""
    splits: dict[str, Counted] = {}
    for row in rows:
        for split, sources in row.states[COUNTED].items():
            found = splits.setdefault(split, {})
            for source, counted in sources.items():
                _add(found, source, counted)
    return {split: dict(sorted(sources.items(), key=lambda each: int(each[0]))) for split, sources in splits.items()}


def _numbers(column: pa.Array) -> np.ndarray[Any, Any]:
    """Values of a kept column."""
    flat = column.flatten() if pa.types.is_list(column.type) else column
    found: np.ndarray[Any, Any] = flat.to_numpy(zero_copy_only=False)
    return found


def tokens_ending(job: Job) -> Ending:
    """The ending, before a last stage that packs."""
    pack = job.stages[-1]
    assert isinstance(pack, Pack)
    columns = pack.document_columns(job.survey.given[-1])
    schema = schema_from_arrow(pa.schema([(each.name, each.stored) for each in columns]), "the tokens")
    into = TokensInto(job.survey.stored(schema), job.splits, len(job.survey.slices))
    hidden = (len(job.stages) - 1,)
    return TokensEnding("tokens", into=into, is_for_good=True, for_others=True, places=PLACES, hidden=hidden)
