"""Merging: sorts the rows of one bucket from all spills, in bounded memory. Next: the stage that asked for them.

A bucket that fits is sorted at once. One that does not is cut: its rows are written again in ranges of the first
word in which they differ, and each range is gathered in turn. Rows that differ in no word are in order already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa

from penstock.base.stores.scratch import Scratch, borrow_scratch, return_scratch
from penstock.base.stores.store import Store
from penstock.prepare.rows.container import ContainerWriter
from penstock.prepare.rows.order import Array, Exchange, Name, Sorted, Word, sort_rows, sort_words
from penstock.prepare.rows.spill import Chunks, SpillWriter, read_chunks, with_codes

_MOST_RANGES = 256
_SAMPLES_A_CHUNK = 64


@dataclass(frozen=True)
class Gathering:
    """Order of a gathering, and how many bytes of rows it sorts at once."""

    store: Store
    exchange: Exchange
    sort_bytes: int
    range_bytes: int  # where a bucket has more, how many in each of the ranges it is cut into
    moved: Callable[[int], None]  # told of rows as they are read, some more than once


def gather(how: Gathering, chunks: Sequence[Chunks]) -> Iterator[Sorted]:
    """The rows of a bucket in canonical order. Its chunks stand in the order of their rows' positions."""
    last: pa.RecordBatch | None = None
    for run in _sorted(how, chunks):
        yield _continued(last, run, how.exchange)
        last = _key(run.batch.slice(run.batch.num_rows - 1), how.exchange.by)


def _continued(last: pa.RecordBatch | None, run: Sorted, exchange: Exchange) -> Sorted:
    """Join runs: if the first row of a run has the key of the row before it, no new key begins there."""
    if last is None:
        return run
    pair = [last, _key(run.batch, exchange.by)]
    same = len(sort_rows(pair, Exchange(exchange.by)).starts) == 1
    return Sorted(run.batch, run.starts[1:]) if same else run


def _key(batch: pa.RecordBatch, by: tuple[str, ...]) -> pa.RecordBatch:
    """The key of the first row, as a batch that does not hold on to the others."""
    first = batch.slice(0, 1).select(list(by))
    plain = [each.dictionary_decode() if pa.types.is_dictionary(each.type) else each for each in first.columns]
    return with_codes(pa.RecordBatch.from_arrays(plain, names=list(by)))


def _sorted(how: Gathering, chunks: Pieces) -> Iterator[Sorted]:
    size = sum(each.decoded_bytes for each in chunks)
    if size <= how.sort_bytes:
        if size:
            yield sort_rows(_read(how, chunks), how.exchange)
        return
    ranges = _find_ranges(how, chunks)
    if ranges is None:
        yield from _as_they_are(how, chunks)
        return
    scratch = borrow_scratch(how.store.scratch_folder)
    try:
        heavy = _write_ranges(how, chunks, ranges, scratch)
        finer = replace(how, sort_bytes=how.range_bytes)
        for number in range(len(ranges.edges) + 1):
            part = heavy if number == ranges.heavy else read_chunks(scratch, number)
            yield from _sorted(finer, [part])
    finally:
        return_scratch(scratch)


def _write_ranges(how: Gathering, chunks: Pieces, ranges: _Ranges, scratch: Scratch) -> _Only:
    """Write the rows by range. Those of the heavy range stay where they are; `_Only` finds them again by their word."""
    heavy_bytes = 0
    writer = SpillWriter(ContainerWriter(scratch), len(ranges.edges) + 1, how.range_bytes // 4)
    for batch in _read(how, chunks):
        numbers = ranges.numbers(batch, how.exchange)
        others = numbers != ranges.heavy
        if not others.all():
            heavy_bytes += 1 + int(batch.nbytes * (1 - others.mean()))
            batch, numbers = batch.filter(pa.array(others)), numbers[others]
        if batch.num_rows:
            writer.write(batch, numbers)
    writer.finish()
    return _Only(chunks, how.exchange, ranges, heavy_bytes)


@dataclass(frozen=True)
class _Only:
    """Rows of some chunks in the heavy range. They are read again from the chunks, not written a second time."""

    chunks: Pieces
    exchange: Exchange
    ranges: _Ranges
    decoded_bytes: int

    def read(self) -> Iterator[pa.RecordBatch]:
        for each in self.chunks:
            for batch in each.read():
                kept = batch.filter(pa.array(self.ranges.numbers(batch, self.exchange) == self.ranges.heavy))
                if kept.num_rows:
                    yield kept


Pieces = Sequence[Chunks | _Only]


def _read(how: Gathering, chunks: Pieces) -> Iterator[pa.RecordBatch]:
    for each in chunks:
        for batch in each.read():
            yield batch
            how.moved(batch.num_rows)


def _as_they_are(how: Gathering, chunks: Pieces) -> Iterator[Sorted]:
    """Rows that are equal in all sort columns: they stay in the order of their positions."""
    waiting: list[pa.RecordBatch] = []
    for batch in _read(how, chunks):
        if waiting and sum(each.nbytes for each in waiting) + batch.nbytes > how.range_bytes:
            yield sort_rows(waiting, how.exchange)
            waiting = []
        waiting.append(batch)
    if waiting:
        yield sort_rows(waiting, how.exchange)


@dataclass(frozen=True)
class _Ranges:
    """Rows are in range n when n of the edges are not above their word. A word that fills several is a heavy one."""

    name: Name
    edges: Array
    heavy: int = -1  # the range of the heaviest such word, which holds no other

    def numbers(self, batch: pa.RecordBatch, exchange: Exchange) -> Array:
        for word in sort_words(batch, exchange):
            if word.name == self.name:
                return np.searchsorted(self.edges, word.of_rows(), side="right").astype("u2")
        return np.zeros(batch.num_rows, "u2")


@dataclass
class _Span:
    """The least and greatest value of one word over the batches so far, and some of its values."""

    low: int
    high: int
    equal: int = 0  # batches in which all values were the same as before them: they need no samples
    samples: list[Array] = field(default_factory=list)

    def add(self, word: Word) -> None:
        values = word.values()
        self.low, self.high = min(self.low, int(values.min())), max(self.high, int(values.max()))
        if self.low == self.high:
            self.equal += 1
            return
        if self.equal:
            before = self.low if int(values.min()) > self.low else self.high
            self.samples.append(np.full(self.equal * _SAMPLES_A_CHUNK, before, "u8"))
            self.equal = 0
        self.samples.append(word.sample(values, _SAMPLES_A_CHUNK))


def _find_ranges(how: Gathering, chunks: Pieces) -> _Ranges | None:
    """Edges in the first word in which the rows differ; none where they differ in no word."""
    spans: dict[Name, _Span] = {}
    differing: Name | None = None  # the first that is known to; those behind it no longer matter
    unseen = 2**64  # a text's word that only later batches have was 0 in the earlier ones
    for batch in _read(how, chunks):
        found = set()
        for word in sort_words(batch, how.exchange):
            if differing is not None and word.name > differing:
                break
            span = spans.setdefault(word.name, _Span(unseen, 0))
            span.add(word)
            found.add(word.name)
            if span.low < span.high:
                differing = word.name
        for name in spans.keys() - found:
            spans[name].low = 0
        differing = min((name for name, span in spans.items() if span.low < span.high), default=None)
        unseen = 0
    if differing is None:
        return None
    span = spans[differing]
    sample = np.concatenate([*span.samples, np.array([span.low, span.high], "u8")])
    return _ranges(how, chunks, differing, sample, span)


def _ranges(how: Gathering, chunks: Pieces, name: Name, sample: Array, span: _Span) -> _Ranges:
    """Quantiles that cut into ranges of half of what fits; a word that fills several has a range to itself."""
    count = min(_MOST_RANGES, 1 + 2 * sum(each.decoded_bytes for each in chunks) // how.range_bytes)
    sample = np.sort(sample)
    quantiles = sample[np.arange(1, count) * len(sample) // count]
    heavy = quantiles[1:][quantiles[1:] == quantiles[:-1]]
    edges = np.unique(np.concatenate([quantiles, heavy + np.uint64(1)]))
    edges = edges[(edges > np.uint64(span.low)) & (edges <= np.uint64(span.high))]
    if not len(edges):
        return _Ranges(name, np.array([span.low + 1], "u8"))
    if not len(heavy):
        return _Ranges(name, edges)
    words, counts = np.unique(heavy, return_counts=True)
    return _Ranges(name, edges, int(np.searchsorted(edges, words[np.argmax(counts)], side="right")))
