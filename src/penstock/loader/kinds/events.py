"""Events: grouped events -> the rows of an epoch, and their tokens (docs/reference/tokens.md). Next: maker.py."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.memory import Budget
from penstock.loader.asked.fitted import with_edges
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, token_layout
from penstock.loader.kinds.sizing import count_contexts, draws_needed, refuse_contexts
from penstock.loader.order.order import Draws, Fill, Held, Stream
from penstock.loader.tables import Datasets, Made, Shard
from penstock.loader.tokens.binding import Encoding, TokenOptions, fits_pings, suggested_fields
from penstock.loader.tokens.encoder import EventEncoder
from penstock.loader.tokens.vocabulary import PINGS, Vocabulary, make_vocabulary
from penstock.shards.schema import Schema

_RECORDS_AT_ONCE = 1 << 16


class Events:
    """Rows of tokens."""

    name, unit = "events", "tokens"

    def __init__(
        self, datasets: Datasets, schema: Schema, encoding: Encoding, budget: Budget, larger_than_memory: bool = False
    ) -> None:
        self._encoding, self.vocabulary = encoding, encoding.vocabulary
        self.layout = token_layout(encoding.length)
        self._shards = [shard for dataset in datasets for shard in dataset]
        self._encoder = EventEncoder(self._shards, schema, encoding, larger_than_memory)
        self.tables, self.hold = self._encoder.tables, self._encoder.hold
        if encoding.fill == "one_key":
            records = [sum(self._records(dataset)) for dataset in datasets]
            refuse_contexts(records, encoding.length, self._encoder.encode, budget)
        before = np.cumsum([0, *map(len, datasets)]).tolist()
        self.streams = tuple(self._make_stream(i, before[i], dataset) for i, dataset in enumerate(datasets))

    @classmethod
    def of(cls, asked: Asked) -> Events:
        encoding = token_options(asked).bind(asked.schema, asked.where)
        return cls(asked.shards, asked.schema, encoding, asked.budget, asked.larger_than_memory)

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = Made()
        self._encoder.encode(draws, out, made)
        return made

    def holds(self, draws: Draws) -> Held:
        """Records in the order of their segments: those without events give none."""
        kept = draws.shards >= 0
        for row, place in zip(*(each.tolist() for each in np.nonzero(kept)), strict=True):
            offsets, record = self._shards[draws.shards[row, place]][self._encoding.offsets], draws.records[row, place]
            first, stop = offsets.read(record, record + 2).tolist()
            kept[row, place] = stop > first
        order = np.argsort(~kept, axis=1, kind="stable")
        shards = np.take_along_axis(np.where(kept, draws.shards, -1), order, axis=1)
        records = np.take_along_axis(draws.records, order, axis=1)
        return Held(Draws(shards, records, draws.keys), has_segments=True)

    def describe(self) -> dict[str, Any]:
        return self._encoding.describe(self.streams)

    def _make_stream(self, number: int, before: int, dataset: Sequence[Shard]) -> Stream:
        records, length = self._records(dataset), self._encoding.length
        if self._encoding.fill == "one_key":
            return Stream(records, contexts=count_contexts(sum(records), self._event_counts(dataset)))
        empty = [not events.all() for events in self._event_counts(dataset)]
        return Stream(records, draws_needed(number, before, records, length, self._encoder.encode, lambda: any(empty)))

    def _records(self, dataset: Sequence[Shard]) -> tuple[int, ...]:
        """Records of each shard."""
        return tuple(len(shard[self._encoding.offsets]) - 1 for shard in dataset)

    def _event_counts(self, dataset: Sequence[Shard]) -> Iterator[Array]:
        """Events of each record, some records at a time; every list of a record has as many."""
        fields, bound = self._encoding.fields, self._encoding.offsets
        lists = [each.field.column for each in fields if each.of_events]
        lists += [str(each.field.kind.version) for each in fields if each.version_of_events]
        for shard in dataset:
            offsets = shard[bound]
            for start in range(0, len(offsets) - 1, _RECORDS_AT_ONCE):
                stop = min(start + _RECORDS_AT_ONCE + 1, len(offsets))
                edges = offsets.read(start, stop)
                for column in lists:
                    other = shard[f"{column}/offsets"]
                    if not np.array_equal(other.read(start, stop), edges):
                        raise ConfigError(
                            f"column {column!r} has lists of other lengths than those of {bound}",
                            where=other.file,
                            next_step="the fields of an event come from lists of one length: leave one of them out of "
                            "fields=",
                        )
                yield np.diff(edges)


def token_options(asked: Asked) -> TokenOptions:
    """Options for events. Impossible ones are refused."""
    asked.refuse_unused("tokens of events", {"nulls": "columns as they are"})
    length, augment = asked.options["length"], asked.options["augment"]
    if length is None:
        raise ConfigError(
            "load() needs length= for events: the number of tokens per row",
            where="penstock.load",
            next_step="length=1024",
        )
    vocabulary = _vocabulary(asked)
    fill: Fill = asked.options["fill"] or "packed"
    if fill == "packed" and length + 1 < vocabulary.smallest_event:
        raise ConfigError(
            f"no event fits into a row of length={length}: the smallest takes {vocabulary.smallest_event} tokens",
            where="penstock.load",
            next_step="longer rows, or fewer fields",
        )
    return TokenOptions(vocabulary, length, fill, vocabulary == PINGS if augment is None else bool(augment))


def _vocabulary(asked: Asked) -> Vocabulary:
    fields = asked.options["fields"]
    if isinstance(fields, Vocabulary):
        return fields
    if fields is not None and not isinstance(fields, Mapping):
        raise ConfigError(
            f"fields= is a {type(fields).__name__}", where="load(fields=...)", next_step="a dict: fields={'dst': 'ip'}"
        )
    if fields is not None:
        return make_vocabulary(with_edges(fields, asked))
    if not asked.is_old and not fits_pings(asked.schema):
        raise ConfigError(
            "events become tokens, and `fields` must say how each column is encoded. Only pings "
            f"({', '.join(field.column for field in PINGS.fields)}) have a default",
            where=asked.where,
            next_step=f"start with load(..., fields={suggested_fields(asked.schema)}), or --fields of a command; "
            "docs/how-to/own-tokens.md lists the encodings; encode='raw' and `bench --window` need none",
        )
    return PINGS
