"""Old records: batches from .arrayrecord files, through pyarrow. It works; prepared columns are many times faster."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.memory import Budget
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, token_layout
from penstock.loader.kinds.events import token_options
from penstock.loader.kinds.old_reader import OldReader
from penstock.loader.kinds.sizing import count_contexts, draws_needed, refuse_contexts
from penstock.loader.order.order import Draws, Held, Stream
from penstock.loader.tables import Made, Tables
from penstock.loader.tokens.binding import TokenOptions
from penstock.loader.tokens.encoder import EventEncoder
from penstock.shards.dataset import ArrayRecordDataset


class OldEvents:
    """Rows of tokens of .arrayrecord files: what a batch draws is laid out as columns first. A shard is a file."""

    name, unit = "old events", "tokens"

    def __init__(self, datasets: Sequence[ArrayRecordDataset], options: TokenOptions, budget: Budget) -> None:
        self.layout = token_layout(options.length)
        self.tables = Tables((), ())
        self._reader = OldReader(datasets)
        self._encoding = options.bind(self._reader.schema, datasets[0].paths[0])
        self.vocabulary = self._encoding.vocabulary
        self._filled, self._met_empty = 0, False
        self._told, self._telling = False, threading.Lock()
        if options.fill == "one_key":
            refuse_contexts([len(dataset) for dataset in datasets], options.length, self._encode, budget)
        before = np.cumsum([0, *(len(dataset.counts) for dataset in datasets)]).tolist()
        self.streams = tuple(self._make_stream(i, before[i], dataset) for i, dataset in enumerate(datasets))

    @classmethod
    def of(cls, asked: Asked) -> OldEvents:
        options = token_options(asked)
        asked.refuse_unused("events of .arrayrecord files", {"columns": "arrays"})
        return cls([each.old for each in asked.opened if each.old], options, asked.budget)

    def _make_stream(self, number: int, before: int, dataset: ArrayRecordDataset) -> Stream:
        if self._encoding.fill == "packed":
            facts = (number, before, dataset.counts, self._encoding.length)
            # Of the records that were read: to read them all takes too long.
            return Stream(dataset.counts, draws_needed(*facts, self._encode, has_empty=lambda: self._met_empty))
        events = (batch.column("n_measurements").to_numpy() for batch in dataset.batches(256))
        return Stream(dataset.counts, contexts=count_contexts(len(dataset), events))

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = Made()
        self._filled += 1
        self._encode(draws, out, made)
        return made

    def holds(self, draws: Draws) -> Held:
        return Held(draws, has_segments=True)

    def describe(self) -> dict[str, Any]:
        return self._encoding.describe(self.streams)

    def hold(self, room: int) -> None:
        """Records are read anew for each batch."""

    def _encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> Array:
        started, cpu = time.perf_counter(), time.thread_time()
        pairs = np.stack([draws.shards.reshape(-1).astype("i8"), draws.records.reshape(-1)], axis=1)
        distinct, places = np.unique(pairs, axis=0, return_inverse=True)
        wanted = [(int(file), int(record)) for file, record in distinct if file >= 0]
        _, shard = self._reader.read(wanted or [(0, 0)], made)
        self._met_empty = self._met_empty or not np.diff(shard[self._encoding.offsets].array).all()
        missing = int(np.count_nonzero(distinct[:, 0] < 0))  # they come first
        places = places.reshape(draws.shards.shape) - missing
        local = Draws(np.where(places < 0, -1, 0).astype("i4"), np.maximum(places, 0), draws.keys)
        read = time.perf_counter()
        # What is decoded holds the interpreter's lock, or the readers': threads do it one after the other.
        made.alone_seconds = made.read_seconds + time.thread_time() - cpu
        used = EventEncoder([shard], self._reader.schema, self._encoding).encode(local, out, made)
        self._tell(read - started, time.perf_counter() - read)
        return used

    def _tell(self, read: float, encoded: float) -> None:
        """Log the cost once, with the numbers of this batch. Not of the first: that one also loads the kernels."""
        with self._telling:
            if self._filled < 2 or self._told:
                return
            self._told = True
        warnings.warn(
            f"batches are read from .arrayrecord files: {read * 1000:,.0f} ms to read and decode the records of "
            f"one, by one thread at a time, {encoded * 1000:,.1f} ms to encode them. `penstock run` "
            "saves at least the first: prepare the events as columns, without --format arrayrecord "
            "(docs/reference/events.md)",
            UserWarning,
            stacklevel=2,
        )
