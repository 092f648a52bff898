"""Batches: the arrays of a batch, and a loader as its consumers see it."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

T = TypeVar("T", covariant=True)
Array = np.ndarray[Any, Any]
Batch = dict[str, Array]
Function = Callable[[Batch], Batch]
Encode = Callable[[Batch], Any]  # a window -> a dict of arrays, or token ids
Path = str | os.PathLike[str]
Folders = Path | Sequence[Path]  # of the input of a job
Inputs = Folders | Mapping[Path, Folders]  # of one dataset, or of several by their paths or names
Layout = Mapping[str, tuple[tuple[int, ...], str]]  # of each array: the shape of one row, and the dtype


class Edges(NamedTuple):
    """Layout of a flat array: `shape` places per row, and one for the end of the last."""

    shape: tuple[int]
    dtype: str


TOKEN_ARRAYS = (
    "inputs",
    "inputs_position",
    "inputs_segmentation",
    "targets",
    "targets_position",
    "targets_segmentation",
)


class SegmentOrigin(NamedTuple):
    """Origin of one segment of a batch, or of one row of arrays.

    `segment` is the number that the segment has in `inputs_segmentation`. For arrays it is 0, or the number of the
    document if the row was made of several. `file` is relative to the input number `source` of the job. `position` is
    its row there; in a file of lines, the byte where a piece of the file begins plus the number of the record in that
    piece. `text` is what the row holds of the document, decoded. `hash` is the content hash of the whole document.
    `document` is its text, read again from the file: only if it has that hash. If it is None, `problem` says why.
    `source`, `file` and `position` are None if the dataset keeps no origins.
    """

    row: int
    segment: int
    dataset: str
    source: int | None
    file: str | None
    position: int | None
    tokens: int
    text: str | None
    line: int | None
    hash: str | None
    document: str | None
    problem: str | None


def token_layout(length: int) -> Layout:
    return dict.fromkeys(TOKEN_ARRAYS, ((length,), "i4"))


def shape_in_batch(array: tuple[tuple[int, ...], str], rows: int) -> tuple[int, ...]:
    """Shape of an array of a layout, in a batch of `rows` rows."""
    shape, _ = array
    return (rows * shape[0] + 1,) if isinstance(array, Edges) else (rows, *shape)


def empty_batch(layout: Layout, rows: int) -> Batch:
    return {name: np.zeros(shape_in_batch(array, rows), array[1]) for name, array in layout.items()}


class BatchSource(Protocol):
    """Batches by number and in order, and a place among them that can be saved."""

    step: int

    @property
    def arguments(self) -> dict[str, Any]: ...

    @property
    def functions(self) -> tuple[Function, ...]: ...

    @property
    def opened_by(self) -> Callable[..., Any]:
        """Function that makes an equal one of `arguments`, before `functions` are mapped."""

    def batch(self, k: int) -> Batch: ...

    def __next__(self) -> Batch: ...

    def __len__(self) -> int: ...

    @property
    def steps(self) -> int | None: ...

    def loop_end(self, step: int) -> int | None: ...

    def state(self) -> dict[str, Any]: ...

    def state_at(self, step: int) -> dict[str, Any]:
        """State before another batch than the next."""

    def restore(self, state: Mapping[str, Any], phases: Sequence[Mapping[str, Any]] | None = None) -> None: ...


class Steps(Protocol[T]):
    """Whatever gives batches in order and counts them."""

    @property
    def step(self) -> int: ...

    def __next__(self) -> T: ...


class Loop(Generic[T]):
    """One `for` loop over batches: it ends before batch `end`. What it gives counts for whoever loops next."""

    def __init__(self, batches: Steps[T], end: int | None) -> None:
        self._batches, self._end = batches, end

    def __iter__(self) -> Loop[T]:
        return self

    def __next__(self) -> T:
        if self._end is not None and self._batches.step >= self._end:
            raise StopIteration
        return next(self._batches)
