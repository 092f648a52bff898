"""Row range: `train[10%:20%]` -> the name of a split and some of its rows -> the pieces of files that hold them.

It means what it means to the `datasets` library: rows or percent, from the end where negative, percent rounded to the
closest row. Files that do not tell how many rows they have are read to find out: up to the last row that is wanted, or
whole where the range counts from the end or in percent. Then the pieces with an end of the range are read again.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.base.errors import InputError
from penstock.prepare.rows.rows import Array, Rows
from penstock.prepare.sources import Reading, UnreadablePart, read_segment
from penstock.prepare.sources.slices import Segment

_BOUND = r"(-?\d[\d_]*)(%?)"
_RANGE = re.compile(rf"(?P<split>[^\[\]()]+)\[(?:{_BOUND})?:(?:{_BOUND})?\]")
_EXAMPLES = "train[:1000], train[10%:20%] or train[-100:]"


@dataclass(frozen=True)
class RowRange:
    """Rows `start` to `stop` of a split, as Python counts them; None is an open end."""

    split: str
    start: int | None
    stop: int | None
    in_percent: bool

    def __str__(self) -> str:
        unit = "%" if self.in_percent else ""
        start, stop = ("" if bound is None else f"{bound}{unit}" for bound in (self.start, self.stop))
        return f"{self.split}[{start}:{stop}]"

    @property
    def needs_count(self) -> bool:
        """Whether it depends on how many rows there are in all."""
        return self.in_percent or any(bound is not None and bound < 0 for bound in (self.start, self.stop))

    def of(self, rows: int) -> tuple[int, int]:
        """(first, last) of so many rows."""
        first = 0 if self.start is None else self._absolute(self.start, rows)
        last = rows if self.stop is None else self._absolute(self.stop, rows)
        return min(first, rows), min(last, rows)

    def _absolute(self, bound: int, rows: int) -> int:
        bound = round(bound * rows / 100.0) if self.in_percent else bound
        return max(rows + bound, 0) if bound < 0 else bound


def parse_split(text: str) -> RowRange | None:
    """The range that a `split:` names; None for a whole split. Raises ValueError for what is neither."""
    if "+" in text or not re.search(r"[\[\]()]", text):
        return None
    found = _RANGE.fullmatch(text)
    if not found:
        raise ValueError(f"{text!r} is not a range of rows; write {_EXAMPLES}, with percent rounded to the closest row")
    bounds = [None if word is None else int(word) for word in found.group(2, 4)]
    units = {unit for word, unit in (found.group(2, 3), found.group(4, 5)) if word is not None}
    if len(units) > 1:
        raise ValueError(f"{text!r} mixes rows and percent; write both in the same unit, such as {_EXAMPLES}")
    in_percent = units == {"%"}
    for bound in bounds:
        if in_percent and bound is not None and abs(bound) > 100:
            raise ValueError(f"{text!r}: {bound}% is more than all rows")
    rows = RowRange(found["split"], bounds[0], bounds[1], in_percent)
    signs = {bound < 0 for bound in bounds if bound is not None}
    if None not in bounds and len(signs) == 1 and bounds[0] >= bounds[1]:  # type: ignore[operator]
        raise ValueError(f"{text!r} is an empty range: it ends before it begins")
    return rows


def pieces_in_range(source: int, pieces: Sequence[Segment], rows: RowRange, reading: Reading) -> list[Segment]:
    """The pieces of a source that hold rows of the range; those at its ends keep some of their rows only."""
    counts = [_count(piece, reading) if rows.needs_count else piece.rows for piece in pieces]
    total = sum(counts) if rows.needs_count else None
    first, last = rows.of(1 << 62 if total is None else total)
    found = []
    before = 0
    for piece, count in zip(pieces, counts, strict=True):
        if before >= last:
            break
        if 0 <= count <= first - before:
            cut = None
        elif 0 <= count <= last - before and first <= before:
            cut = piece
        else:  # an end of the range lies in it
            cut, count = _cut(piece, first - before, last - before, reading)
        before += count
        found += [cut] if cut else []
    if not found:
        raise InputError(
            f"`split: {rows}` holds no row: there are {before if total is None else total:,} in all",
            where=", ".join([f"input[{source}]", *(piece.location for piece in pieces[:1])]),
            next_step="choose a range within them",
        )
    return found


def _cut(piece: Segment, first: int, last: int, reading: Reading) -> tuple[Segment | None, int]:
    """(the piece with its rows `first` to `last`, how many it was seen to have)."""
    if piece.rows >= 0:
        start, stop = max(first, 0), min(last, piece.rows)
        if start >= stop:
            return None, piece.rows
        size = max(1, piece.bytes * (stop - start) // piece.rows)
        kept = replace(piece, keeps=(piece.ordinal + start, piece.ordinal + stop), rows=stop - start, bytes=size)
        return kept, piece.rows
    start, seen, held = max(first, 0), 0, 0
    low = high = None
    for ordinals, size in _ordinals(piece, reading):
        held += size
        if seen <= start < seen + len(ordinals):
            low = int(ordinals[start - seen])
        if seen < last <= seen + len(ordinals):
            high = int(ordinals[last - 1 - seen]) + 1
        seen += len(ordinals)
        if high is not None:
            break
    if low is None:
        return None, seen
    if high is None and start == 0:
        return piece, seen
    kept_rows = min(last, seen) - start
    size = max(1, min(piece.bytes, kept_rows * held // seen))
    return replace(piece, keeps=(low, 1 << 62 if high is None else high), bytes=size), seen


def _count(piece: Segment, reading: Reading) -> int:
    return piece.rows if piece.rows >= 0 else sum(len(ordinals) for ordinals, _ in _ordinals(piece, reading))


def _ordinals(piece: Segment, reading: Reading) -> Iterator[tuple[Array, int]]:
    """(where its rows stand, bytes) of one batch after the other; a row that cannot be read is a row, too."""
    try:
        for rows in read_segment(piece, reading, frozenset()):
            if not isinstance(rows, Rows):
                raise rows
            bad = [line["position"] for aside in rows.set_aside for line in aside.kept]
            yield np.sort(np.concatenate([rows.ordinals, np.array(bad, "i8")])), int(rows.batch.nbytes)
    except UnreadablePart as error:
        raise InputError(
            f"a range of rows needs their number, but the rows cannot be counted: {error.reason}",
            where=piece.location,
            next_step="replace the file, or leave it out of the input",
        ) from error
