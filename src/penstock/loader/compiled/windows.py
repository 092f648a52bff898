"""Windows: events of records, and whether they are null, copied out of mapped columns. ../kinds/copying.py is plain."""

from typing import Any

import numpy as np

from penstock.loader.compiled.columns import base, touch_all, whole
from penstock.loader.compiled.jit import jit
from penstock.loader.compiled.pointers import clear_bytes, copy_bytes, read_i8, shifted


@jit
def find_lists(tables: Any, notes: Any, slot: int, shards: Any, records: Any, firsts: Any, counts: Any) -> None:
    """First event and number of events of each record, by the offsets of a list; a row without a record has none."""
    for i in range(len(shards)):
        shard, first, stop = np.int64(shards[i]), 0, 0
        if shard >= 0:
            first = whole(tables, notes, shard, slot, records[i])
            stop = whole(tables, notes, shard, slot, records[i] + 1)
        firsts[i], counts[i] = first, max(0, stop - first)


@jit
def copy_windows(
    tables: Any, notes: Any, slot: int, per_event: int, shards: Any, firsts: Any, counts: Any, places: Any, out: Any
) -> None:
    """Events of row i to place `places[i]` of `out`, and zeros from there to the next place.

    An event has `per_event` items. `places` has one more entry than there are rows: the end of `out`.
    """
    event_bytes = per_event * read_i8(tables.sizes, slot)
    for i in range(len(shards)):
        shard, first, count = np.int64(shards[i]), firsts[i], counts[i]
        place, room = shifted(out, places[i] * event_bytes), (places[i + 1] - places[i]) * event_bytes
        filled = 0
        if count and touch_all(tables, notes, shard, slot, first * per_event, (first + count) * per_event):
            filled = count * event_bytes
            copy_bytes(place, shifted(base(tables, shard, slot), first * event_bytes), filled)
        clear_bytes(shifted(place, filled), room - filled)
