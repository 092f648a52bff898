"""Order: the records that the rows of a batch draw, compiled. ../order/order.py is the plain version."""

from typing import Any, NamedTuple

import numpy as np

from penstock.loader.compiled.counter import chain, permute
from penstock.loader.compiled.jit import jit, jit_part
from penstock.loader.order import order
from penstock.loader.order.counter import MIX, ORDER, ROW, SIZING

_CHECKPOINT = order.CHECKPOINT
_ROWS, _PLACES, _DRAWS, _FIRST_SHARD, _END_SHARD, _FIRST_CONTEXT, _FIRST_CHECKPOINT, _CHECKPOINTS = range(8)


class OrderTable(NamedTuple):
    """An Order as arrays. `streams` has one row per dataset; the others run through all datasets in turn."""

    seed: int
    shuffle: bool
    rows: int  # -1: no end
    shares: Any
    before: Any  # rows of each dataset that an earlier phase took
    skipped: Any  # rows that an earlier phase skipped, of all datasets in turn
    skips: Any  # of each dataset: its first row there; and the end of the last
    streams: Any
    starts: Any  # of each shard: its first record in its dataset
    contexts: Any
    checkpoints: Any  # the contexts before every 256th record


def make_table(made: order.Order) -> OrderTable:
    streams, starts, contexts, checkpoints = [], [np.empty(0, "i8")], [np.empty(0, "u1")], [np.empty(0, "i8")]
    shard = context = checkpoint = 0
    for stream in made.streams:
        own = np.empty(0, "u1") if stream.contexts is None else stream.contexts
        sums = _checkpoints(own)
        shards = len(stream.shard_records)
        streams.append(
            [stream.rows, stream.places, stream.draws, shard, shard + shards, context, checkpoint, len(sums)]
        )
        starts.append(np.cumsum([0, *stream.shard_records], dtype="i8")[:-1])
        contexts.append(own)
        checkpoints.append(sums)
        shard, context, checkpoint = shard + shards, context + len(own), checkpoint + len(sums)
    return OrderTable(
        seed=np.uint64(made.seed),  # type: ignore[arg-type]
        shuffle=made.shuffle,
        rows=-1 if made.rows is None else made.rows,
        shares=np.array(made.shares, "i8"),
        before=np.array(made.starts, "i8"),
        skipped=_skipped(made),
        skips=_skips(made),
        streams=np.array(streams, "i8"),
        starts=np.concatenate(starts),
        contexts=contexts[1] if len(made.streams) == 1 else np.concatenate(contexts),  # a byte per record: no copy
        checkpoints=np.concatenate(checkpoints),
    )


def of_phase(table: OrderTable, made: order.Order) -> OrderTable:
    """The table of another phase over the same datasets: what is large is shared."""
    return table._replace(
        rows=-1 if made.rows is None else made.rows,
        shares=np.array(made.shares, "i8"),
        before=np.array(made.starts, "i8"),
        skipped=_skipped(made),
        skips=_skips(made),
    )


def _skipped(made: order.Order) -> Any:
    return np.array([row for rows in made.skipped for row in rows], "i8")


def _skips(made: order.Order) -> Any:
    return np.cumsum([0, *map(len, made.skipped or ((),) * len(made.streams))], dtype="i8")


def _checkpoints(contexts: Any) -> Any:
    """The contexts before every 256th record, the first included."""
    whole = contexts[: max(0, len(contexts) - 1) // _CHECKPOINT * _CHECKPOINT].reshape(-1, _CHECKPOINT)
    sums = np.zeros(len(whole) + 1 if len(contexts) else 0, "i8")
    np.cumsum(whole.sum(axis=1, dtype="i8"), out=sums[1:])
    return sums


def draw(table: OrderTable, first: int, count: int) -> order.Draws:
    drawn = order.empty_draws(count, int(table.streams[:, _DRAWS].max()))
    _draw(table, first, drawn.shards, drawn.records, drawn.keys)
    return drawn


@jit
def _draw(table: Any, first: int, shards: Any, records: Any, keys: Any) -> None:
    for i in range(len(shards)):
        row = first + i
        if table.rows >= 0 and row >= table.rows:
            return
        dataset, own = _dataset(table, row)
        stream = table.streams[dataset]
        epoch, number = own // stream[_ROWS], own % stream[_ROWS]
        order_key = chain(chain(chain(chain(np.uint64(0), table.seed), ORDER), dataset), epoch)
        keys[i] = chain(chain(chain(chain(chain(np.uint64(0), table.seed), ROW), dataset), epoch), number)
        for j in range(stream[_DRAWS]):
            spot = number * stream[_DRAWS] + j
            if table.shuffle:
                spot = permute(spot, stream[_PLACES], order_key)
            if stream[_CHECKPOINTS]:
                spot = _record_of(table, stream, spot)
            shard = _last_at_most(table.starts, stream[_FIRST_SHARD], stream[_END_SHARD], spot)
            shards[i, j], records[i, j] = shard, spot - table.starts[shard]


@jit
def draw_sizing(number: int, before: int, starts: Any, most: int, shards: Any, records: Any, keys: Any) -> None:
    """The draws that the records of a row are counted by: ../kinds/sizing.py has them in plain arithmetic.

    `starts` has the first record of each shard of the dataset, and then how many records there are.
    """
    last = len(starts) - 1
    sizing_key = chain(chain(chain(np.uint64(0), 0), SIZING), number)
    for row in range(len(shards)):
        keys[row] = chain(sizing_key, row)
        for j in range(shards.shape[1]):
            spot = permute((row * most + j) % starts[last], starts[last], sizing_key)
            shard = _last_at_most(starts, 0, last, spot)
            shards[row, j], records[row, j] = before + shard, spot - starts[shard]


@jit_part
def _dataset(table: Any, row: int) -> tuple[int, int]:
    if len(table.shares) == 1:
        return 0, table.before[0] + row
    size = table.shares.sum()
    block = row // size
    mix_key = chain(chain(chain(np.uint64(0), table.seed), MIX), block)
    spot, dataset = permute(row % size, size, mix_key), 0
    while spot >= table.shares[dataset]:
        spot -= table.shares[dataset]
        dataset += 1
    own = block * table.shares[dataset] + spot
    if own < table.skips[dataset + 1] - table.skips[dataset]:
        return dataset, table.skipped[table.skips[dataset] + own]
    return dataset, table.before[dataset] + own


@jit_part
def _record_of(table: Any, stream: Any, context: int) -> int:
    """The record that a context of a dataset belongs to."""
    first = stream[_FIRST_CHECKPOINT]
    checkpoint = _last_at_most(table.checkpoints, first, first + stream[_CHECKPOINTS], context)
    left = context - table.checkpoints[checkpoint]
    record = (checkpoint - first) * _CHECKPOINT
    while left >= table.contexts[stream[_FIRST_CONTEXT] + record]:
        left -= table.contexts[stream[_FIRST_CONTEXT] + record]
        record += 1
    return record


@jit_part
def _last_at_most(values: Any, low: int, high: int, wanted: int) -> int:
    """The last place in [low, high) whose value is at most `wanted`; values go up, and the first one is."""
    while high - low > 1:
        middle = (low + high) // 2
        if values[middle] <= wanted:
            low = middle
        else:
            high = middle
    return low
