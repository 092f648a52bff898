"""Slice: a piece of the input that one task reads. Cut from the input alone, never from the machine."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from penstock.base.sizes import counted
from penstock.prepare.rows.rows import SetAside, rejected_line


@dataclass(frozen=True, slots=True)  # there may be a million
class Segment:
    """A part of one file: row groups `first` to `last` of a Parquet file, or bytes of a text file.

    `path` is the file's name in positions and in the manifest, relative to its source; `location` is where this
    machine finds it. `ordinal` is the position of its first row. `rows` is -1 where only reading would tell.
    `keeps` are the ordinals of the rows that are read, from the first on to before the last; None is all of them.
    `encoding` is that of a text file, if it is not UTF-8; bytes are then counted as UTF-8.
    """

    source: int
    path: str
    location: str
    identity: str
    first: int
    last: int
    ordinal: int
    rows: int
    bytes: int
    keeps: tuple[int, int] | None = None
    encoding: str = ""

    @property
    def first_ordinal(self) -> int:
        """Ordinal of the first row that is read."""
        return self.keeps[0] if self.keeps else self.ordinal

    def set_aside(self, ordinal: int, reason: str, **facts: Any) -> SetAside:
        """A row of it that cannot be used, with what `rejected/` tells about it."""
        return SetAside(reason, 1, (rejected_line(self.source, self.path, ordinal, reason, **facts),))

    def __str__(self) -> str:
        return f"{self.path} [{self.first}:{self.last}]"

    def describe(self) -> list[Any]:
        """Identity of the segment, wherever it lies: part of a task's fingerprint."""
        kept = [list(self.keeps)] if self.keeps else []
        return [self.source, self.path, self.identity, self.first, self.last, *kept]


@dataclass(frozen=True)
class Slice:
    number: int
    segments: tuple[Segment, ...]
    first: int = 0  # segments of the slices before

    @property
    def rows(self) -> int:
        """-1 where unknown."""
        rows = [segment.rows for segment in self.segments]
        return -1 if -1 in rows else sum(rows)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    def __str__(self) -> str:
        more = f" and {counted(len(self.segments) - 1, 'more file')}" if len(self.segments) > 1 else ""
        return f"slice {self.number}: {self.segments[0]}{more}"


def cut_slices(
    pieces: Iterable[Segment], slice_bytes: int, most: int | None = None, most_rows: int | None = None
) -> tuple[Slice, ...]:
    """Fill slices with pieces in order, at most so many each, and so many rows as far as they are known. A piece is
    never cut: a large one has its own slice."""
    groups: list[list[Segment]] = []
    size = rows = 0
    for piece in pieces:
        too_many = most_rows is not None and rows + piece.rows > most_rows
        if not groups or size + piece.bytes > slice_bytes or len(groups[-1]) == most or too_many:
            groups.append([])
            size = rows = 0
        size += piece.bytes
        rows += max(0, piece.rows)
        if groups[-1] and _follows(groups[-1][-1], piece):
            groups[-1][-1] = _joined(groups[-1][-1], piece)
        else:
            groups[-1].append(piece)
    firsts = accumulate(map(len, groups), initial=0)
    return tuple(
        Slice(number, tuple(group), first) for number, (group, first) in enumerate(zip(groups, firsts, strict=False))
    )


def _follows(left: Segment, right: Segment) -> bool:
    is_next = (left.source, left.path, left.last) == (right.source, right.path, right.first)
    return is_next and left.keeps is None and right.keeps is None


def _joined(left: Segment, right: Segment) -> Segment:
    rows = -1 if -1 in (left.rows, right.rows) else left.rows + right.rows
    return replace(left, last=right.last, rows=rows, bytes=left.bytes + right.bytes)
