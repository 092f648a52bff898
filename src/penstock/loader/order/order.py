"""Order: row numbers -> the records each row draws. Pure arithmetic on (datasets, recipe, seed). Next: kinds/.

A row of the stream belongs to one dataset, an epoch and a place in it; a keyed permutation says which records that
place holds. Nothing is shuffled in memory and nothing remembered, so any row can be asked for at any time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import Any, Literal, NamedTuple

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.numbers import is_positive
from penstock.loader.order.counter import MIX, ORDER, ROW, key, permute

Array = np.ndarray[Any, Any]
Remainder = Literal["drop", "pad"]
Fill = Literal["packed", "one_key"]
EVENTS_A_CONTEXT, MOST_CONTEXTS = 30, 16
CHECKPOINT = 256  # records between two sums of contexts: one is found by a look-up and a short walk
_FINEST_WEIGHT = 10**12  # a weight of 0.1 is meant as a tenth, and not as the binary fraction next to it
_EXACT_BLOCK = 1000  # rows: larger blocks mix no better, and a finite stream is a whole number of them
_EXACT_TO = 1000
MOST_BLOCK = 1_000_000  # rows, where a phase may end inside of a block


@dataclass(frozen=True)
class Stream:
    """The rows of one dataset: `draws` records each, or one context of one record where `contexts` counts them."""

    shard_records: tuple[int, ...]
    draws: int = 1
    contexts: Array | None = None  # of each record, one byte
    left_out: int = 0  # records that no row is made of

    @property
    def records(self) -> int:
        return sum(self.shard_records)

    @property
    def places(self) -> int:
        """Number of places that the permutation of an epoch runs over."""
        return self.records if self.contexts is None else int(self.contexts.sum(dtype="i8"))

    @property
    def rows(self) -> int:
        """Rows per epoch."""
        return self.places // self.draws


def contexts_of(events: Array) -> Array:
    """Number of contexts of records with these event counts."""
    contexts: Array = np.clip(-(-events // EVENTS_A_CONTEXT), 1, MOST_CONTEXTS).astype("u1")
    return contexts


def whole_shares(weights: Sequence[float | Fraction], where: str = "load(weights=...)") -> tuple[int, ...]:
    """Weights as whole numbers in their ratio: 0.7 and 0.3 become 7 and 3.

    The smallest that are exact, if their sum is small; otherwise the smallest of which each is exact to a thousandth.
    """
    wrong = [weight for weight in weights if not is_positive(weight)]
    if wrong:
        raise ConfigError(
            f"weights= must be numbers above 0, and one is {wrong[0]!r}",
            where=where,
            next_step="one finite number above 0 for each dataset; leave out a dataset whose share is 0",
        )
    given = [Fraction(weight.item() if isinstance(weight, np.generic) else weight) for weight in weights]
    largest = max(given)
    if largest > _FINEST_WEIGHT * min(given):
        raise ConfigError(
            f"weights= are too far apart: {min(weights)!s:.12} and {max(weights)!s:.12}, and at most "
            f"{_FINEST_WEIGHT:,} to 1 can be kept",
            where=where,
            next_step="leave out the dataset with the smallest weight, or give it more",
        )
    exact = [(weight / largest).limit_denominator(_FINEST_WEIGHT) for weight in given]
    common = lcm(*(weight.denominator for weight in exact))
    shares = [int(weight * common) for weight in exact]
    if sum(shares) // gcd(*shares) > _EXACT_BLOCK:
        shares = _nearly(exact)
    divisor = gcd(*shares)
    return tuple(share // divisor for share in shares)


def _nearly(weights: Sequence[Fraction]) -> list[int]:
    """With the least weight at n rows, no other is rounded by more than half a row: n = 500 always does."""
    least = min(weights)
    for rows in range(1, _EXACT_TO // 2 + 1):
        shares = [round(rows * weight / least) for weight in weights]
        if all(
            abs(share * least - rows * weight) * _EXACT_TO <= rows * weight
            for share, weight in zip(shares, weights, strict=True)
        ):
            break
    return shares


@dataclass(frozen=True)
class Draws:
    """Draws of rows: shard and record of each, -1 where there is none, and each row's key."""

    shards: Array  # int32 [rows, draws]
    records: Array  # int64 [rows, draws]
    keys: Array  # uint64 [rows]


class Held(NamedTuple):
    """Records that rows are made of: one per row, or one per segment where the draws have several.

    With `has_segments`, rows are tokens, and `inputs_segmentation` numbers their segments. With `by_documents`, these
    are the documents of the row's record, in order.
    """

    records: Draws
    has_segments: bool = False
    by_documents: bool = False


@dataclass(frozen=True)
class Order:
    """Rows of a stream that mixes datasets by their shares, from where each dataset stands (`before`) on.

    A phase may end inside of a block, which has then drawn some rows of a dataset and skipped others before them. The
    next phase begins with those: no batch depends on where a later phase begins.
    """

    streams: tuple[Stream, ...]
    shares: tuple[int, ...]
    seed: int
    shuffle: bool = True
    epochs: int | tuple[int | None, ...] | None = None  # of each dataset, or of all alike
    before: tuple[int, ...] = ()  # rows of each dataset that an earlier phase took
    skipped: tuple[tuple[int, ...], ...] = ()  # of each dataset: rows that an earlier phase skipped, ascending
    end: int | None = None  # rows after which the next phase begins

    @property
    def draws(self) -> int:
        return max(stream.draws for stream in self.streams)

    @property
    def block(self) -> int:
        """Rows in which every dataset has its share exactly."""
        return sum(self.shares)

    @property
    def limits(self) -> tuple[int | None, ...]:
        """Epochs that each dataset has."""
        return self.epochs if isinstance(self.epochs, tuple) else (self.epochs,) * len(self.streams)

    @property
    def epochs_have(self) -> str:
        """Beginning of an error message: `1 epoch has`."""
        limits = set(self.limits)
        if len(limits) > 1:
            return f"max_epochs={list(self.limits)} leaves"
        return "1 epoch has" if limits == {1} else f"{limits.pop()} epochs have"

    @property
    def starts(self) -> tuple[int, ...]:
        """Rows of each dataset that were taken before."""
        return self.before or (0,) * len(self.streams)

    @property
    def rows(self) -> int | None:
        """Rows of the whole stream. It ends before a dataset is passed more often than its epochs say."""
        if self.end is not None:
            return self.end
        blocks = [
            (limit * stream.rows - start) // share
            for limit, stream, start, share in zip(self.limits, self.streams, self.starts, self.shares, strict=True)
            if limit is not None and share
        ]
        return self.block * min(blocks) if blocks else None

    @property
    def epoch_rows(self) -> int:
        """Rows until the first dataset has been passed once."""
        whole = [
            stream.rows * self.block // share for stream, share in zip(self.streams, self.shares, strict=True) if share
        ]
        return max(1, min(whole))

    def skipped_after(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """Rows of each dataset that rows of the stream before `rows` skipped."""
        blocks, count = divmod(rows, self.block)
        drawn = {self._spot(blocks, within) for within in range(count)}
        found = []
        for dataset, share in enumerate(self.shares):
            first = blocks * share
            end = max(first + share * (count > 0), len(self._skipped(dataset)))
            left = [own for own in range(first, end) if (dataset, own - first) not in drawn]
            found.append(tuple(self._row(dataset, own) for own in left))
        return tuple(found)

    def reached(self, rows: int) -> tuple[int, ...]:
        """Number after the last row of each dataset that rows of the stream before `rows` draw; 0 if they draw none."""
        blocks, count = divmod(rows, self.block)
        last = [blocks * share - 1 for share in self.shares]
        for within in range(count):
            dataset, spot = self._spot(blocks, within)
            last[dataset] = max(last[dataset], blocks * self.shares[dataset] + spot)
        return tuple(self._row(dataset, own) + 1 if own >= 0 else 0 for dataset, own in enumerate(last))

    def taken(self, rows: int) -> tuple[int, ...]:
        """Rows of each dataset before row `rows`, those of earlier phases included."""
        blocks, count = divmod(rows, self.block)
        taken = [start + blocks * share for start, share in zip(self.starts, self.shares, strict=True)]
        if count > MOST_BLOCK:  # too many to count; phases refuse such a block, and progress may be rounded
            return tuple(each + count * share // self.block for each, share in zip(taken, self.shares, strict=True))
        for within in range(count):
            taken[self._spot(blocks, within)[0]] += 1
        return tuple(taken)

    def place(self, row: int) -> tuple[int, int, int]:
        """The dataset that a row of the stream belongs to, and the epoch and row in it."""
        dataset, own = 0, row
        if len(self.streams) > 1:
            block, within = divmod(row, self.block)
            dataset, spot = self._spot(block, within)
            own = block * self.shares[dataset] + spot
        return dataset, *divmod(self._row(dataset, own), self.streams[dataset].rows)

    def _skipped(self, dataset: int) -> tuple[int, ...]:
        return self.skipped[dataset] if self.skipped else ()

    def _row(self, dataset: int, own: int) -> int:
        """Row of a dataset that is number `own` of those that this stream has of it."""
        skipped = self._skipped(dataset)
        return skipped[own] if own < len(skipped) else self.starts[dataset] + own

    def _spot(self, block: int, within: int) -> tuple[int, int]:
        """The dataset of a row of a block, and which of the dataset's rows of that block it is."""
        dataset, spot = 0, permute(within, self.block, key(self.seed, MIX, block))
        while spot >= self.shares[dataset]:
            spot -= self.shares[dataset]
            dataset += 1
        return dataset, spot

    def row_key(self, row: int) -> int:
        return key(self.seed, ROW, *self.place(row))

    def records_of(self, row: int) -> list[tuple[int, int]]:
        """(shard, record in it) of each draw of a row; shards are counted through all datasets."""
        dataset, epoch, number = self.place(row)
        stream, order_key = self.streams[dataset], key(self.seed, ORDER, dataset, epoch)
        before = sum(len(each.shard_records) for each in self.streams[:dataset])
        found = []
        for place in range(number * stream.draws, (number + 1) * stream.draws):
            spot = permute(place, stream.places, order_key) if self.shuffle else place
            if stream.contexts is not None:
                spot = int(np.searchsorted(np.cumsum(stream.contexts, dtype="i8"), spot, side="right"))
            starts = np.cumsum([0, *stream.shard_records])
            shard = int(np.searchsorted(starts, spot, side="right")) - 1
            found.append((before + shard, spot - int(starts[shard])))
        return found

    def draw(self, first: int, count: int) -> Draws:
        """Rows `first` and on, in plain arithmetic."""
        drawn = empty_draws(count, self.draws)
        for i in range(count):
            row = first + i
            if self.rows is not None and row >= self.rows:
                break
            for j, (shard, record) in enumerate(self.records_of(row)):
                drawn.shards[i, j], drawn.records[i, j] = shard, record
            drawn.keys[i] = self.row_key(row)
        return drawn


def empty_draws(rows: int, draws: int) -> Draws:
    return Draws(np.full((rows, draws), -1, "i4"), np.zeros((rows, draws), "i8"), np.zeros(rows, "u8"))
