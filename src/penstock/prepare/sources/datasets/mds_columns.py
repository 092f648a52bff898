"""MDS columns: the encoding of a column, `ndarray:float32:16` -> its Arrow type; the bytes of values -> an array."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

Bad = dict[int, str]  # by number among the values: why it has no place in the column
_NUMBERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float32", "float64")
_TEXTS = ("str", "json", "str_int", "str_float", "str_decimal")
_BYTES = ("bytes", "jpeg", "png")
# What an array says about itself: a number for its type, and two bits for the type of its shape.
_ARRAY_CODES = {
    8: "uint8",
    9: "int8",
    16: "uint16",
    17: "int16",
    18: "float16",
    32: "uint32",
    33: "int32",
    34: "float32",
    64: "uint64",
    65: "int64",
    66: "float64",
}
_SHAPE_TYPES = ("<u1", "<u2", "<u4", "<u8")
_MOST = 2**31 - 1  # of a dimension, as Arrow counts
_SAMPLE_BYTES = 2**32  # a shard has no place for more


class NoArray(Exception):
    """A value that is not an array of its column."""


class Encoding(ABC):
    """The way in which values of a column are stored."""

    @property
    @abstractmethod
    def type(self) -> pa.DataType:
        """Arrow type of the column."""

    @property
    def value_bytes(self) -> int | None:
        """Bytes of each value, where all have the same."""
        return None

    def settled(self, first: bytes) -> Encoding:  # noqa: ARG002
        """The encoding, where only the first value tells the type."""
        return self

    @abstractmethod
    def decode(self, values: Sequence[bytes]) -> tuple[pa.Array, Bad]:
        """Array of all values; a bad one has any value there."""


def encoding_of(word: str) -> Encoding:
    """Raises ValueError, with the reason, for an encoding whose values are not read."""
    name, _, rest = word.partition(":")
    if word == "pkl":
        raise ValueError("pickles, which can run any code when they are opened, and are not")
    if word == "int":
        return Numbers(np.dtype("<i8"))
    if word in _NUMBERS:
        return Numbers(np.dtype(word))
    if word in _TEXTS:
        return Whole(pa.string())
    if word in _BYTES:
        return Whole(pa.binary())
    kind, _, shape = rest.partition(":")
    if name == "ndarray" and kind in ("", *_NUMBERS) and not (shape and not kind):
        dtype = np.dtype(kind) if kind else None
        return Arrays(dtype, _dimensions(word, dtype, shape)) if dtype and shape else AnyArrays(dtype, None)
    known = ", ".join(("int", *_NUMBERS, *_TEXTS, *_BYTES, "ndarray"))
    raise ValueError(f"stored as {word!r}, and these are read: {known}")


def _dimensions(word: str, dtype: np.dtype[Any], shape: str) -> tuple[int, ...]:
    texts = shape.split(",")
    if not all(re.fullmatch("[0-9]{1,10}", text) for text in texts):
        raise ValueError(f"stored as {word!r}, and {shape!r} is no shape: a shape has whole numbers, such as 2,3")
    dimensions = tuple(map(int, texts))
    _refuse_dimensions(dtype, dimensions, dimensions)
    if (size := math.prod(dimensions) * dtype.itemsize) >= _SAMPLE_BYTES:
        raise ValueError(f"stored as {word!r}, which takes {size:,} bytes, and a shard has no room for such samples")
    return dimensions


def _refuse_dimensions(dtype: np.dtype[Any], shape: Sequence[object], dimensions: Sequence[int]) -> None:
    """Raise ValueError for a dimension that a list of Arrow cannot have."""
    if wrong := [size for size in dimensions if not 0 < size <= _MOST]:
        raise ValueError(
            f"an array {_shown(dtype, shape)}, which has a dimension of {wrong[0]:,}; from 1 to {_MOST:,} are read"
        )


@dataclass(frozen=True)
class Numbers(Encoding):
    dtype: np.dtype[Any]

    @property
    def type(self) -> pa.DataType:
        return pa.from_numpy_dtype(self.dtype)

    @property
    def value_bytes(self) -> int:
        return self.dtype.itemsize

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Array, Bad]:
        return pa.array(np.frombuffer(b"".join(values), self.dtype)), {}


@dataclass(frozen=True)
class Whole(Encoding):
    """Bytes as they are. Of numbers that are stored as digits, the digits: no type of numbers holds all of them."""

    kind: pa.DataType

    @property
    def type(self) -> pa.DataType:
        return self.kind

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Array, Bad]:
        return pa.array(values, pa.binary()).view(self.kind), {}  # whether it is UTF-8 is looked at later


@dataclass(frozen=True)
class Arrays(Encoding):
    """Arrays of one shape."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def type(self) -> pa.DataType:
        return _fixed(pa.from_numpy_dtype(self.dtype), self.shape)

    @property
    def value_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Array, Bad]:
        return _nested(np.frombuffer(b"".join(values), self.dtype), self.shape), {}


@dataclass(frozen=True)
class AnyArrays(Encoding):
    """Arrays that bring their shape, and perhaps their type. All but the first dimension are those of the first value.

    `inner` is None until the first value was seen.
    """

    dtype: np.dtype[Any] | None
    inner: tuple[int, ...] | None
    brings_type: bool = False

    @property
    def type(self) -> pa.DataType:
        assert self.dtype is not None
        assert self.inner is not None
        return pa.list_(_fixed(pa.from_numpy_dtype(self.dtype), self.inner))

    def settled(self, first: bytes) -> AnyArrays:
        """Raises NoArray for a value that is none, and ValueError for one whose type no column can have."""
        dtype, shape, _ = _described(first, self.dtype)
        _refuse_dimensions(dtype, ("*", *shape[1:]), shape[1:])
        return AnyArrays(dtype, shape[1:], self.dtype is None)

    def decode(self, values: Sequence[bytes]) -> tuple[pa.Array, Bad]:
        assert self.dtype is not None
        assert self.inner is not None
        lengths, pieces, bad = [0], [], {}
        for number, value in enumerate(values):
            try:
                dtype, shape, data = _described(value, None if self.brings_type else self.dtype)
                if (dtype, shape[1:]) != (self.dtype, self.inner):
                    raise NoArray(
                        f"it is {_shown(dtype, shape)}, and the first is {_shown(self.dtype, ('*', *self.inner))}"
                    )
            except NoArray as error:
                bad[number] = str(error)
                shape, data = (0,), b""
            lengths.append(shape[0])
            pieces.append(data)
        flat = np.frombuffer(b"".join(pieces), self.dtype)
        return pa.ListArray.from_arrays(pa.array(np.cumsum(lengths), pa.int32()), _nested(flat, self.inner)), bad


def _described(value: bytes, dtype: np.dtype[Any] | None) -> tuple[np.dtype[Any], tuple[int, ...], bytes]:
    """(type, shape, bytes of the numbers) of an array that says them itself; its type only where none is given."""
    at = 0
    if dtype is None:
        if not value or value[0] not in _ARRAY_CODES:
            raise NoArray(f"{value[:1]!r} stands for no type of array")
        dtype, at = np.dtype(_ARRAY_CODES[value[0]]), 1
    if len(value) <= at or value[at] < 4:
        raise NoArray("it says no shape")
    dimensions, kind = value[at] >> 2, np.dtype(_SHAPE_TYPES[value[at] & 3])
    end = at + 1 + dimensions * kind.itemsize
    if len(value) < end:
        raise NoArray(f"it ends inside of its shape, which has {dimensions} numbers")
    shape = tuple(np.frombuffer(value[at + 1 : end], kind).tolist())
    data, size = value[end:], math.prod(shape) * dtype.itemsize
    if len(data) != size:
        raise NoArray(f"it has {len(data):,} bytes of numbers, and {_shown(dtype, shape)} takes {size:,}")
    return dtype, shape, data


def _shown(dtype: np.dtype[Any], shape: Sequence[object]) -> str:
    return f"{dtype.name}[{', '.join(map(str, shape))}]"


def _fixed(kind: pa.DataType, shape: Sequence[int]) -> pa.DataType:
    for size in reversed(shape):
        kind = pa.list_(kind, size)
    return kind


def _nested(flat: np.ndarray[Any, Any], shape: Sequence[int]) -> pa.Array:
    array = pa.array(flat)
    for size in reversed(shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array
