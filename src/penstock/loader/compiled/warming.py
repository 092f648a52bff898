"""Warming: compile every kernel that is not kept yet, each called once with no rows. `penstock warm-up`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.loader.compiled import address, events, fields, order, pages, rows
from penstock.loader.compiled.places import Places
from penstock.loader.compiled.plan import FIELD_FACTS, Plan
from penstock.loader.order.order import Order, Stream, empty_draws
from penstock.loader.tables import Notes, Tables
from penstock.loader.tables import address as array_address


@dataclass(frozen=True)
class Warmed:
    """One kernel: whether it had to be compiled, and the seconds that took, or that reading it took."""

    kernel: str
    compiled: bool
    seconds: float


def warm_up() -> list[Warmed]:
    """Have every kernel compiled and kept, for the types that load() calls it with."""
    facts = np.zeros(FIELD_FACTS, "i8")  # of one field: find_texts reads them, though there are no texts
    return [_warmed(kernel, arguments) for kernel, arguments in _calls(array_address(facts))]


def _warmed(kernel: Callable[..., Any], arguments: tuple[Any, ...]) -> Warmed:
    started = time.perf_counter()
    kernel(*arguments)
    stats: Any = kernel.stats  # type: ignore[attr-defined]
    name = f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}"
    return Warmed(name, bool(stats.cache_misses), time.perf_counter() - started)


def _calls(facts: Any) -> list[tuple[Callable[..., Any], tuple[Any, ...]]]:
    """Every kernel, and arguments by which it does nothing."""
    none, draws = np.uint64(0), empty_draws(0, 1)
    shards, records = np.empty(0, "i4"), np.empty(0, "i8")
    tables, notes = Tables([], []).addresses, Notes(none, none, none, 0)
    plan = Plan(0, facts, none, none, 0, -1, -1, True, 0, 1, 0, 1, 1, 1)
    places, wanted = Places(*[none] * 7, 0), pages.Pages(none, none, 0, 4096)
    drawn = (draws.shards, draws.records, draws.keys)
    starts, slots = np.zeros(1, "i8"), np.zeros(4, "i8")
    table = order.make_table(Order((Stream((1,)),), (1,), seed=0))
    return [
        (order._draw, (table, 0, *drawn)),
        (order.draw_sizing, (0, 0, starts, 1, *drawn)),
        (rows.copy_rows, (tables, notes, 0, 1, shards, records, none)),
        (rows.encode_rows, (tables, notes, slots, 1, 1, shards, records, places)),
        (rows.copy_kept, (tables, notes, slots, 1, 1, shards, records, none, none)),
        (rows.find_lists, (tables, notes, 0, shards, records, records, records)),
        (rows.copy_windows, (tables, notes, 0, 1, shards, records, records, starts, none)),
        (rows.copy_valid, (tables, notes, 0, shards, records, records, starts, none)),
        (pages.list_windows, (tables, 0, 1, shards, records, records, wanted)),
        (pages.list_rows, (tables, 0, 1, shards, records, wanted)),
        (pages.list_lists, (tables, 0, 0, shards, records, wanted)),
        (pages.list_events, (tables, plan, none, *drawn, wanted)),
        (address.parse_texts, (none, none, 0, none)),
        (fields.find_texts, (plan, 0, none, none, 0, none)),
        (events.encode_rows, (tables, plan, none, *drawn, places, notes, np.zeros(0, "i4"))),
    ]
