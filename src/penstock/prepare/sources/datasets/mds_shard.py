"""MDS shard: a file of samples, perhaps compressed -> the bytes of each value, some samples at a time, in order.

A shard has: how many samples, where each begins and the last ends (uint32 each), a description in JSON, the samples. A
sample has: the bytes of each value that has no fixed size (uint32 each), then all values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np

from penstock.prepare.rows.rows import Array
from penstock.prepare.sources.datasets.mds_columns import Encoding, encoding_of
from penstock.prepare.sources.reading.input_file import BreaksOff, open_text
from penstock.prepare.sources.registry import compression_of

_OFFSET = np.dtype("<u4")
_DESCRIPTION_BYTES = 1 << 24  # at most
_READ_AT_ONCE = 1 << 24
_DESCRIBED = ("column_names", "column_encodings", "column_sizes")


class Damage(Exception):
    """A shard that cannot be read; the text says why and where."""


@dataclass
class Shard:
    """An open shard. Samples are taken in order."""

    stream: BinaryIO
    offsets: Array  # of each sample, and where the last ends
    columns: Mapping[str, Encoding]
    next: int = 0

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def bytes_of(self, count: int) -> int:
        """Bytes of so many samples from the next on."""
        return int(self.offsets[self.next + count] - self.offsets[self.next])

    def fitting(self, rows: int, size: int) -> int:
        """How many samples from the next on have `size` bytes at most; `rows` at most, and one at least."""
        last = int(np.searchsorted(self.offsets, self.offsets[self.next] + size, "right")) - 1
        return min(max(1, last - self.next), rows, len(self) - self.next)

    def take(self, count: int, names: Sequence[str]) -> dict[str, list[bytes]]:
        """Values of the next samples, by column, of these columns."""
        first, self.next = self.next, self.next + count
        edges = self.offsets[first : self.next + 1]
        data = _read(self.stream, int(edges[-1] - edges[0]), int(edges[0]))
        return self._cut(data, edges - edges[0], first, names)

    def _cut(self, data: bytes, edges: Array, first: int, names: Sequence[str]) -> dict[str, list[bytes]]:
        encodings = list(self.columns.values())
        any_size = [number for number, each in enumerate(encodings) if each.value_bytes is None]
        head = len(any_size) * _OFFSET.itemsize
        starts, lengths = edges[:-1], np.diff(edges)
        sizes = np.empty((len(starts), len(encodings)), "i8")
        sizes[:] = [each.value_bytes or 0 for each in encodings]
        if (lengths < head).any():
            raise _other_size(first, edges, lengths < head, "less than its head")
        heads = np.frombuffer(data, "u1")[starts[:, None] + np.arange(head)]
        sizes[:, any_size] = heads.reshape(len(starts), head).view(_OFFSET) if head else 0
        ends = (starts + head)[:, None] + np.cumsum(sizes, axis=1)
        if (wrong := ends[:, -1] != edges[1:]).any():
            raise _other_size(first, edges, wrong, "other than its values have together")
        numbers = {name: number for number, name in enumerate(self.columns) if name in names}
        bounds = {
            name: ((ends - sizes)[:, number].tolist(), ends[:, number].tolist()) for name, number in numbers.items()
        }
        return {name: [data[low:high] for low, high in zip(*both, strict=True)] for name, both in bounds.items()}


def _other_size(first: int, edges: Array, wrong: Array, what: str) -> Damage:
    number = int(np.argmax(wrong))
    size = int(edges[number + 1] - edges[number])
    return Damage(f"sample {first + number:,} has {size:,} bytes, {what}")


@contextmanager
def open_shard(location: str) -> Iterator[Shard]:
    """Raises Damage for a file that is no shard, or not whole. ValueError for a column that is not read."""
    with open_text(location) as stream:
        shard = _opened(stream)
        end = int(shard.offsets[-1])
        if not compression_of(location) and (size := os.path.getsize(location)) != end:
            raise Damage(f"it has {size:,} bytes, and its samples end at byte {end:,}")
        yield shard


def _opened(stream: BinaryIO) -> Shard:
    count = int(np.frombuffer(_read(stream, _OFFSET.itemsize, 0), _OFFSET)[0])
    offsets = np.frombuffer(_read(stream, _OFFSET.itemsize * (count + 1), _OFFSET.itemsize), _OFFSET).astype("i8")
    at = _OFFSET.itemsize * (count + 2)
    if not count or (np.diff(offsets) < 0).any() or not 0 <= offsets[0] - at <= _DESCRIPTION_BYTES:
        raise Damage(f"at byte 0 it has {count:,} for its samples, and the places behind are not those of samples")
    return Shard(stream, offsets, _columns(_read(stream, int(offsets[0]) - at, at), at))


def _columns(data: bytes, at: int) -> dict[str, Encoding]:
    try:
        facts: dict[str, Any] = json.loads(data)
        described = list(zip(*(_listed(facts, key) for key in _DESCRIBED), strict=True))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Damage(f"at byte {at:,} it has no description of its columns: {type(error).__name__}: {error}") from error
    columns: dict[str, Encoding] = {}
    for number, (name, word, size) in enumerate(described):
        _refuse_names(number, name, word, columns)
        try:
            columns[name] = encoding_of(word)
        except ValueError as error:
            raise ValueError(f"column {name!r} is {error}") from error
        if (columns[name].value_bytes or 0) != (size or 0):
            raise Damage(f"column {name!r} is {word!r}, and its values are said to have {size} bytes")
    if not columns:
        raise Damage(f"at byte {at:,} it describes no columns")
    return columns


def _listed(facts: dict[str, Any], key: str) -> list[Any]:
    if not isinstance(found := facts[key], list):
        raise TypeError(f"{key} is {found!r}, not a list")
    return found


def _refuse_names(number: int, name: Any, word: Any, before: Mapping[str, Encoding]) -> None:
    """Raise Damage for a column whose name or encoding is no text, or whose name another one has."""
    for what, each in (("name", name), ("encoding", word)):
        if not _is_text(each):
            raise Damage(f"column {number} of its description ({name!r}) has the {what} {each!r}, which is not text")
    if name in before:
        raise Damage(f"column {number} of its description has the name {name!r}, and so has another one")


def _is_text(value: Any) -> bool:
    """JSON can write half a surrogate pair, which no text has."""
    return isinstance(value, str) and value == value.encode(errors="replace").decode()


def _read(stream: BinaryIO, size: int, at: int) -> bytes:
    """So many bytes, all of them. A wrong number may ask for more than there are: they are not made room for."""
    pieces, left = [], size
    try:
        while left and (data := stream.read(min(left, _READ_AT_ONCE))):
            pieces.append(data)
            left -= len(data)
    except (OSError, BreaksOff) as error:
        raise Damage(f"it cannot be decompressed behind byte {at + size - left:,}: {error}") from error
    if left:
        raise Damage(f"it ends at byte {at + size - left:,}, and {size:,} bytes were to come from byte {at:,} on")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)
