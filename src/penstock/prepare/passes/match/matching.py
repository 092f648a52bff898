"""Matching: one range of keys, from all slices and from earlier jobs -> which rows lose, and to what. Next: losers.py.

Of equal keys the first by position wins, unless an earlier job has had it already.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.stages.dedup.losers import DUPLICATE, SEEN, put_losers
from penstock.prepare.stages.dedup.runs import END_OF_KEYS, ENTRY, KEY, Array, RunsFile, RunsWriter, repeats, sort_order
from penstock.shards.columns import FileFacts

_KEYS_AT_ONCE = 1 << 18  # some 40 MB while they are sorted


@dataclass(frozen=True)
class Matched:
    """Rows that lose (slice, number among its rows, why) and the keys that are new, which ascend."""

    slices: Array
    numbers: Array
    reasons: Array
    new: Array


def match(files: Sequence[RunsFile], remembered: Sequence[RunsFile], bucket: int, buckets: int) -> Iterator[Matched]:
    """`files` are those of the slices, in their order. The bucket's range is taken in pieces of bounded size."""
    first, last = END_OF_KEYS * bucket // buckets, END_OF_KEYS * (bucket + 1) // buckets
    keys = sum(file.keys for file in files) // buckets
    pieces = 1 + keys // _KEYS_AT_ONCE
    for piece in range(pieces):
        low = first + (last - first) * piece // pieces
        yield _match_range(files, remembered, low, first + (last - first) * (piece + 1) // pieces)


def _match_range(files: Sequence[RunsFile], remembered: Sequence[RunsFile], low: int, high: int) -> Matched:
    found = [file.between(low, high) for file in files]
    entries = np.concatenate([np.zeros(0, ENTRY), *found])
    slices = np.repeat(np.arange(len(found), dtype="u4"), [len(each) for each in found])
    order = sort_order(entries)
    entries, slices = entries[order], slices[order]
    repeated = repeats(entries)
    seen = np.zeros(len(entries), bool)
    firsts = np.flatnonzero(~repeated)
    for file in remembered:
        seen[firsts] |= _are_in(entries[firsts], file)
    lost = repeated | seen
    reasons = np.where(repeated, DUPLICATE, SEEN).astype("u1")
    new = np.empty(int((~lost).sum()), KEY)
    new["high"], new["low"] = entries["high"][~lost], entries["low"][~lost]
    return Matched(slices[lost], entries["number"][lost], reasons[lost], new)


def _are_in(keys: Array, file: RunsFile) -> Array:
    """Whether each key, of those that ascend, is in the file, of which no more is read than they need."""
    answer = np.zeros(len(keys), bool)
    for known in file.near(keys["high"]):
        first = np.searchsorted(keys["high"], known["high"][0], side="left")
        last = np.searchsorted(keys["high"], known["high"][-1], side="right")
        answer[first:last] |= _is_in(keys[first:last], known)
    return answer


def _is_in(keys: Array, known: Array) -> Array:
    """Whether each key is among the `known`; both ascend."""
    answer = np.zeros(len(keys), bool)
    places = np.searchsorted(known["high"], keys["high"], side="left")
    left = np.flatnonzero(places < len(known))
    while len(left):  # once round, but for keys that share their first 64 bits
        at = places[left]
        same = known["high"][at] == keys["high"][left]
        answer[left] |= same & (known["low"][at] == keys["low"][left])
        places[left] += 1
        left = left[same & ~answer[left] & (places[left] < len(known))]
    return answer


def write_matched(
    store: Store, name: str, found: Iterable[Matched], slices: int, with_new: bool, report: Callable[[int], None]
) -> tuple[FileFacts, int]:
    """(the file of the losers, with or without the keys that are new; how many of both)."""
    rows = parts = 0
    with ExitStack() as stack:
        writer = RunsWriter(store, name, stack, KEY, lasting=False)
        for parts, each in enumerate(found, start=1):
            put_losers(writer, parts - 1, each.slices, each.numbers, each.reasons, slices)
            if with_new:
                writer.write(each.new)
            rows += len(each.slices) + len(each.new)
            report(rows)
        return writer.finish({"parts": parts}), rows
