"""Hash: the ending of a fold that leaves the keys of its rows, to be matched. Next: match.py."""

from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes.folds.fold import Ending
from penstock.prepare.passes.folds.sink import Into, Produced, Sink
from penstock.prepare.rows.rows import Rows
from penstock.prepare.stages.dedup.losers import LOCAL
from penstock.prepare.stages.dedup.runs import ENTRY, KEYS, Array, RunsWriter, hash_texts, repeats, sort_order

_RUN_KEYS = 1 << 18  # 5 MB, and three times that while they are sorted; whole bytes of bits


@dataclass(frozen=True)
class KeysInto(Into):
    number: int  # of the pass
    column: str

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Sink:  # noqa: ARG002
        keys = Keys(store, f"{KEYS}/{self.number}-{number:05d}.keys", self.column, stack)
        return Sink(keys.write, keys.finish)


class Keys:
    """The keys of one slice, in sorted runs; of those that are equal within a run only the first is put down.

    So a text that stands a million times in a slice comes to the match a few times: no bucket is full of one key.
    """

    def __init__(self, store: Store, name: str, column: str, stack: ExitStack) -> None:
        self._column = column
        self._writer = RunsWriter(store, name, stack, ENTRY, lasting=False)
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
        self._writer.file.put(LOCAL, np.concatenate([np.zeros(0, "u1"), *self._repeated]))
        return Produced(spill=self._writer.finish({"rows": self._rows}), lasting=False)


def hash_ending(number: int, stage: int, column: str) -> Ending:
    """The ending of pass `number`: the keys that `stage` compares rows by."""
    into = KeysInto(number, column)
    return Ending("keys", into=into, only={"dedup": column}, for_others=True, word="hashing", shown=(stage,))
