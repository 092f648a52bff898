"""Sizing: how many records a row of events draws, and whether memory has room for their contexts. Used by events.py."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np

from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.loader.batches import Array, empty_batch, token_layout
from penstock.loader.engine import compiled
from penstock.loader.order.counter import SIZING, key, permute
from penstock.loader.order.order import Draws, contexts_of, empty_draws
from penstock.loader.tables import Made

Encode = Callable[[Draws, Mapping[str, Array], Made], Array]
_ROWS, _RANK, _DRAWS = 128, 118, 1024  # more draws: fuller rows, fewer records per epoch
_ROWS_AT_ONCE = 16  # of them: long rows, and the records of .arrayrecord files, are held together


def refuse_contexts(records: Sequence[int], length: int, encode: Encode, budget: Budget) -> None:
    """Refuse more records than memory has room for: with one_key, a byte of each says how many contexts it gives.

    A mix has the bytes of all its datasets in one array beside. A row of nothing is encoded first, to load the kernels:
    what they take is in use.
    """
    encode(empty_draws(1, 1), empty_batch(token_layout(length), 1), Made())
    needed, used = sum(records) * (1 if len(records) == 1 else 2), own_memory().counted
    if used + needed > budget.allowed:
        raise PlanError(
            f"fill='one_key' needs {format_size(needed)} for {sum(records):,} records; memory: {budget} leaves "
            f"{format_size(max(0, budget.allowed - used))} after {format_size(used)} in use",
            where="penstock.load",
            next_step=f"memory='{math.ceil(1.1 * (used + needed) / 10**6)}MB' or more, or fill='packed'",
        )


def draws_needed(
    number: int, before: int, records: tuple[int, ...], length: int, encode: Encode, has_empty: Callable[[], bool]
) -> int:
    """S of docs/reference/tokens.md: the number of draws that fills nearly every row.

    Few are tried first: a row that does not use them all is full, unless there are records that it can use nothing of.
    `has_empty` says whether there are, at least among those that `encode` was given so far.
    """
    most = min(sum(records), _DRAWS)
    few = most if has_empty() else min(16, most)
    out = empty_batch(token_layout(length), _ROWS_AT_ONCE)
    while True:
        draws = sizing_draws(number, before, records, most, _ROWS, few)
        used = [encode(rows, out, Made()) for rows in _cut(draws, _ROWS_AT_ONCE)]
        needed = int(np.sort(np.concatenate(used))[_RANK - 1])
        if has_empty() and few < most:
            few = most
        elif not needed:
            raise ConfigError(
                f"rows of {length + 1} tokens are too short: nine of ten rows would be empty",
                where="load(length=...)",
                next_step="a larger length, fewer fields, or fill='one_key', which cuts events",
            )
        elif needed < few or few == most:
            return needed
        else:
            few = min(2 * few, most)


def count_contexts(records: int, event_counts: Iterable[Array]) -> Array:
    """Contexts that each record gives; `event_counts` says how many events each has, some records at a time."""
    contexts, start = np.empty(records, "u1"), 0
    for events in event_counts:
        contexts[start : start + len(events)] = contexts_of(events)
        start += len(events)
    return contexts


def _cut(draws: Draws, rows: int) -> Iterator[Draws]:
    """Yield the draws of some rows at a time."""
    for first in range(0, len(draws.keys), rows):
        own = slice(first, first + rows)
        yield Draws(draws.shards[own], draws.records[own], draws.keys[own])


def sizing_draws(number: int, before: int, records: tuple[int, ...], most: int, rows: int, few: int) -> Draws:
    """The first `few` of `most` draws of rows that a dataset is sized by; `before` shards come before its own."""
    draws, total, starts = empty_draws(rows, few), sum(records), np.cumsum([0, *records], dtype="i8")
    if compiled():
        from penstock.loader.compiled.order import draw_sizing

        draw_sizing(number, before, starts, most, draws.shards, draws.records, draws.keys)
        return draws
    order_key = key(0, SIZING, number)
    for row in range(rows):
        draws.keys[row] = key(0, SIZING, number, row)
        for j in range(few):
            spot = permute((row * most + j) % total, total, order_key)
            shard = int(np.searchsorted(starts, spot, side="right")) - 1
            draws.shards[row, j], draws.records[row, j] = before + shard, spot - int(starts[shard])
    return draws
