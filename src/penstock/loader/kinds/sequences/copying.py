"""Copying: spans of rows -> their values in the arrays of a batch, by the kernels or in plain numpy. Used by raw.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.loader.batches import Array, Batch
from penstock.loader.engine import compiled
from penstock.loader.feeding.readahead import read_ahead
from penstock.loader.kinds.chosen import Chosen
from penstock.loader.tables import Made, Shard, Tables, address


@dataclass(frozen=True)
class Spans:
    """Places of the values of each row in its shard, and of each row in its array, with the end of the array."""

    shards: Array  # int32; -1: a row without a record, whose count is 0
    firsts: Array
    counts: Array
    places: Array


class Copying:
    """The columns of `chosen`, and the offsets of the list that says where a record's events begin."""

    def __init__(self, shards: Sequence[Shard], offsets: str, chosen: Sequence[Chosen], larger: bool) -> None:
        self._shards, self._offsets, self._chosen = shards, offsets, chosen
        self.tables = Tables(shards, [offsets, *(each.column for each in chosen)], larger)

    def find_lists(self, shards: Array, records: Array, made: Made) -> tuple[Array, Array]:
        """First event of each record in its column, and how many it has."""
        firsts, counts = np.zeros(len(shards), "i8"), np.zeros(len(shards), "i8")
        if compiled():
            from penstock.loader.compiled import pages, rows

            if self.tables.larger_than_memory:
                addresses = self.tables.addresses
                read_ahead(lambda wanted: pages.list_rows(addresses, 0, 1, shards, records, wanted))
            self.tables.run(
                lambda tables, notes: rows.find_lists(tables, notes, 0, shards, records, firsts, counts), made
            )
            return firsts, counts
        for row, (shard, record) in enumerate(zip(shards.tolist(), records.tolist(), strict=True)):
            if shard >= 0:
                first, stop = self._shards[shard][self._offsets].read(record, record + 2).tolist()
                firsts[row], counts[row] = first, stop - first
        return firsts, counts

    def copy(self, events: Spans, singles: Spans, out: Batch, made: Made) -> None:
        """Values of lists by the spans of events, other values by those of records; zeros where a row has none."""
        spans = [(each, events if each.of_events else singles) for each in self._chosen]
        if compiled():
            self._copy_compiled(spans, out, made)
        else:
            for each, own in spans:
                self._copy_plainly(each, own, out)

    def _copy_compiled(self, spans: Sequence[tuple[Chosen, Spans]], out: Batch, made: Made) -> None:
        from penstock.loader.compiled import pages, rows

        def list_pages(wanted: Any) -> None:
            for slot, (each, own) in enumerate(spans, start=1):
                where = own.shards, own.firsts, own.counts
                pages.list_windows(addresses, slot, each.items, *where, wanted)

        def copy(tables: Any, notes: Any) -> None:
            for slot, (each, own) in enumerate(spans, start=1):
                where = own.shards, own.firsts, own.counts, own.places, address(out[each.name])
                if each.is_mask:
                    rows.copy_valid(tables, notes, slot, *where)
                else:
                    rows.copy_windows(tables, notes, slot, each.items, *where)

        if self.tables.larger_than_memory:
            addresses = self.tables.addresses
            read_ahead(list_pages)
        self.tables.run(copy, made)

    def _copy_plainly(self, each: Chosen, spans: Spans, out: Batch) -> None:
        """One array in plain numpy, like the kernels."""
        flat = out[each.name].reshape(int(spans.places[-1]), *each.shape)
        flat[:] = 0
        columns = (spans.shards, spans.firsts, spans.counts, spans.places[:-1])
        for shard, first, count, place in zip(*(column.tolist() for column in columns), strict=True):
            if count:
                column = self._shards[shard].get(each.column)  # a shard without nulls has no validity column
                flat[place : place + count] = True if column is None else column.read(first, first + count)
