"""Choosing: which events of a record a segment takes, in which order, and which of them keep their time."""

from typing import Any

import numpy as np

from penstock.loader.compiled.counter import below, draw, log_uniform, permute, permute_all
from penstock.loader.compiled.jit import jit_inline
from penstock.loader.compiled.pointers import read_i8, write_i8
from penstock.loader.order.order import EVENTS_A_CONTEXT


@jit_inline
def target_events(plan: Any, scratch: Any, left: int) -> int:
    """Events that the segment would take."""
    if not plan.packed:
        return max(1, plan.length // EVENTS_A_CONTEXT)
    ipv6 = plan.address_field >= 0 and read_i8(scratch.families, plan.address_field) == 6
    return left // (plan.typical_ipv6 if ipv6 else plan.typical) + 1


@jit_inline
def choose_events(scratch: Any, events: int, target: int) -> int:
    """Write the numbers of the chosen events to `chosen`, in time order. Returns their count."""
    window, offset = events, 0
    if events >= target:
        window = log_uniform(draw(scratch.stream), events)
        offset = below(draw(scratch.stream), events - window + 1)
    taken = min(window, target)
    if window <= target:
        for i in range(taken):
            write_i8(scratch.chosen, i, offset + i)
        return taken
    own = draw(scratch.stream)
    for i in range(taken):
        write_i8(scratch.chosen, i, offset + permute(i, window, own))
    _sort(scratch.chosen, taken)
    return taken


@jit_inline
def _sort(values: Any, count: int) -> None:
    """Shell's sort: dozens of numbers, in place, no call."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap:
        for i in range(gap, count):
            value, j = read_i8(values, i), i
            while j >= gap and read_i8(values, j - gap) > value:
                write_i8(values, j, read_i8(values, j - gap))
                j -= gap
            write_i8(values, j, value)
        gap //= 3


@jit_inline
def arrange_events(plan: Any, scratch: Any, taken: int) -> int:
    """Decide the time mode: the order of the chosen events, and which of them keep their time."""
    mode = below(draw(scratch.stream), 10) * plan.augment
    if mode < 4:
        for i in range(taken):
            write_i8(scratch.order, i, i)
            write_i8(scratch.timed, i, 1)
    elif mode < 7:
        _interleave(scratch, taken)
    else:
        permute_all(scratch.order, scratch.shuffled, taken, draw(scratch.stream))
        for i in range(taken):
            write_i8(scratch.timed, i, 0)
    return taken


@jit_inline
def _interleave(scratch: Any, taken: int) -> None:
    """Some lose their time and are shuffled; a fair coin chooses which of the two sequences comes next."""
    share = np.int64(draw(scratch.stream) >> np.uint64(32))
    lost = max(1, taken * (2**32 + 8 * share) // (10 * 2**32))
    permute_all(scratch.shuffled, scratch.order, taken, draw(scratch.stream))
    for i in range(taken):
        write_i8(scratch.keeps, i, 1)
    for i in range(lost):
        write_i8(scratch.keeps, read_i8(scratch.shuffled, i), 0)
    next_timed, next_lost = 0, 0
    for i in range(taken):
        while next_timed < taken and not read_i8(scratch.keeps, next_timed):
            next_timed += 1
        takes_lost = next_timed == taken
        if next_timed < taken and next_lost < lost:
            takes_lost = draw(scratch.stream) >> np.uint64(63) == 1
        write_i8(scratch.timed, i, 0 if takes_lost else 1)
        if takes_lost:
            write_i8(scratch.order, i, read_i8(scratch.shuffled, next_lost))
            next_lost += 1
        else:
            write_i8(scratch.order, i, next_timed)
            next_timed += 1
