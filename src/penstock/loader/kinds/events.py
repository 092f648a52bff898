"""Events: grouped events -> the rows of an epoch, and each row's tokens. docs/tokens.md says which. Next: loader.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.loader.engine import compiled
from penstock.loader.kind import TOKEN_ARRAYS, Array, token_layout
from penstock.loader.order.counter import SIZING, key, permute
from penstock.loader.order.order import Draws, Fill, Stream, contexts_of, empty_draws
from penstock.loader.tables import Made, Shard
from penstock.loader.tokens.binding import Bound
from penstock.loader.tokens.counts import COUNTED
from penstock.loader.tokens.encoder import EventEncoder
from penstock.shards.schema import Schema

Encode = Callable[[Draws, Mapping[str, Array], Made], tuple[Array, Array]]
_SIZING_ROWS, _SIZING_RANK, _SIZING_DRAWS = 128, 118, 1024  # more draws: fuller rows, fewer records an epoch
_ROWS_AT_ONCE = 16  # of them: long rows, and the records of .arrayrecord files, are held together
_RECORDS_AT_ONCE = 1 << 16


class Events:
    """Rows of tokens. `datasets` are the shards of each dataset."""

    name, unit = "events", "tokens"

    def __init__(
        self,
        datasets: Sequence[Sequence[Shard]],
        schema: Schema,
        bound: Bound,
        length: int,
        fill: Fill,
        augment: bool,
        budget: Budget,
        larger_than_memory: bool = False,
    ) -> None:
        self.length = length
        self.layout = token_layout(length)
        self._bound, self._fill, self._augment, self.vocabulary = bound, fill, augment, bound.vocabulary
        shards = [shard for dataset in datasets for shard in dataset]
        self._encoder = EventEncoder(shards, schema, bound, length, fill, augment, larger_than_memory)
        self.tables = self._encoder.tables
        if fill == "one_key":
            records = [sum(record_counts(dataset, bound)) for dataset in datasets]
            refuse_contexts(records, length, self._encoder.encode, budget)
        self.streams = self._make_streams(datasets)

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = Made()
        return note(made, draws, out, *self._encoder.encode(draws, out, made))

    def describe(self) -> dict[str, Any]:
        return describe(self._bound, self.length, self._fill, self._augment, self.streams)

    def hold(self, room: int) -> int:
        """Hold what rows are made faster with, in at most `room` bytes; how many that took."""
        return self._encoder.hold(room)

    # How many records a row draws.

    def _make_streams(self, datasets: Sequence[Sequence[Shard]]) -> tuple[Stream, ...]:
        streams, before = [], 0
        for number, dataset in enumerate(datasets):
            packed = self._fill == "packed"
            streams.append(self._packed_stream(number, before, dataset) if packed else self._one_key_stream(dataset))
            before += len(dataset)
        return tuple(streams)

    def _packed_stream(self, number: int, before: int, dataset: Sequence[Shard]) -> Stream:
        has_empty = False
        for shard in dataset:
            for events in _event_counts(shard, self._bound):
                has_empty = has_empty or not events.all()
        records, encode = record_counts(dataset, self._bound), self._encoder.encode
        draws = draws_needed(number, before, records, self.length, encode, lambda: has_empty)
        return Stream(records, draws=draws)

    def _one_key_stream(self, dataset: Sequence[Shard]) -> Stream:
        records = record_counts(dataset, self._bound)
        contexts, start = np.empty(sum(records), "u1"), 0
        for shard in dataset:
            for events in _event_counts(shard, self._bound):
                contexts[start : start + len(events)] = contexts_of(events)
                start += len(events)
        return Stream(records, contexts=contexts)


def refuse_contexts(records: Sequence[int], length: int, encode: Encode, budget: Budget) -> None:
    """Refuse more records than memory has room for: with one_key, a byte of each says how many contexts it gives.

    A mix has the bytes of all its datasets in one array beside. A row of nothing is encoded first, to load the kernels:
    what they take is in use.
    """
    encode(empty_draws(1, 1), {name: np.zeros((1, length), "i4") for name in TOKEN_ARRAYS}, Made())
    needed, used = sum(records) * (1 if len(records) == 1 else 2), own_memory().counted
    if used + needed > budget.allowed:
        raise PlanError(
            f"fill='one_key' needs {format_size(needed)} for {sum(records):,} records; memory: {budget} leaves "
            f"{format_size(max(0, budget.allowed - used))} after {format_size(used)} in use",
            where="penstock.load",
            next_step=f"memory='{math.ceil(1.1 * (used + needed) / 10**6)}MB' or more, or fill='packed'",
        )


def record_counts(dataset: Sequence[Shard], bound: Bound) -> tuple[int, ...]:
    """Records of each shard."""
    return tuple(len(shard[bound.offsets]) - 1 for shard in dataset)


def _event_counts(shard: Shard, bound: Bound) -> Iterator[Array]:
    """How many events each record has, some records at a time; every list of a record has as many."""
    offsets = shard[bound.offsets]
    lists = [each.field.column for each in bound.fields if each.of_events]
    lists += [str(each.field.version) for each in bound.fields if each.version_of_events]
    others = {column: shard[f"{column}/offsets"] for column in lists}
    for start in range(0, len(offsets) - 1, _RECORDS_AT_ONCE):
        stop = min(start + _RECORDS_AT_ONCE + 1, len(offsets))
        edges = offsets.read(start, stop)
        for column, other in others.items():
            if not np.array_equal(other.read(start, stop), edges):
                raise ConfigError(
                    f"column {column!r} has lists of other lengths than those of {bound.offsets}",
                    where=other.file,
                    next_step="the fields of an event come from lists of one length: leave one of them out of fields=",
                )
        yield np.diff(edges)


def _sizing_draws(number: int, before: int, records: tuple[int, ...], most: int, few: int) -> Draws:
    draws, total, starts = empty_draws(_SIZING_ROWS, few), sum(records), np.cumsum([0, *records], dtype="i8")
    if compiled():
        from penstock.loader.compiled.order import draw_sizing

        draw_sizing(number, before, starts, most, draws.shards, draws.records, draws.keys)
        return draws
    order_key = key(0, SIZING, number)
    for row in range(_SIZING_ROWS):
        draws.keys[row] = key(0, SIZING, number, row)
        for j in range(few):
            spot = permute((row * most + j) % total, total, order_key)
            shard = int(np.searchsorted(starts, spot, side="right")) - 1
            draws.shards[row, j], draws.records[row, j] = before + shard, spot - int(starts[shard])
    return draws


def draws_needed(
    number: int, before: int, records: tuple[int, ...], length: int, encode: Encode, has_empty: Callable[[], bool]
) -> int:
    """S of docs/tokens.md: so many draws fill nearly every row.

    Few are tried first: a row that does not use them all is full, unless there are records that it can use nothing of.
    `has_empty` says whether there are, at least among those that `encode` was given so far.
    """
    most = min(sum(records), _SIZING_DRAWS)
    few = most if has_empty() else min(16, most)
    out = {name: np.zeros((_ROWS_AT_ONCE, length), "i4") for name in TOKEN_ARRAYS}
    while True:
        draws = _sizing_draws(number, before, records, most, few)
        used = [encode(rows, out, Made())[1] for rows in _cut(draws, _ROWS_AT_ONCE)]
        needed = int(np.sort(np.concatenate(used))[_SIZING_RANK - 1])
        if has_empty() and few < most:
            few = most
        elif not needed:
            raise ConfigError(
                f"rows of {length + 1} tokens hold no event of this dataset, but for one row in ten",
                where="load(length=...)",
                next_step="a larger length, fewer fields, or fill='one_key', which cuts events",
            )
        elif needed < few or few == most:
            return needed
        else:
            few = min(2 * few, most)


def _cut(draws: Draws, rows: int) -> Iterator[Draws]:
    """Yield the draws of some rows at a time."""
    for first in range(0, len(draws.keys), rows):
        own = slice(first, first + rows)
        yield Draws(draws.shards[own], draws.records[own], draws.keys[own])


def note(made: Made, draws: Draws, out: Mapping[str, Array], counts: Array, used: Array) -> Made:
    """What filling the rows came to."""
    made.rows, made.room = out["inputs"].shape[0], out["inputs"].size
    made.tokens = int(np.count_nonzero(out["targets_segmentation"]))
    made.filled = int(np.count_nonzero(out["inputs_segmentation"]))
    made.draws = int(np.count_nonzero(draws.shards >= 0))
    made.draws_used = int(used.sum())
    made.counts = dict(zip(COUNTED, counts.tolist(), strict=True))
    return made


def describe(bound: Bound, length: int, fill: Fill, augment: bool, streams: tuple[Stream, ...]) -> dict[str, Any]:
    """What of it decides the rows, for the recipe."""
    draws, vocabulary = [stream.draws for stream in streams], asdict(bound.vocabulary)
    return {"length": length, "fill": fill, "augment": augment, "draws": draws, "vocabulary": vocabulary}
