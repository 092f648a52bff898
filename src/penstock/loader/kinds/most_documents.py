"""Most documents: stored rows or draws -> how many documents a row may have, refused if some row has more."""

from collections.abc import Iterator

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.asked.opening import Asked
from penstock.loader.batches import Array
from penstock.loader.kind import Kind
from penstock.loader.tables import Shard
from penstock.shards.packed import DOCUMENTS, TOKENS, read_document_lengths

_OFFSETS_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 1 << 14  # whose documents are counted one by one
_MOST_TOKENS = 2**31 - 1  # cu_seqlens is int32


def allow_in_rows(kind: Kind, asked: Asked) -> int:
    """By the stored starts: one more than there are in a row, since 0 is understood. That is all the default reads.

    Where fewer are asked for, the documents of each row are counted.
    """
    given, shards = asked.options["max_documents"], [shard for dataset in asked.shards for shard in dataset]
    length = _row_length(kind, asked)
    most = min(length, max(map(_most_starts, shards)) + 1)
    if given is None or most <= given:
        return most if given is None else int(given)
    longest = more = 0
    for counts in (counts for shard in shards for counts in _documents(shard, length)):
        longest, more = max(longest, int(counts.max())), more + int(np.count_nonzero(counts > given))
    if more:
        raise _too_few(given, f"{more:,} rows have more documents, up to {longest:,}", longest)
    return int(given)


def allow_in_draws(kind: Kind, asked: Asked) -> int:
    """By the draws: a row of events has at most one segment for each."""
    given = asked.options["max_documents"]
    most = min(_row_length(kind, asked), max(stream.draws for stream in kind.streams))
    if given is not None and given < most:
        raise _too_few(given, f"a row of these events may have {most:,} segments", most)
    return most if given is None else int(given)


def _row_length(kind: Kind, asked: Asked) -> int:
    (length,), rows = kind.layout["inputs"][0], asked.rows
    if rows * (length + 1) > _MOST_TOKENS:
        raise ConfigError(
            f"{rows:,} rows of {length:,} tokens are more than int32 counts, and cu_seqlens is int32",
            where="load(documents='varlen')",
            next_step=f"a batch_size of at most {_MOST_TOKENS // (length + 1):,} rows per rank",
        )
    return length


def _too_few(given: int, found: str, most: int) -> ConfigError:
    return ConfigError(
        f"max_documents={given}, and {found}",
        where="load(max_documents=...)",
        next_step=f"max_documents={most}, or leave it out",
    )


def _most_starts(shard: Shard) -> int:
    if f"{DOCUMENTS}/offsets" not in shard:
        return 0
    most, offsets = 0, shard[f"{DOCUMENTS}/offsets"]
    for start in range(0, len(offsets) - 1, _OFFSETS_AT_ONCE):
        counts = np.diff(offsets.read(start, min(start + _OFFSETS_AT_ONCE + 1, len(offsets))))
        most = max(most, int(counts.max()))
    return most


def _documents(shard: Shard, length: int) -> Iterator[Array]:
    """Documents of each row among its first `length` tokens, some rows at a time."""
    rows = len(shard[f"{DOCUMENTS}/offsets"]) - 1
    for start in range(0, rows, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, rows)
        edges = np.concatenate([[0], np.cumsum(np.minimum(_sizes(shard, start, stop), length))])
        yield np.diff(read_document_lengths(shard, edges, start, stop)[1])


def _sizes(shard: Shard, start: int, stop: int) -> Array:
    """Tokens of each row."""
    if f"{TOKENS}/offsets" in shard:
        return np.diff(shard[f"{TOKENS}/offsets"].read(start, stop + 1))
    return np.full(stop - start, shard[TOKENS].array.shape[1])
