"""Best fit: lengths -> rows of at most so many tokens, documents whole and rows nearly full."""

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def best_fit(lengths: Array, room: int) -> list[Array]:
    """The numbers of the documents in each row. The longest go first, each into the row that it fills best.

    Rows stand in the order of their first documents, and documents in a row in their own. A whole number serves as the
    set of rooms that some row has left: its lowest bit from `length` on is the best fit.
    """
    left: dict[int, list[int]] = {}  # rows by the room that they have left
    rooms = 0
    rows: list[list[int]] = []
    order = np.argsort(-lengths, kind="stable")
    for number, length in zip(order.tolist(), lengths[order].tolist(), strict=True):
        fitting = rooms >> length
        if fitting:
            best = length + (fitting & -fitting).bit_length() - 1
            row = left[best].pop()
            if not left[best]:
                rooms ^= 1 << best
        else:
            best, row = room, len(rows)
            rows.append([])
        rows[row].append(number)
        rest = best - length
        if rest:
            if not left.setdefault(rest, []):
                rooms |= 1 << rest
            left[rest].append(row)
    return [np.array(sorted(row)) for row in sorted(rows, key=min)]
