"""Rows: a batch on its way through the stages, with where each row came from and what was set aside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.shown import Shown
from penstock.prepare.rows.jsonable import jsonable_values
from penstock.shards.packed import TOKENS

Array = np.ndarray[Any, Any]
INNER = TOKENS  # a column of lists whose values are counted with the rows, and their unit

# What a file is set aside for that a user's function was given.
RAISED, TOO_LARGE = "function raised", "function took too much memory"
DIED, HUNG = "function killed its worker", "function hung"
GIVEN_UP = (TOO_LARGE, DIED, HUNG)
_LINES = 256  # lines of rejected/ that are made at once
TOO_LARGE_PIECE = "too large to be tokenized in this memory"


@dataclass(frozen=True)
class SetAside:
    """Rows that are set aside, and why. `kept` lines go to `rejected/`; without them only the count is kept."""

    reason: str
    count: int
    kept: Sequence[dict[str, Any]] = ()
    inner: int = 0  # values of INNER in these rows, or in rows that go on without them
    advice: str = ""  # for bad input, which stops a job with `on_bad_input: fail`: what to do about it

    def between(self, first: int, last: int) -> SetAside:
        kept = [line for line in self.kept if first <= line["position"] < last]
        return self if len(kept) == len(self.kept) else replace(self, count=len(kept), kept=kept)


class _Lines(Sequence[dict[str, Any]]):
    """The lines of some rows, a few at a time when they are asked for: all at once they would outweigh the batch."""

    def __init__(self, rows: Rows, numbers: Array, reason: str, detail: Callable[[int], str] | None = None) -> None:
        self._rows, self._numbers, self._reason, self._detail = rows, numbers, reason, detail

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, index: Any) -> Any:
        return next(self._made(self._numbers[[index]]))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self._numbers), _LINES):
            yield from self._made(self._numbers[start : start + _LINES])

    def _made(self, numbers: Array) -> Iterator[dict[str, Any]]:
        for row, line in zip(numbers.tolist(), _lines(self._rows, numbers, self._reason), strict=True):
            yield {**line, "detail": self._detail(row)} if self._detail else line


@dataclass(frozen=True, repr=False)
class Rows(Shown):
    """Rows on their way through the stages: an Arrow batch, with the place in the input where each row was read.

    A stage gets Rows and returns Rows. It takes values from `batch`, changes columns with `with_batch`, and sets rows
    aside with `keep`. The other attributes travel along.

    Attributes:
        batch: The rows as a pyarrow.RecordBatch.
        source: Number of the source in the job's `input:`, from 0.
        paths: Files that the rows come from. Large files have batches of their own; small files share one.
        ordinals: Place of each row in its file: the number of the row in a Parquet file. In a text file, the byte where
            its segment starts plus its number in the segment, so that places do not change when the file grows.
        splits: Number of each row's split, from 0 for train. None before a `split` stage.
        set_aside: Rows that stages have set aside so far, with their reasons.
        made_of: Number of input rows that a function made these samples of, and the input rows that were set aside.
            None if each row is an input row.
        files: Number of each row's file in `paths`. None: all rows are of the first.
        pieces: Number of the input's piece that each path is of, if origins are kept.
        beside: Values that no stage sees, by name: one value, or array, per row.
    """

    batch: pa.RecordBatch
    source: int
    paths: tuple[str, ...]
    ordinals: Array
    splits: Array | None = None
    set_aside: tuple[SetAside, ...] = ()
    made_of: tuple[int, tuple[SetAside, ...]] | None = None
    files: Array | None = None
    pieces: tuple[int, ...] = ()
    beside: Mapping[str, Array] = field(default_factory=dict)  # see marks.py

    def facts(self) -> dict[str, str]:
        more = f" and {len(self.paths) - 1:,} more" if len(self.paths) > 1 else ""
        return {
            "rows": f"{len(self):,}",
            "columns": ", ".join(self.batch.schema.names),
            "from": f"{self.paths[0]}{more}" if self.paths else "no file",
            "set aside": f"{sum(each.count for each in self.set_aside):,}",
        }

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def path_of(self, row: int) -> str:
        """File that a row comes from.

        Args:
            row: Number of the row in `batch`.
        """
        return self.paths[0 if self.files is None else int(self.files[row])]

    def by_file(self) -> Iterator[tuple[str, slice]]:
        """Path of each file, and the range of its rows: rows of a file are adjacent."""
        files = np.zeros(len(self), "i8") if self.files is None else self.files
        edges = [0, *(np.flatnonzero(np.diff(files)) + 1).tolist(), len(self)]
        for start, stop in pairwise(edges):
            if stop > start:
                yield self.path_of(start), slice(start, stop)

    def with_batch(self, batch: pa.RecordBatch) -> Rows:
        """The rows with other columns.

        Args:
            batch: As many rows as before, in the same order.
        """
        return replace(self, batch=batch)

    def keep(self, mask: Array, reason: str, keep_rejected: bool = False) -> Rows:
        """Keep some of the rows. The others are set aside.

        Args:
            mask: One boolean per row, True to keep it.
            reason: Words under which the others are counted, such as "too short".
            keep_rejected: Write the others to rejected/ too. Default: False, only their number is kept.
        """
        if mask.all():
            return self
        return self._without(mask, reason, keep_rejected)

    def reject(self, mask: Array, reason: str, detail: Callable[[int], str], advice: str) -> Rows:
        """Like `keep`, but the others are bad input, which stops a job with `on_bad_input: fail`.

        Args:
            mask: One boolean per row, True to keep it.
            reason: Words under which the others are counted.
            detail: Says what is wrong with a row, given its number in `batch`.
            advice: Says what to do about it.
        """
        return self._without(mask, reason, True, detail, advice)

    def _without(
        self, mask: Array, reason: str, has_lines: bool, detail: Callable[[int], str] | None = None, advice: str = ""
    ) -> Rows:
        dropped = np.flatnonzero(~mask)
        lines = _Lines(self, dropped, reason, detail) if has_lines else ()
        aside = SetAside(reason, len(dropped), lines, self._inner_of(dropped), advice)
        return replace(
            self,
            batch=self.batch.filter(pa.array(mask)),
            ordinals=self.ordinals[mask],
            splits=None if self.splits is None else self.splits[mask],
            files=None if self.files is None else self.files[mask],
            set_aside=(*self.set_aside, aside),
            beside={name: values[mask] for name, values in self.beside.items()},
        )

    def between(self, first: int, last: int) -> Rows:
        """Rows, also those set aside, whose ordinals are in a range. The others are dropped without being counted.

        Args:
            first: First ordinal of the range.
            last: First ordinal after the range.
        """
        mask = (self.ordinals >= first) & (self.ordinals < last)
        aside = tuple(found for each in self.set_aside if (found := each.between(first, last)).count)
        if mask.all():
            return replace(self, set_aside=aside)
        beside = {name: values[mask] for name, values in self.beside.items()}
        kept = self.batch.filter(pa.array(mask)), self.ordinals[mask]
        return replace(self, batch=kept[0], ordinals=kept[1], set_aside=aside, beside=beside)

    @property
    def inner(self) -> int:
        """Number of tokens in all rows; 0 if there is no token column."""
        number = self.batch.schema.get_field_index(INNER)
        if number < 0 or not pa.types.is_list(self.batch.schema.field(number).type):
            return 0
        return len(self.batch.column(number).flatten())

    def _inner_of(self, numbers: Array) -> int:
        if not self.inner:
            return 0
        lengths = pc.list_value_length(self.batch.column(self.batch.schema.get_field_index(INNER)))
        return int(np.asarray(lengths.fill_null(0))[numbers].sum())

    def take_split(self, split: int, columns: tuple[str, ...] | None = None) -> pa.RecordBatch:
        """Rows of one split.

        Args:
            split: Number of the split; 0 is train.
            columns: Only these. Default: all.
        """
        batch = self.batch if columns is None else self.batch.select(list(columns))
        if self.splits is None:
            return batch if split == 0 else batch.slice(0, 0)
        mask = self.splits == split
        if not mask.any():
            return batch.slice(0, 0)
        return batch if mask.all() else batch.filter(pa.array(mask))

    def line(self, row: int, reason: str) -> dict[str, Any]:
        """Line of rejected/ with the values of a row.

        Args:
            row: Number of the row in `batch`.
            reason: Words under which it is counted.
        """
        return next(_lines(self, np.array([row]), reason))

    def rejected_line(self, number: int, reason: str, **facts: Any) -> dict[str, Any]:
        """Line of rejected/.

        Args:
            number: Number of the row in `batch`.
            reason: Words under which it is counted.
            facts: More entries of the line, by name.
        """
        return rejected_line(self.source, self.path_of(number), int(self.ordinals[number]), reason, **facts)


def _lines(rows: Rows, numbers: Array, reason: str) -> Iterator[dict[str, Any]]:
    """`Rows.line` of some rows."""
    names = rows.batch.schema.names
    columns = [jsonable_values(column, numbers) for column in rows.batch.columns]
    for place, number in enumerate(numbers.tolist()):
        values = {name: column[place] for name, column in zip(names, columns, strict=True)}
        yield rows.rejected_line(number, reason, row=values)


def join(held: Sequence[Rows]) -> Rows:
    """Rows of several files of one source, of one schema, as one batch."""
    if len(held) == 1:
        return held[0]
    table = pa.Table.from_batches([rows.batch for rows in held]).combine_chunks()
    return Rows(
        batch=table.to_batches()[0] if table.num_rows else held[0].batch,
        source=held[0].source,
        paths=tuple(rows.paths[0] for rows in held),
        ordinals=np.concatenate([rows.ordinals for rows in held]),
        set_aside=tuple(aside for rows in held for aside in rows.set_aside),
        files=np.repeat(np.arange(len(held)), [len(rows) for rows in held]),
        beside={name: np.concatenate([rows.beside[name] for rows in held]) for name in held[0].beside},
    )


def rejected_line(source: int, path: str, position: int | None, reason: str, **facts: Any) -> dict[str, Any]:
    """One line of `rejected/`: enough to find the row again, and the row itself where it could be read."""
    return {"source": source, "file": path, "position": position, "reason": reason, **facts}
