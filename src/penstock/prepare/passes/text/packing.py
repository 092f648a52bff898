"""Packing: a stream of tokens -> rows of the dataset, each task a span of them. The worker's half of pack.py.

The documents of a split are one stream of tokens, in the order of their positions. Its length is known when all tasks
have put theirs down, and with it where every row begins; so any task can make its span of rows alone.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from penstock.base.faults import crash_point
from penstock.base.fingerprint import fingerprint
from penstock.base.stores import open_store
from penstock.prepare.budget.means import Settings
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.passes import Lost, Report, Task, Work
from penstock.prepare.passes.folds.shards import Shards, ShardsInto
from penstock.prepare.passes.text.token_stream import Array, Piece, Stream, TokenPart
from penstock.prepare.stages.text.kept import Kept
from penstock.prepare.stages.text.pack import Pack, packed_schema
from penstock.shards.manifest import Step
from penstock.shards.packed import DOCUMENTS, TAIL, TOKENS

TOKENS_AT_ONCE = 1 << 20
_MOST_DOCUMENTS = 1 << 17  # that are fitted together: some 12 MB of Python's numbers


@dataclass(frozen=True)
class Span:
    """The `number`-th of `count` equal spans of the dataset."""

    number: int
    count: int

    def of(self, total: int) -> tuple[int, int]:
        return total * self.number // self.count, total * (self.number + 1) // self.count

    def __str__(self) -> str:
        return f"span {self.number}"


@dataclass(frozen=True)
class PackWork(Work):
    parts: tuple[TokenPart, ...]
    pack: Pack
    into: ShardsInto
    columns: tuple[Kept, ...]  # of the parts, the tokens first
    of_origins: tuple[str, ...] = ()

    @cached_property
    def identity(self) -> str:
        """Identity of all that is to be packed: rows that were made of something else must not stay."""
        return fingerprint([part.content for part in self.parts])

    def execute(self, task: Task, settings: Settings, report: Report, lost: Lost = ()) -> LedgerRow:  # noqa: ARG002
        """Write the shards of one span, one per split."""
        span, store = task.input, open_store(self.root)
        assert isinstance(span, Span)
        given = documents = tail = 0
        with ExitStack() as stack:
            shards = Shards(store, self.into, span.number, stack, settings.hold_bytes)
            for split in self.into.splits:
                stream = Stream(store, self.parts, split, self.columns, self.of_origins)
                for batch in packed_rows(stream, self.pack, span):
                    shards.add(split, batch)
                    given += len(batch.column(TOKENS).flatten())
                    documents += len(batch.column(DOCUMENTS).flatten())  # or pieces of them
                    report(documents)
                tail += tail_of(stream, self.pack) if span.number == span.count - 1 else 0
            produced = shards.finish()
        crash_point("pack.before_ledger")
        tokens = Step("pack", TOKENS, given + tail, given, {TAIL: tail} if tail else {})
        steps = {DOCUMENTS: Step("pack", "", documents, documents), TOKENS: tokens}
        return LedgerRow(task.name, task.fingerprint, produced.shards, steps=steps)


def tail_of(stream: Stream, pack: Pack) -> int:
    """Tokens at the end that do not fill a row. Only `wrapped` has a tail."""
    return stream.total % pack.length if pack.method == "wrapped" else 0


def packed_rows(stream: Stream, pack: Pack, span: Span) -> Iterator[pa.RecordBatch]:
    """The rows of one span."""
    if pack.method == "wrapped":
        first, last = span.of(stream.total // pack.length)
        yield from _wrapped(stream, pack.length, first * pack.length, last * pack.length)
        return
    if pack.method == "none":
        yield from _one_each(stream, pack.length, *span.of(stream.total))
        return
    first, last = span.of(-(-stream.total // pack.window))
    for start in range(first * pack.window, last * pack.window, pack.window):
        for cuts in _cuts(stream, pack.length, start, start + pack.window):
            yield from _listed(cuts, best_fit(cuts.length, pack.length), stream)


def _wrapped(stream: Stream, length: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """Rows of `length` tokens from `first` to `last`, and where in them documents begin."""
    left = [np.empty(0, each.dtype) for each in stream.columns]  # tokens that wait, and what is beside them
    starts, at = np.empty(0, "i8"), first  # of their documents, where they stand
    origins = np.empty((0, len(stream.of_origins)), "i8")
    for piece in stream.pieces(first, last):
        low, high = max(first - piece.at, 0), min(last - piece.at, piece.count)
        starts, origins = np.concatenate([starts, piece.starts]), np.concatenate([origins, piece.origins])
        for start in range(low, high, TOKENS_AT_ONCE):
            some = _between(piece, start, min(start + TOKENS_AT_ONCE, high))
            joined = [np.concatenate(pair) for pair in zip(left, some, strict=True)]
            whole = len(joined[0]) // length * length
            if whole:
                begins = starts[(starts >= at) & (starts < at + whole)]
                segments = np.union1d(np.arange(at, at + whole, length), begins)
                own = origins[np.searchsorted(starts, segments, side="right") - 1]
                found = _Segments((segments - at) // length, own)
                yield _fixed_rows([each[:whole] for each in joined], length, begins - at, found, stream)
                at += whole
                running = max(0, int(np.searchsorted(starts, at, side="right")) - 1)
                starts, origins = starts[running:], origins[running:]
            left = [each[whole:].copy() for each in joined]


def _between(piece: Piece, low: int, high: int) -> list[Array]:
    """Values of each column for the tokens from `low` to `high` of a piece."""
    return [values.between(low, high) for values in piece.columns]


class _Segments(NamedTuple):
    """The segments of some rows, in order: the row of each, and the origin of its document."""

    rows: Array
    origins: Array  # with a number for each column that is kept


def _fixed_rows(values: list[Array], length: int, begins: Array, segments: _Segments, stream: Stream) -> pa.RecordBatch:
    counts = np.bincount(begins // length, minlength=len(values[0]) // length)
    lists = [pa.FixedSizeListArray.from_arrays(pa.array(each), length) for each in values]
    return _batch(lists, counts, begins % length, segments, stream)


def _batch(lists: list[pa.Array], counts: Array, begins: Array, segments: _Segments, stream: Stream) -> pa.RecordBatch:
    """Rows of tokens and what is beside them; `counts` documents begin in each, at `begins`."""
    tokens, *kept = lists
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype("i4")
    documents = pa.ListArray.from_arrays(pa.array(offsets), pa.array(begins.astype("i4")))
    length = tokens.type.list_size if pa.types.is_fixed_size_list(tokens.type) else 0
    schema = packed_schema(tokens.type.value_type, length, stream.columns[1:])
    batch = pa.RecordBatch.from_arrays([tokens, documents, *kept], schema=schema)
    return stream.with_origins(batch, *segments)


@dataclass(frozen=True)
class _Cuts:
    """Documents, or pieces of long ones, none longer than a row: in which piece of the stream, from where, how many."""

    views: list[Piece]
    view: Array
    start: Array
    length: Array
    origin: Array

    def values(self, column: int, numbers: Array) -> Array:
        """Values of one column for all tokens of these cuts."""
        places = zip(
            self.view[numbers].tolist(), self.start[numbers].tolist(), self.length[numbers].tolist(), strict=True
        )
        return np.concatenate([self.views[n].columns[column].between(at, at + size) for n, at, size in places])


def _cuts(stream: Stream, length: int, first: int, last: int) -> Iterator[_Cuts]:
    """Cuts of the documents that begin between `first` and `last`; of very short ones, so many at a time."""
    views: list[Piece] = []
    found = np.zeros((3 + len(stream.of_origins), 0), "i8")
    for piece in stream.pieces(first, last):
        starts, lengths = piece.starts - piece.at, piece.lengths
        here = (starts + piece.at >= first) & (starts + piece.at < last)
        starts, lengths, origins = starts[here], lengths[here], piece.origins[here]
        pieces = -(-lengths // length)
        nth = np.arange(int(pieces.sum())) - np.repeat(np.cumsum(pieces) - pieces, pieces)
        start = np.repeat(starts, pieces) + nth * length
        size = np.minimum(np.repeat(starts + lengths, pieces) - start, length)
        origin = np.repeat(origins, pieces, axis=0).T
        found = np.concatenate([found, [np.full(len(start), len(views)), start, size, *origin]], axis=1)
        views.append(piece)
        while found.shape[1] >= _MOST_DOCUMENTS:
            yield _cuts_of(views, found[:, :_MOST_DOCUMENTS])
            found = found[:, _MOST_DOCUMENTS:]
    if found.shape[1]:
        yield _cuts_of(views, found)


def _cuts_of(views: list[Piece], found: Array) -> _Cuts:
    """Cuts of rows of numbers: view, start, length, and what is kept of origins."""
    view, start, length = found[:3]
    return _Cuts(views, view, start, length, found[3:].T)


def _one_each(stream: Stream, length: int, first: int, last: int) -> Iterator[pa.RecordBatch]:
    """A row for each document that begins between `first` and `last`, several for a long one; tokens stay in order."""
    for piece in stream.pieces(first, last):
        begins = piece.starts
        here = (begins >= first) & (begins < last)
        sizes = _row_sizes(piece.lengths[here], length)
        origins = np.repeat(piece.origins[here], -(-piece.lengths[here] // length), axis=0)
        at = int(begins[here][0]) - piece.at if here.any() else 0
        rows = max(1, TOKENS_AT_ONCE // length)
        for row in range(0, len(sizes), rows):
            some = sizes[row : row + rows]
            offsets = np.concatenate([[0], np.cumsum(some)])
            values = [each.copy() for each in _between(piece, at, at + int(offsets[-1]))]
            segments = _Segments(np.arange(len(some)), origins[row : row + rows])
            yield _batch(_lists(values, offsets), np.ones(len(some), "i8"), np.zeros(len(some), "i8"), segments, stream)
            at += int(offsets[-1])


def _lists(values: list[Array], offsets: Array) -> list[pa.Array]:
    edges = pa.array(offsets.astype("i4"))
    return [pa.ListArray.from_arrays(edges, pa.array(each)) for each in values]


def _row_sizes(lengths: Array, length: int) -> Array:
    """Tokens of each row, where a document of more than `length` is cut into several."""
    rows = -(-lengths // length)
    sizes = np.full(int(rows.sum()), length)
    sizes[np.cumsum(rows) - 1] = lengths - (rows - 1) * length
    return sizes


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


def _listed(cuts: _Cuts, rows: Sequence[Array], stream: Stream) -> Iterator[pa.RecordBatch]:
    """Rows that hold these cuts each, some at a time."""
    waiting: list[Array] = []
    tokens = 0
    for number, row in enumerate(rows):
        waiting.append(row)
        tokens += int(cuts.length[row].sum())
        if tokens >= TOKENS_AT_ONCE or number == len(rows) - 1:
            yield _list_batch(cuts, waiting, stream)
            waiting, tokens = [], 0


def _list_batch(cuts: _Cuts, rows: list[Array], stream: Stream) -> pa.RecordBatch:
    numbers = np.concatenate(rows)
    counts = np.array([len(row) for row in rows])
    ends = np.cumsum(cuts.length[numbers])
    row_ends = ends[np.cumsum(counts) - 1]
    row_starts = np.concatenate([[0], row_ends[:-1]])
    begins = ends - cuts.length[numbers] - np.repeat(row_starts, counts)
    values = [cuts.values(column, numbers) for column in range(len(stream.columns))]
    segments = _Segments(np.repeat(np.arange(len(rows)), counts), cuts.origin[numbers])
    return _batch(_lists(values, np.concatenate([[0], row_ends])), counts, begins, segments, stream)
