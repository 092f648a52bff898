"""Text sinks: where documents end up on their way: their keys, to be matched, or their tokens, to be packed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from penstock.base.files import STATE, Folder
from penstock.base.machine import boot_id
from penstock.prepare.dedup.keys import Array, hash_texts, repeats, sort_order
from penstock.prepare.dedup.losers import LOCAL
from penstock.prepare.dedup.runs import ENTRY, RunsWriter
from penstock.prepare.rows import Rows
from penstock.prepare.sinks import PARTS, Produced, Sink
from penstock.shards.packed import TOKENS
from penstock.shards.part import PartWriter
from penstock.shards.schema import Schema

KEYS = f"{STATE}/keys"
_RUN_KEYS = 1 << 18  # 5 MB, and three times that while they are sorted; whole bytes of bits
COUNTED = "documents"  # in the states of a ledger row: by split and source, documents and tokens
CONTENT = "content"  # likewise: hashes of the tokens and of their counts, whatever batches they came in
_BINS = 32  # lengths of documents by powers of two


@dataclass(frozen=True)
class KeysInto:
    """How to put the keys of a task's documents down."""

    number: int  # of the pass
    column: str

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:  # noqa: ARG002
        return Keys(folder, f"{KEYS}/{self.number}-{number:05d}.keys", self.column, stack)


class Keys:
    """The keys of one slice, in sorted runs; of those that are equal within a run only the first is put down.

    So a text that stands a million times in a slice comes to the match a few times: no bucket is full of one key.
    """

    def __init__(self, folder: Folder, name: str, column: str, stack: ExitStack) -> None:
        self._column = column
        self._writer = RunsWriter(folder, name, stack, ENTRY, outlasts=not boot_id())
        self._waiting: list[Array] = []
        self._repeated: list[Array] = []
        self._rows = self._first = 0

    def write(self, rows: Rows) -> None:
        keys = hash_texts(rows.batch.column(rows.batch.schema.get_field_index(self._column)))
        self._waiting.append(keys)
        self._rows += len(keys)
        while self._rows - self._first >= _RUN_KEYS:
            self._put_run(_RUN_KEYS)

    def _put_run(self, count: int) -> None:
        """The first `count` keys that wait: as many in every run, whatever batches they came in."""
        waiting = np.concatenate(self._waiting)
        keys, self._waiting = waiting[:count], [waiting[count:]]
        order = sort_order(keys)
        keys = keys[order]
        repeated = repeats(keys)
        numbers = (self._first + order).astype("u4")
        run = np.empty(int((~repeated).sum()), ENTRY)
        run["high"], run["low"], run["number"] = keys["high"][~repeated], keys["low"][~repeated], numbers[~repeated]
        self._writer.write(run)
        is_repeated = np.zeros(count, bool)
        is_repeated[order[repeated]] = True
        self._repeated.append(np.packbits(is_repeated, bitorder="little"))
        self._first += count

    def finish(self) -> Produced:
        if self._rows > self._first:
            self._put_run(self._rows - self._first)
        self._writer.put(LOCAL, np.concatenate([np.zeros(0, "u1"), *self._repeated]))
        return Produced(spill=self._writer.finish({"rows": self._rows}))


@dataclass(frozen=True)
class TokensInto:
    """How to put the tokens of a task's documents down."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int

    def open(self, folder: Folder, number: int, stack: ExitStack, hold_bytes: int) -> Sink:  # noqa: ARG002
        return Tokens(folder, self, number, stack)


class Tokens:
    """The documents of one slice, by split: their ids, and how many each has."""

    def __init__(self, folder: Folder, into: TokensInto, number: int, stack: ExitStack) -> None:
        name = f"{PARTS}/{number:05d}-of-{into.task_count:05d}"
        self._splits = into.splits
        self._writer = PartWriter(folder, name, into.schema, into.splits, stack, outlasts_machine=not boot_id())
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
        return Produced(spill=self._writer.finish({}), states={COUNTED: counted, CONTENT: content})


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
