"""Order: bring the rows of a key together and in order, in bounded memory. The order is canonical: hash of key, key,
order columns, position, whatever the buckets.

The scatter side partitions rows into buckets, ranges of the key's hash, and spills them (spill.py). The gather side
takes one bucket, sorts it (`sort_rows`), and hands it to the stage that asked for the exchange. A bucket that does not
fit in memory is cut by `sort_words` first (merging.py): 64-bit words whose order, word after word, is the rows' order.

Within a column values ascend; NaN comes after all numbers, null after everything, -0.0 ties with 0.0.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.prepare.rows.hashing import combine, hash_distinct
from penstock.prepare.rows.spill import codes_of, combined

Array = np.ndarray[Any, Any]
BUCKETS_IN_A_SLICE = 8  # a bucket is sorted in memory, with copies; a slice only passes through
MOST_BUCKETS = 4096
_TOP = np.uint64(1 << 63)
_WORD_BITS = 63


@dataclass(frozen=True)
class Exchange:
    """Order of rows that a stage needs: those of equal `by` together, in the order of `order`, then of position."""

    by: tuple[str, ...]
    order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Bucket:
    """The rows of one range of hashes. It is to a gather task what a Slice is to the others."""

    number: int

    def __str__(self) -> str:
        return f"bucket {self.number}"


@dataclass(frozen=True)
class Sorted:
    """A run of rows in order. `starts` are the rows at which a key begins; the first run of a bucket has row 0."""

    batch: pa.RecordBatch
    starts: Array


def bucket_count(input_bytes: int, slice_bytes: int) -> int:
    """Number of buckets. It depends on the size of the data alone, so that every machine cuts alike."""
    return max(1, min(MOST_BUCKETS, -(-input_bytes * BUCKETS_IN_A_SLICE // max(slice_bytes, 1))))


def hash_keys(columns: list[pa.Array]) -> Array:
    """One uint64 per row: the hash that `split: {by: ...}` takes of the same columns."""
    return reduce(combine, [hash_distinct(column) for column in columns])


def bucket_numbers(hashes: Array, buckets: int) -> Array:
    """Equal ranges of the hash, so that the buckets one after the other are in the order of the hash."""
    return ((hashes >> np.uint64(32)) * np.uint64(buckets) >> np.uint64(32)).astype("u2")


def sort_rows(batches: Iterable[pa.RecordBatch], exchange: Exchange) -> Sorted:
    """Rows with their text as codes, which come in the order of their positions, in canonical order.

    It lets go of what it is done with as it goes: an iterator's batches, each column, the words that were sorted.
    """
    batch = combined(batches)
    names = batch.schema.names
    columns = dict(zip(names, batch.columns, strict=True))
    del batch
    ranks, keys = _key_ranks([columns[name] for name in exchange.by])
    codes = [(ranks, keys), *(_dense_codes(columns[name]) for name in exchange.order)]
    order = _argsort(codes)
    del codes
    ranks = ranks[order]
    starts = np.flatnonzero(np.concatenate([np.ones(min(1, len(ranks)), bool), ranks[1:] != ranks[:-1]]))
    indices = pa.array(order)
    arrays = [pc.take(columns.pop(name), indices, boundscheck=False) for name in names]
    return Sorted(pa.RecordBatch.from_arrays(arrays, names=names), starts)


def _key_ranks(columns: list[pa.Array]) -> tuple[Array, int]:
    """(each row's place among the distinct keys ordered by hash and then by value, how many keys there are)."""
    ids = _ids(columns[0])
    for column in columns[1:]:
        more = _ids(column)
        ids = _ids(pa.array(ids * (more.max(initial=0) + 1) + more))
    first = _first_rows(ids)
    used = np.flatnonzero(first >= 0)
    values = [column.take(pa.array(first[used])) for column in columns]  # one row a key
    order = np.lexsort([*reversed([_dense_codes(value)[0] for value in values]), hash_keys(values)])
    ranks = np.zeros(len(first), "i8")
    ranks[used[order]] = np.arange(len(order))
    return ranks[ids], len(order)


def _ids(column: pa.Array) -> Array:
    """A number from 0 upwards for each distinct value; null is one of them."""
    if pa.types.is_floating(column.type):  # all NaNs are one key, and so are -0.0 and 0.0
        column = pa.array(float_words(column), mask=np.asarray(column.is_null()))
    encoded = column if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    return codes_of(encoded, len(encoded.dictionary)).astype("i8")


def _first_rows(ids: Array) -> Array:
    """The first row of each number, or -1 where no row has it."""
    first = np.full(int(ids.max(initial=-1)) + 1, -1)
    first[ids[::-1]] = np.arange(len(ids))[::-1]
    return first


def _dense_codes(column: pa.Array) -> tuple[Array, int]:
    """(whole numbers from 0 upwards that order like the column, how many there may be)."""
    if pa.types.is_dictionary(column.type):
        words = _text_ranks(column)
    else:
        words = _words(column)
    valid = None
    if column.null_count:
        valid = np.asarray(column.is_valid())
        words = words[valid]
    low, high = (int(words.min()), int(words.max())) if len(words) else (0, 0)
    if high - low >= 2**_WORD_BITS - 1:  # as wide as the word: rank them, to leave room for null
        distinct, words = np.unique(words, return_inverse=True)
        low, high = 0, len(distinct)
    codes = (words - np.asarray(low).astype(words.dtype)).astype("i8")
    if valid is not None:
        present, codes = codes, np.full(len(column), high - low + 1)
        codes[valid] = present
    return codes, high - low + 2


def _text_ranks(column: pa.DictionaryArray) -> Array:
    """Each row's place among the distinct texts in bytewise order; a null has any number."""
    order = np.asarray(pc.sort_indices(column.dictionary.cast(pa.large_binary())))
    ranks = np.empty(len(order) + 1, "i8")
    ranks[order] = np.arange(len(order))
    ranks[-1] = 0
    found: Array = ranks[codes_of(column, len(order))]
    return found


def _words(column: pa.Array) -> Array:
    """Fixed-width values as uint64 of the same order; a null has any word."""
    if pa.types.is_temporal(column.type):
        column = column.view(pa.int64() if column.type.bit_width == 64 else pa.int32())
    kind = column.type
    if column.null_count:
        column = column.fill_null(pa.scalar(False if pa.types.is_boolean(kind) else 0, kind))
    if pa.types.is_boolean(kind):
        return np.asarray(column.cast(pa.uint8())).astype("u8")
    if pa.types.is_floating(kind):
        return float_words(column)
    if pa.types.is_unsigned_integer(kind):
        return np.asarray(column).astype("u8")
    return np.asarray(column).astype("i8").view("u8") ^ _TOP


def float_words(column: pa.Array) -> Array:
    """IEEE order as unsigned order: negative numbers are turned over, all NaNs are one, above infinity."""
    values = np.asarray(column.fill_null(0.0) if column.null_count else column).astype("f8") + 0.0
    values[np.isnan(values)] = np.nan
    bits = values.view("u8")
    return np.where(bits & _TOP, ~bits, bits | _TOP)


def _argsort(codes: list[tuple[Array, int]]) -> Array:
    """The stable order of rows by several columns of codes, in one sort of packed words where they fit into one."""
    packed = np.zeros(len(codes[0][0]), "i8")
    bits_used = 0
    for column, count in codes:
        bits = (count - 1).bit_length()
        bits_used += bits
        if bits_used > _WORD_BITS:
            return np.lexsort([column for column, _ in reversed(codes)])
        packed = packed << bits | column
    return _argsort_words(packed, bits_used)


def _argsort_words(words: Array, bits: int) -> Array:
    """The stable order of whole numbers below 2^bits.

    Sorting values is several times as fast as sorting indices. So each row's number goes into the low bits of its
    word, which also keeps ties in position. Where both do not fit, the word loses its lowest bits, and the few rows
    that this leaves in the wrong order are sorted once more.
    """
    row_bits = max(len(words) - 1, 0).bit_length()
    lost = max(0, bits + row_bits - _WORD_BITS)
    keys = (words >> lost << row_bits) | np.arange(len(words))
    keys.sort()
    order = keys & ((1 << row_bits) - 1)
    if lost:
        sorted_words = words[order]
        if (sorted_words[1:] < sorted_words[:-1]).any():
            _mend(order, keys >> row_bits, sorted_words)
    return order


def _mend(order: Array, coarse: Array, words: Array) -> None:
    """Sort again, in place, the runs of rows that are equal in what was left of their words."""
    equal = coarse[1:] == coarse[:-1]
    tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
    order[tied] = order[tied][np.lexsort([order[tied], words[tied], coarse[tied]])]


# Words for what does not fit in memory.

Name = tuple[int, int, int]  # names of words sort as the words count: column, part of it, number of the part


@dataclass(frozen=True)
class Word:
    """One 64-bit word of every row of a batch; of text, only each distinct one is looked at."""

    name: Name
    values: Callable[[], Array]
    codes: Array | None = None  # of each row, where `values` are those of distinct texts

    def of_rows(self) -> Array:
        values = self.values()
        return values if self.codes is None else values[self.codes]

    def sample(self, values: Array, most: int) -> Array:
        """A sample of the rows' words, spread over the batch: a copy, because a view would keep them all in memory."""
        if self.codes is None:
            return values[:: 1 + len(values) // most].copy()
        return values[self.codes[:: 1 + len(self.codes) // most]]


def sort_words(batch: pa.RecordBatch, exchange: Exchange) -> Iterator[Word]:
    """Words that, one after the other, order rows as `sort_rows` does.

    A later word only counts among rows whose earlier words are equal. How many words a text has depends on the
    longest of the batch; a missing one counts as 0.
    """
    yield Word((0, 0, 0), lambda: hash_keys([batch.column(name) for name in exchange.by]))
    for number, name in enumerate((*exchange.by, *exchange.order), start=1):
        yield from _column_words(number, batch.column(name))


def _column_words(number: int, column: pa.Array) -> Iterator[Word]:
    yield Word((number, 0, 0), lambda: np.asarray(column.is_null()).astype("u8"))
    if not pa.types.is_dictionary(column.type):
        yield Word((number, 1, 0), lambda: _words(column))
        return
    texts = column.dictionary.cast(pa.large_binary())
    if column.null_count:
        texts = pa.concat_arrays([texts, pa.array([b""], pa.large_binary())])
    codes = codes_of(column, len(texts) - 1)
    used = np.flatnonzero(np.bincount(codes, minlength=len(texts)))
    if len(used) < len(texts):  # a text that no row has must not count
        codes, texts = np.searchsorted(used, codes), texts.take(pa.array(used))
    lengths = np.asarray(pc.binary_length(texts)).astype("u8")
    for part in range(-(-int(lengths.max(initial=0)) // 8)):
        yield Word((number, 1, part), lambda part=part: _text_words(texts, part), codes)  # type: ignore[misc]
    yield Word((number, 2, 0), lambda: lengths, codes)


def _text_words(texts: pa.Array, number: int) -> Array:
    """Bytes 8n to 8n + 8 of each text as one big-endian word, with zeros behind its end."""
    pieces = pc.binary_slice(texts, 8 * number, 8 * number + 8)
    padded = [piece.ljust(8, b"\0") for piece in pieces.to_pylist()]
    return np.frombuffer(b"".join(padded), ">u8").astype("u8")
