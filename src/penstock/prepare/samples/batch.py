"""Batch: many samples that a user's function yields at once, as columns whose first axis is the samples."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.prepare.samples.fitting import LENGTHS_DIFFER, NOT_A_BATCH, Array, Misfit
from penstock.prepare.samples.schema import walk


@dataclass(frozen=True, eq=False, repr=False)
class Batch:
    """Samples that a function yields at once: `yield penstock.Batch({"features": features, "label": labels})`.

    Sample i of a batch has element i of every array, list and tuple. Any other value (a number, text, bytes, None) is
    the value of all its samples. penstock writes the same bytes as for the same samples, yielded one by one.

    Attributes:
        columns: Arrays, lists and tuples of one length, by key. Keys may be nested in dicts, as those of a sample are.
    """

    columns: dict[str, Any]

    def __post_init__(self) -> None:
        if not isinstance(self.columns, dict):
            raise TypeError(f"a batch is made of a dict of columns, not of a {type(self.columns).__name__}")


def is_stacked(value: Any) -> bool:
    """Whether a value of a batch has one element per sample."""
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim > 0)


def length_of(batch: Batch) -> int:
    """Number of samples; Misfit where columns differ in length, or none has a length."""
    lengths = [(path, len(value)) for path, value in walk(batch.columns) if is_stacked(value)]
    if not lengths:
        raise Misfit(NOT_A_BATCH, "no value of the batch is an array or a list, which would tell its number of samples")
    (first, count), *others = lengths
    for path, length in others:
        if length != count:
            raise Misfit(LENGTHS_DIFFER, f"{length:,} values, but {_dotted(first)!r} has {count:,}", _dotted(path))
    return count


def elements(value: Any, first: int, last: int) -> list[Any]:
    """Values of samples `first` to `last` of a column."""
    if not is_stacked(value):
        return [value] * (last - first)
    some = _plain(value)[first:last]
    is_text = isinstance(some, np.ndarray) and some.dtype.kind == "U" and some.ndim == 1
    return some.tolist() if is_text else list(some)


def numbers(value: Any, first: int, last: int) -> Array | None:
    """Samples `first` to `last` of a column that is one array of numbers: a view, whose values may still change."""
    value = _plain(value)
    is_array = type(value) is np.ndarray and value.ndim > 0 and value.dtype.kind in "biuf"
    return value[first:last] if is_array else None


def _plain(value: Any) -> Any:
    """A memmap is an array by another name; a masked array is not."""
    is_array = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
    return value.view(np.ndarray) if is_array else value


def sample_of(batch: Batch, number: int) -> dict[str, Any]:
    """One sample of the batch, as the function might have yielded it by itself."""
    return _sample(batch.columns, number)


def _sample(columns: Mapping[Any, Any], number: int) -> dict[Any, Any]:
    return {
        key: _sample(value, number) if isinstance(value, Mapping) else elements(value, number, number + 1)[0]
        for key, value in columns.items()
    }


def samples_of(yielded: Iterator[Any]) -> Iterator[Any]:
    """Samples one by one, those of batches too."""
    for each in yielded:
        if isinstance(each, Batch):
            yield from (sample_of(each, number) for number in range(length_of(each)))
        else:
            yield each


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path))
