"""Raw: draws -> windows of records, their columns as they are, padded or one behind the other. Next: maker.py.

A record has lists of equal length, one value per event, and columns of one value. A row of a batch holds a window of
one record's events, in the stored order: `NAME` [rows, length, ...] and `lengths` [rows], or with layout="offsets"
`NAME` [rows * length, ...] and `offsets` [rows + 1]. Columns of one value have `NAME` [rows, ...].
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError, PlanError
from penstock.base.sizes import format_size
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array, Batch, Edges, Layout
from penstock.loader.feeding.buffers import batch_bytes
from penstock.loader.kinds.chosen import Chosen, choose
from penstock.loader.kinds.sequences.copying import Copying, Spans
from penstock.loader.kinds.sequences.places import longest_list, make_places
from penstock.loader.kinds.sequences.windows import Window, make_window
from penstock.loader.order.order import Draws, Held
from penstock.loader.tables import Made

LENGTHS, OFFSETS, VALID = "lengths", "offsets", "valid"
_MOST_EVENTS = 2**31 - 1  # of a batch: its offsets are int32
_UNUSED = {
    "augment": "tokens of events",
    "fill": "tokens of events",
    "fields": "tokens of events",
    "overflow": "packed rows of tokens",
    "documents": "packed rows of tokens",
    "max_documents": "packed rows of tokens",
}


class Raw:
    """Windows of `length` events."""

    name, unit, vocabulary = "raw", "events", None

    def __init__(self, asked: Asked, length: int, window: Window, chosen: list[Chosen]) -> None:
        options = asked.options
        self.length, self._window, self._chosen = length, window, chosen
        self._min_length: int = options["min_length"] or 0
        self._is_flat, self._marks_rows = options["layout"] == "offsets", options["remainder"] == "pad"
        self.layout: Layout = self._make_layout()
        _refuse_events(length, asked)
        refuse_size(self.layout, asked)
        lists = [each.name for each in chosen if each.of_events and not each.is_mask]
        shards = [shard for dataset in asked.shards for shard in dataset]
        self._copying = Copying(shards, f"{lists[0]}/offsets", chosen, asked.larger_than_memory)
        self.tables = self._copying.tables
        self._places = make_places(asked.shards, lists, window, length, self._min_length, asked.budget)
        self.streams = self._places.streams

    @classmethod
    def of(cls, asked: Asked) -> Raw:
        if asked.is_old:
            raise ConfigError(
                "encode= is an option for columns, but this is an .arrayrecord file",
                where=asked.where,
                next_step="prepare the events as columns (`penstock run pings`), or leave encode= out",
            )
        options = asked.options
        shards = [shard for dataset in asked.shards for shard in dataset]
        chosen = choose(asked.schema, options["columns"], list(options["nulls"] or ()), shards)
        window = make_window(options["window"], _length(asked, chosen))
        made = cls(asked, options["length"], window, chosen)
        asked.refuse_unused("records", _UNUSED)
        return made

    def _make_layout(self) -> Layout:
        own: dict[str, tuple[tuple[int, ...], str]] = {}
        own[OFFSETS if self._is_flat else LENGTHS] = Edges((1,), "i4") if self._is_flat else ((), "i4")
        if self._marks_rows:
            own[VALID] = ((), "?")
        arrays: dict[str, tuple[tuple[int, ...], str]] = {}
        for each in self._chosen:
            if each.name in {**own, **arrays}:
                raise ConfigError(
                    f"two arrays of a batch would be called {each.name!r}",
                    where="load(encode=..., columns=...)",
                    next_step=f"leave that column out (columns=), or rename it with `select: {{new_name: {each.name}}}`"
                    " when the dataset is made",
                )
            arrays[each.name] = ((self.length, *each.shape) if each.of_events else each.shape, each.dtype)
        return {**arrays, **own}

    def holds(self, draws: Draws) -> Held:
        records, _ = self._places_of(draws)
        return Held(Draws(draws.shards, records[:, None], draws.keys))

    def _places_of(self, draws: Draws) -> tuple[Array, Array]:
        """Record of each row, and number of its window."""
        return self._places.find(*(np.ascontiguousarray(each[:, 0]) for each in (draws.shards, draws.records)))

    def hold(self, room: int) -> None:
        """Hold nothing: only the columns are used."""

    def fill(self, draws: Draws, out: Batch) -> Made:
        made, events, singles = self._find(draws)
        self._copying.copy(events, singles, out, made)
        if self._marks_rows:
            np.greater_equal(events.shards, 0, out=out[VALID])
        if self._is_flat:
            self._flatten(events.counts, out)
        else:
            out[LENGTHS][:] = events.counts
        return made

    def _find(self, draws: Draws) -> tuple[Made, Spans, Spans]:
        """Spans of the events, and of the columns of one value."""
        shards = np.ascontiguousarray(draws.shards[:, 0])
        drawn, rows = shards >= 0, len(shards)
        records, numbers = self._places_of(draws)
        made = Made(rows=rows, room=rows * self.length, draws=int(np.count_nonzero(drawn)))
        firsts, events = self._copying.find_lists(shards, records, made)
        starts = np.where(drawn, self._window.starts(events, numbers, draws.keys, self.length), 0)
        counts = np.clip(events - starts, 0, self.length)
        cut = int((events - counts).sum()) if self._window.cuts else 0
        made.tokens = made.filled = int(counts.sum())
        made.draws_used, made.counts = made.draws, {"events": made.filled, "events_cut": cut}
        places = np.arange(rows + 1, dtype="i8")
        own = np.concatenate(([0], np.cumsum(counts)[:-1], [rows * self.length])) if self._is_flat and rows else None
        of_events = Spans(shards, firsts + starts, counts, places * self.length if own is None else own.astype("i8"))
        return made, of_events, Spans(shards, records, drawn.astype("i8"), places)

    def _flatten(self, counts: Array, out: Batch) -> None:
        """Views without rows: the values of all rows one after the other, zeros at the end."""
        for each in self._chosen:
            if each.of_events:
                out[each.name] = out[each.name].reshape(-1, *each.shape)
        out[OFFSETS][:1], out[OFFSETS][1:] = 0, np.cumsum(counts)

    def window_of(self, batch: Batch, row: int) -> Batch:
        """Columns of one row of a padded batch, without the padding."""
        count = int(batch[LENGTHS][row])
        return {
            each.name: batch[each.name][row][:count] if each.of_events else batch[each.name][row]
            for each in self._chosen
        }

    def describe(self) -> dict[str, Any]:
        columns: Mapping[str, Any] = {
            each.name: [list(each.shape), each.dtype, each.of_events] for each in self._chosen
        }
        facts = {"length": self.length, "window": self._window.word, "min_length": self._min_length}
        return {**facts, "layout": "offsets" if self._is_flat else "padded", "columns": columns}


def _length(asked: Asked, chosen: list[Chosen]) -> int:
    """load(length=...), which has to be given; without a window no record may be longer."""
    length, lists = asked.options["length"], [each.name for each in chosen if each.of_events and not each.is_mask]
    if length is not None and asked.options["window"] is not None:
        return int(length)
    longest, longer = longest_list(asked.shards, lists, length or 0)
    if length is None:
        raise ConfigError(
            f"load() needs length= for records: the number of events per row. The longest record has {longest:,}",
            where="load(length=...)",
            next_step=f"length={longest}, or a smaller one with window='last', 'random' or {{'sliding': stride}}",
        )
    if longer:
        raise ConfigError(
            f"{longer:,} records have more than length={length:,} events, up to {longest:,}: the rest would be cut",
            where="load(length=...)",
            next_step=f"length={longest}, or window='last', 'random' or {{'sliding': {max(1, length // 2)}}}, which "
            "say which events a row has",
        )
    return int(length)


def _refuse_events(length: int, asked: Asked) -> None:
    """Refuse more events than the offsets of a batch can count."""
    if asked.rows * length > _MOST_EVENTS:
        raise ConfigError(
            f"the batch needs {asked.rows * length:,} events ({asked.rows:,} rows of {length:,}), but the maximum is "
            f"{_MOST_EVENTS:,}",
            where="load(length=..., batch_size=...)",
            next_step="a smaller length or batch_size, or more ranks",
        )


def refuse_size(layout: Layout, asked: Asked) -> None:
    """Refuse batches that cannot fit, before a row is made."""
    size = batch_bytes(layout, asked.rows)
    if size > asked.budget.allowed:
        raise PlanError(
            f"batches do not fit: {asked.rows:,} rows take {format_size(size)}; memory: {asked.budget}",
            where="penstock.load",
            next_step="a smaller length or batch_size, or more memory=",
        )
