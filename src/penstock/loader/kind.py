"""Kind: what a loader needs of a kind of data: how many rows, of which arrays, and how to fill them from draws.

Four of them: events.py (tokens of grouped events), old_records.py (the same of .arrayrecord files), rows.py (rows of
tokens), arrays.py (columns as they are).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from penstock.loader.order.order import Draws, Stream
from penstock.loader.tables import Made, Tables
from penstock.loader.tokens.vocabulary import Vocabulary

Array = np.ndarray[Any, Any]
Layout = Mapping[str, tuple[tuple[int, ...], str]]  # of each array: the shape of one row, and the dtype


class Kind(Protocol):
    name: str
    unit: str  # what `Made.tokens` counts
    layout: Layout
    streams: tuple[Stream, ...]  # one a dataset
    tables: Tables

    @property
    def vocabulary(self) -> Vocabulary | None:
        """Of events."""
        ...

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made: ...

    def describe(self) -> dict[str, Any]:
        """What of it decides the rows, for the recipe."""
        ...


TOKEN_ARRAYS = (
    "inputs",
    "inputs_position",
    "inputs_segmentation",
    "targets",
    "targets_position",
    "targets_segmentation",
)


def token_layout(length: int) -> Layout:
    return dict.fromkeys(TOKEN_ARRAYS, ((length,), "i4"))
