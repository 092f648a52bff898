"""Places: lists of records -> which record, and which of its windows, each row of an epoch is. Used by raw.py."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.loader.batches import Array
from penstock.loader.kinds.sequences.windows import Window
from penstock.loader.order.order import Stream
from penstock.loader.tables import Datasets, Shard

_RECORDS_AT_ONCE = 1 << 16


@dataclass(frozen=True)
class Places:
    """Rows of shards as (record, window of it). `rows_before` counts through all shards; None: a row is a record."""

    streams: tuple[Stream, ...]
    shard_starts: Array  # first record of each shard, among those of all shards
    rows_before: Array | None  # each record; the last entry is the number of all rows

    def find(self, shards: Array, rows: Array) -> tuple[Array, Array]:
        """Record in its shard, and number of the window in its record, of each row."""
        if self.rows_before is None:
            return rows, np.zeros(len(rows), "i8")
        first = self.shard_starts[shards]
        spots = self.rows_before[first] + rows
        records = np.searchsorted(self.rows_before, spots, side="right") - 1
        return records - first, spots - self.rows_before[records]


def make_places(
    datasets: Datasets, lists: Sequence[str], window: Window, length: int, min_length: int, budget: Budget
) -> Places:
    """Read the offsets of every list. Lists of different lengths are refused; records without a row are counted."""
    sizes = [len(shard[f"{lists[0]}/offsets"]) - 1 for dataset in datasets for shard in dataset]
    every = np.empty(0, "i8") if window.gives_one and not min_length else _index(sum(sizes), budget)
    streams, at = [], 0
    for dataset in datasets:
        left_out, shard_rows = 0, []
        for shard in dataset:
            shard_rows.append(0)
            for events in event_counts(shard, lists):
                rows = np.where(events >= min_length, window.rows(events, length), 0)
                left_out += int(np.count_nonzero(rows == 0))
                shard_rows[-1] += int(rows.sum())
                if len(every):
                    every[at + 1 : at + 1 + len(rows)] = rows
                at += len(rows)
        if not sum(shard_rows):
            raise ConfigError(
                f"all {left_out:,} records have fewer than min_length={min_length:,} events",
                where="load(min_length=...)",
                next_step="a smaller min_length",
            )
        streams.append(Stream(tuple(shard_rows), left_out=left_out))
    np.cumsum(every, out=every)
    return Places(tuple(streams), np.cumsum([0, *sizes], dtype="i8")[:-1], every if len(every) else None)


def longest_list(datasets: Datasets, lists: Sequence[str], length: int) -> tuple[int, int]:
    """(events of the longest record, how many records have more than `length`)."""
    longest, longer = 0, 0
    for shard in (shard for dataset in datasets for shard in dataset):
        for events in event_counts(shard, lists):
            longest = max(longest, int(events.max(initial=0)))
            longer += int(np.count_nonzero(events > length))
    return longest, longer


def event_counts(shard: Shard, lists: Sequence[str]) -> Iterator[Array]:
    """Events of each record, some records at a time; every list of a record must have as many."""
    first = shard[f"{lists[0]}/offsets"]
    for start in range(0, len(first) - 1, _RECORDS_AT_ONCE):
        stop = min(start + _RECORDS_AT_ONCE + 1, len(first))
        events = np.diff(first.read(start, stop))
        for column in lists[1:]:
            offsets = shard[f"{column}/offsets"]
            others = np.diff(offsets.read(start, stop))
            if not np.array_equal(others, events):
                record = int(np.flatnonzero(others != events)[0])
                raise ConfigError(
                    f"record {start + record:,} has {int(events[record]):,} values of {lists[0]!r} and "
                    f"{int(others[record]):,} of {column!r}: an event has one of each",
                    where=offsets.file,
                    next_step=f"load columns of equal lengths: leave {lists[0]!r} or {column!r} out of columns=",
                )
        yield events


def _index(records: int, budget: Budget) -> Array:
    """Eight bytes per record, refused where memory has no room for them."""
    needed, used = 8 * (records + 1), own_memory().counted
    if used + needed > budget.allowed:
        raise PlanError(
            f"the rows of {records:,} records need {format_size(needed)}; memory: {budget} leaves "
            f"{format_size(max(0, budget.allowed - used))} after {format_size(used)} in use",
            where="penstock.load",
            next_step=f"memory='{math.ceil(1.1 * (used + needed) / 10**6)}MB' or more, or window='last' and no "
            "min_length",
        )
    return np.zeros(records + 1, "i8")
