"""Ragged: samples whose arrays differ in the first dimension -> one flat array of all their rows, and their lengths.

Like fitting.py it has two ways to the same numbers: `exact` is the definition, `together` never takes what `exact`
refuses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from penstock.prepare.samples import fitting
from penstock.prepare.samples.fitting import WRONG_SHAPE, Array, Misfit, Shape
from penstock.shards.arrays import MOST_RAGGED

_LISTS = frozenset({list, tuple})


@dataclass(frozen=True)
class Flat:
    """Rows of all samples one after the other, and how many rows each sample has."""

    rows: Array
    lengths: Array  # int64

    @property
    def offsets(self) -> Array:
        return np.append(0, np.cumsum(self.lengths, dtype="i8"))

    def pieces(self) -> list[Array]:
        """The rows of each sample."""
        return np.split(self.rows, self.offsets[1:-1]) if len(self.lengths) else []

    def chosen(self, fits: Array) -> Flat:
        return Flat(self.rows[np.repeat(fits, self.lengths)], self.lengths[fits])


def joined(pieces: Sequence[Array], row: Shape, number: np.dtype[Any]) -> Flat:
    """Inverse of `Flat.pieces`."""
    rows = np.concatenate(pieces) if len(pieces) else np.empty((0, *row), number)
    return Flat(rows, np.array([len(piece) for piece in pieces], "i8"))


def exact(value: Any, row: Shape, number: np.dtype[Any], rounds: bool = True) -> Array:
    """The rows of one sample; Misfit if one of its numbers does not fit, or if rows have another shape than `row`."""
    is_list = isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)
    length = len(value) if is_list else 0
    if length > MOST_RAGGED:
        raise Misfit(WRONG_SHAPE, f"{length:,} values, and one sample may have {MOST_RAGGED:,}")
    return fitting.exact(value, (length, *row), number, rounds)


def together(values: Sequence[Any], row: Shape, number: np.dtype[Any], rounds: bool = True) -> Flat | None:
    """The rows of many samples. None: let `exact` decide."""
    kinds = set(map(type, values))
    if kinds == {np.ndarray}:
        rows = _joined_arrays(values, row, number, rounds)
    elif kinds <= _LISTS:
        rows = fitting.together(list(chain.from_iterable(values)), row, number, rounds)
    else:
        return None
    if rows is None or len(rows) > MOST_RAGGED:
        return None
    return Flat(rows, np.array(list(map(len, values)), "i8"))


def _joined_arrays(arrays: Sequence[Array], row: Shape, number: np.dtype[Any], rounds: bool) -> Array | None:
    """Arrays of any other shape or type than the first are left to `exact`."""
    if any(array.ndim != len(row) + 1 or array.shape[1:] != row for array in arrays):
        return None
    if len({array.dtype for array in arrays}) != 1 or arrays[0].dtype.kind not in "biuf":
        return None
    rows = np.concatenate(arrays)
    if not len(rows):
        return np.empty((0, *row), number)
    found = fitting.together([rows], rows.shape, number, rounds)
    return None if found is None else found[0]
