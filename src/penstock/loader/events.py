"""Events: grouped events -> the rows of an epoch, and each row's tokens. docs/tokens.md says which. Next: loader.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.binding import Bound
from penstock.loader.counter import SIZING, key, permute
from penstock.loader.counts import COUNTED
from penstock.loader.encoder import EventEncoder
from penstock.loader.engine import compiled
from penstock.loader.kind import TOKEN_ARRAYS, Array, token_layout
from penstock.loader.order import Draws, Fill, Stream, contexts_of, empty_draws
from penstock.loader.tables import Made, Shard
from penstock.shards.schema import Schema

Encode = Callable[[Draws, Mapping[str, Array], Made], tuple[Array, Array]]
_SIZING_ROWS, _SIZING_RANK, _SIZING_DRAWS = 128, 118, 1024  # more draws: fuller rows, fewer records an epoch


class Events:
    """Rows of tokens. `datasets` are the shards of each dataset; `room` bytes may be used to hold parsed addresses."""

    name, unit = "events", "tokens"

    def __init__(
        self,
        datasets: Sequence[Sequence[Shard]],
        schema: Schema,
        bound: Bound,
        length: int,
        fill: Fill,
        room: int,
        larger_than_memory: bool = False,
    ) -> None:
        self.length = length
        self.layout = token_layout(length)
        self._bound, self._fill, self.vocabulary = bound, fill, bound.vocabulary
        shards = [shard for dataset in datasets for shard in dataset]
        self._encoder = EventEncoder(shards, schema, bound, length, fill, room, larger_than_memory)
        self.tables = self._encoder.tables
        self.streams = self._make_streams(datasets)

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = Made()
        return note(made, draws, out, *self._encoder.encode(draws, out, made))

    def describe(self) -> dict[str, Any]:
        return describe(self._bound, self.length, self._fill, self.streams)

    # How many records a row draws.

    def _make_streams(self, datasets: Sequence[Sequence[Shard]]) -> tuple[Stream, ...]:
        streams, before = [], 0
        for number, dataset in enumerate(datasets):
            packed = self._fill == "packed"
            streams.append(self._packed_stream(number, before, dataset) if packed else self._one_key_stream(dataset))
            before += len(dataset)
        return tuple(streams)

    def _packed_stream(self, number: int, before: int, dataset: Sequence[Shard]) -> Stream:
        records, has_empty = [], False
        for shard in dataset:  # of one at a time: 8 bytes a record
            events = _events_of_records(shard, self._bound)
            records.append(len(events))
            has_empty = has_empty or not events.all()
        encode = self._encoder.encode
        draws = draws_needed(number, before, tuple(records), self.length, encode, lambda: has_empty)
        return Stream(tuple(records), draws=draws)

    def _one_key_stream(self, dataset: Sequence[Shard]) -> Stream:
        contexts = [contexts_of(_events_of_records(shard, self._bound)) for shard in dataset]
        return Stream(tuple(map(len, contexts)), contexts=np.concatenate(contexts))


def _events_of_records(shard: Shard, bound: Bound) -> Array:
    """How many events each record has; every list of a record has as many."""
    offsets = shard[bound.offsets].read(0, len(shard[bound.offsets]))
    lists = [each.field.column for each in bound.fields if each.of_events]
    lists += [str(each.field.version) for each in bound.fields if each.version_of_events]
    for column in dict.fromkeys(lists):
        other = shard[f"{column}/offsets"]
        if not np.array_equal(other.read(0, len(other)), offsets):
            raise ConfigError(
                f"column {column!r} has lists of other lengths than those of {bound.offsets}",
                where=other.file,
                next_step="the fields of an event come from lists of one length: leave one of them out of fields=",
            )
    return np.diff(offsets)


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
    out = {name: np.zeros((_SIZING_ROWS, length), "i4") for name in TOKEN_ARRAYS}
    while True:
        draws = _sizing_draws(number, before, records, most, few)
        needed = int(np.sort(encode(draws, out, Made())[1])[_SIZING_RANK - 1])
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


def note(made: Made, draws: Draws, out: Mapping[str, Array], counts: Array, used: Array) -> Made:
    """What filling the rows came to."""
    made.rows, made.room = out["inputs"].shape[0], out["inputs"].size
    made.tokens = int(np.count_nonzero(out["targets_segmentation"]))
    made.filled = int(np.count_nonzero(out["inputs_segmentation"]))
    made.draws = int(np.count_nonzero(draws.shards >= 0))
    made.draws_used = int(used.sum())
    made.counts = dict(zip(COUNTED, counts.tolist(), strict=True))
    return made


def describe(bound: Bound, length: int, fill: Fill, streams: tuple[Stream, ...]) -> dict[str, Any]:
    """What of it decides the rows, for the recipe."""
    vocabulary = asdict(bound.vocabulary)
    return {"length": length, "fill": fill, "draws": [stream.draws for stream in streams], "vocabulary": vocabulary}
