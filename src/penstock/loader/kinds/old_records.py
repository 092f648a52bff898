"""Old records: batches from .arrayrecord files, through pyarrow. It works; prepared columns are many times faster.

The records that a batch draws are read and decoded, laid out as columns, and encoded as events.py does.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.loader.kind import Array, token_layout
from penstock.loader.kinds.events import describe, draws_needed, note, refuse_contexts
from penstock.loader.order.order import Draws, Fill, Stream, contexts_of
from penstock.loader.tables import Made, Shard, Tables
from penstock.loader.tokens.binding import bind
from penstock.loader.tokens.encoder import EventEncoder
from penstock.loader.tokens.vocabulary import Vocabulary
from penstock.shards.columns import Column
from penstock.shards.dataset import ArrayRecordDataset
from penstock.shards.record import encoders
from penstock.shards.schema import Schema, schema_from_arrow

_NO_CHECKSUMS = np.empty(0, "u8")  # ArrayRecord has its own, and its reader checks them


class OldEvents:
    """Rows of tokens of .arrayrecord files; a shard is a file."""

    name, unit = "old events", "tokens"

    def __init__(
        self,
        datasets: Sequence[ArrayRecordDataset],
        vocabulary: Vocabulary,
        length: int,
        fill: Fill,
        augment: bool,
        budget: Budget,
    ) -> None:
        self.length = length
        self.layout = token_layout(length)
        self.tables = Tables((), ())
        self._fill, self._augment = fill, augment
        self._files = [(dataset, file) for dataset in datasets for file in range(len(dataset.counts))]
        self._reading = threading.Lock()  # readers are opened and let go as they are used
        self._schema, _ = self._read([(0, 0)], Made())
        self._refuse_other_columns()
        self._bound = bind(vocabulary, self._schema, datasets[0].paths[0])
        self.vocabulary = self._bound.vocabulary
        self._filled, self._told, self._met_empty = 0, False, False
        if fill == "one_key":
            refuse_contexts([len(dataset) for dataset in datasets], length, self._encode, budget)
        self.streams = tuple(self._make_stream(number, dataset) for number, dataset in enumerate(datasets))

    def _refuse_other_columns(self) -> None:
        """Files are decoded as the first one is: the first record of each tells its columns."""
        for number, (dataset, file) in enumerate(self._files):
            if not dataset.counts[file]:
                continue
            schema, _ = self._read([(number, 0)], Made())
            if schema != self._schema:
                first = self._files[0][0].paths[0]
                raise ConfigError(
                    f"{dataset.paths[file]} and {first} cannot be mixed: their columns differ",
                    where=f"{_columns(self._schema)} against {_columns(schema)}",
                    next_step="load files of the same columns together, the others apart",
                )

    def _make_stream(self, number: int, dataset: ArrayRecordDataset) -> Stream:
        before = next(place for place, (each, _) in enumerate(self._files) if each is dataset)
        if self._fill == "packed":
            facts = (number, before, dataset.counts, self.length)
            # Of the records that were read: to read them all takes too long.
            return Stream(dataset.counts, draws_needed(*facts, self._encode, has_empty=lambda: self._met_empty))
        contexts, start = np.empty(len(dataset), "u1"), 0
        for batch in dataset.batches(256):
            contexts[start : start + len(batch)] = contexts_of(batch.column("n_measurements").to_numpy())
            start += len(batch)
        return Stream(dataset.counts, contexts=contexts)

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = Made()
        self._filled += 1
        return note(made, draws, out, *self._encode(draws, out, made))

    def describe(self) -> dict[str, Any]:
        return describe(self._bound, self.length, self._fill, self._augment, self.streams)

    def _encode(self, draws: Draws, out: Mapping[str, Array], made: Made) -> tuple[Array, Array]:
        started, cpu = time.perf_counter(), time.thread_time()
        pairs = np.stack([draws.shards.reshape(-1).astype("i8"), draws.records.reshape(-1)], axis=1)
        distinct, places = np.unique(pairs, axis=0, return_inverse=True)
        wanted = [(int(file), int(record)) for file, record in distinct if file >= 0]
        if not wanted:
            wanted = [(0, 0)]
        _, shard = self._read(wanted, made)
        self._met_empty = self._met_empty or not np.diff(shard[self._bound.offsets].array).all()
        missing = int(np.count_nonzero(distinct[:, 0] < 0))  # they come first
        places = places.reshape(draws.shards.shape) - missing
        local = Draws(np.where(places < 0, -1, 0).astype("i4"), np.maximum(places, 0), draws.keys)
        read = time.perf_counter()
        # What is decoded holds the interpreter's lock, or the readers': threads do it one after the other.
        made.alone_seconds = made.read_seconds + time.thread_time() - cpu
        encoder = EventEncoder([shard], self._schema, self._bound, self.length, self._fill, self._augment)
        encoded = encoder.encode(local, out, made)
        self._tell(read - started, time.perf_counter() - read)
        return encoded

    def _read(self, wanted: Sequence[tuple[int, int]], noted: Made) -> tuple[Schema, Shard]:
        """Records (file, number), in order, as the columns of a shard. Decoding computes: only the rest is waiting."""
        columns: dict[str, list[Array]] = {}
        schema: Schema = ()
        made: list[Any] = []
        for file in dict.fromkeys(file for file, _ in wanted):
            dataset, own = self._files[file]
            with self._reading:
                started, cpu = time.perf_counter(), time.thread_time()
                batch = dataset.records(own, [record for each, record in wanted if each == file])
                seconds, computing = time.perf_counter() - started, time.thread_time() - cpu
            noted.read_seconds += max(0.0, seconds - computing)
            if not made:
                schema = schema_from_arrow(batch.schema, dataset.paths[own])
                made = encoders(schema)
                for encoder in made:
                    _lay_down(columns, encoder.start())
            for encoder, array in zip(made, batch.columns, strict=True):
                _lay_down(columns, encoder.encode(array))
        for encoder in made:
            _lay_down(columns, encoder.finish())
        path = self._files[wanted[0][0]][0].paths[0]
        arrays = {name: np.concatenate(pieces) for name, pieces in columns.items()}
        return schema, {name: Column(path, name, array, _NO_CHECKSUMS) for name, array in arrays.items()}

    def _tell(self, read: float, encoded: float) -> None:
        """Once, with the numbers of this very batch: not of the first alone, which also loads the kernels."""
        with self._reading:
            if self._filled < 2 or self._told:
                return
            self._told = True
        warnings.warn(
            f"batches are read from .arrayrecord files: {read * 1000:,.0f} ms to read and decode the records of "
            f"one, by one thread at a time, {encoded * 1000:,.1f} ms to encode them. `penstock run` "
            "saves at least the first: prepare the events as columns, without --format arrayrecord (docs/events.md)",
            UserWarning,
            stacklevel=2,
        )


def _columns(schema: Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def _lay_down(columns: dict[str, list[Array]], pieces: Any) -> None:
    for name, piece in pieces:
        columns.setdefault(name, []).append(piece)
