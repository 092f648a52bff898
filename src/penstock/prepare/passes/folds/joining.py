"""Joining: rows of many small files -> batches of several files, so that a file costs little more than its rows.

A batch of one file is what readers give; each takes its way through all stages, and a folder of a million short texts
would make a million. What is large already passes as it is.
"""

from collections.abc import Iterator

import pyarrow as pa

from penstock.prepare.rows.rows import Rows, join
from penstock.prepare.sources import Reading, UnreadablePart

_SMALL = 4  # a batch of less than this part of what may be read at once waits for others


def joined(items: Iterator[Rows | UnreadablePart], reading: Reading) -> Iterator[Rows | UnreadablePart]:
    """Rows in their order, in fewer batches."""
    held: list[Rows] = []
    rows = size = 0
    for item in items:
        small = item if isinstance(item, Rows) and _is_small(item, reading) else None
        if held and (small is None or not _are_alike(held[-1], small)):
            yield join(held)
            held, rows, size = [], 0, 0
        if small is None:
            yield item
            continue
        held.append(small)
        rows += len(small) + sum(aside.count for aside in small.set_aside)  # of which lines are held, too
        size += small.batch.nbytes
        if rows >= reading.rows_at_once or size >= reading.bytes_at_once:
            yield join(held)
            held, rows, size = [], 0, 0
    if held:
        yield join(held)


def _is_small(rows: Rows, reading: Reading) -> bool:
    """Samples of a user's function stay apart: whoever runs it wants to know which file it is in."""
    if rows.made_of or reading.options[rows.source].function:
        return False
    if any(pa.types.is_dictionary(kind) for kind in rows.batch.schema.types):  # several may be more than its codes hold
        return False
    return _SMALL * len(rows) < reading.rows_at_once and _SMALL * rows.batch.nbytes < reading.bytes_at_once


def _are_alike(one: Rows, other: Rows) -> bool:
    return one.source == other.source and one.batch.schema.equals(other.batch.schema)
