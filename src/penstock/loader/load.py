"""Load: paths and options -> a Loader, everything decided and refused before the first batch. `penstock.load`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from penstock.base import machine
from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.sizes import format_size
from penstock.loader.arrays import Arrays
from penstock.loader.binding import bind, fits_pings, is_grouped
from penstock.loader.buffers import batch_bytes
from penstock.loader.encoder import Fill
from penstock.loader.events import Events
from penstock.loader.kind import Kind
from penstock.loader.loader import Loader, Parts
from penstock.loader.opening import Opened, Path, open_all
from penstock.loader.order import Order, Remainder, Stream, whole_shares
from penstock.loader.readahead import read_once, read_randomly
from penstock.loader.recipe import Recipe
from penstock.loader.rows import Rows, is_token_rows
from penstock.loader.vocabulary import PINGS, Vocabulary, make_vocabulary

Cache = Literal["memory", "disk"]
_AHEAD = 16  # batches, where memory allows
_FEWEST_AHEAD = 2
_MOST_AHEAD_BYTES = 2**30
_PARSED_SHARE = 8  # one in so many bytes allowed may hold parsed addresses
_MIX_ROWS = 256  # of each dataset, to learn how many tokens its rows have


def load(
    path: Path | Sequence[Path],
    split: str = "train",
    *,
    batch_size: int,
    length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    workers: int | Literal["auto"] = "auto",
    memory: str | int | None = None,
    epochs: int | None = None,
    fill: Fill = "packed",
    cache: Cache | None = None,
    fields: Mapping[str, Any] | Vocabulary | None = None,
    columns: Sequence[str] | None = None,
    weights: Sequence[float] | None = None,
    mix_by: Literal["examples", "tokens"] = "examples",
    shuffle: bool = True,
    remainder: Remainder = "drop",
    ahead: int | None = None,
    log_every: float | None = None,
    flops_per_token: float | None = None,
    peak_flops: float | None = None,
) -> Loader:
    """Open prepared datasets for training: batch k is a pure function of the data, these options and k.

    `batch_size` is global: rank r of `world` gets its share of the rows of every batch. `memory` bounds this whole
    process, buffers included. Events are encoded as docs/tokens.md says, by `fields` or as pings.
    """
    arguments = dict(locals())
    _refuse_options(batch_size, length, seed, rank, world, workers, epochs, fill, cache, mix_by, remainder)
    opened = open_all(path, split)
    budget = make_budget(memory if memory is not None else "100%")
    larger = cache == "disk" or (cache is None and _is_larger_than_memory(opened))
    kind = _make_kind(opened, length, fill, fields, columns, budget, larger)
    if cache == "memory":
        _hold(kind, budget)
    else:
        (read_randomly if larger else read_once)(kind.tables.columns)
    shares = _shares(kind, weights, mix_by, len(opened))
    order = Order(kind.streams, shares, seed, shuffle, epochs)
    _refuse_no_batch(order, batch_size, remainder)
    settings = {"kind": kind.name, "split": split, "batch_size": batch_size, "seed": seed, "shuffle": shuffle}
    return Loader(
        Parts(
            arguments=arguments,
            kind=kind,
            order=order,
            recipe=Recipe(tuple(each.name for each in opened), {**settings, "shares": list(shares), **kind.describe()}),
            batch_size=batch_size,
            rank=rank,
            world=world,
            remainder=remainder,
            workers=None if workers == "auto" else workers,
            cores=machine.cpu_count().amount,
            ahead=_batches_ahead(kind, batch_size // world, budget, memory is not None, ahead),
            log_every=log_every,
            flops=(flops_per_token, peak_flops) if flops_per_token and peak_flops else None,
        )
    )


def _refuse_options(
    batch_size: int,
    length: int | None,
    seed: int,
    rank: int,
    world: int,
    workers: Any,
    epochs: int | None,
    fill: str,
    cache: str | None,
    mix_by: str,
    remainder: str,
) -> None:
    """What cannot be, before anything is opened."""
    checks: list[tuple[bool, str, str]] = [
        (batch_size > 0, f"batch_size={batch_size}", "a whole number above 0"),
        (length is None or length > 0, f"length={length}", "tokens of a row, above 0"),
        (0 <= seed < 2**64, f"seed={seed}", "a whole number from 0 to 2^64 - 1"),
        (world > 0 and 0 <= rank < world, f"rank={rank}, world={world}", "rank from 0 to world - 1"),
        (workers == "auto" or (isinstance(workers, int) and workers >= 0), f"workers={workers!r}", "'auto', 0 or more"),
        (epochs is None or epochs > 0, f"epochs={epochs}", "None (no end), or a whole number above 0"),
        (fill in ("packed", "one_key"), f"fill={fill!r}", "'packed' or 'one_key'"),
        (cache in (None, "memory", "disk"), f"cache={cache!r}", "None, 'memory' or 'disk'"),
        (mix_by in ("examples", "tokens"), f"mix_by={mix_by!r}", "'examples' or 'tokens'"),
        (remainder in ("drop", "pad"), f"remainder={remainder!r}", "'drop' or 'pad'"),
    ]
    for good, what, usage in checks:
        if not good:
            raise ConfigError(f"load() cannot take {what}", where="penstock.load", next_step=f"give {usage}")
    if batch_size % world:
        nearest = batch_size - batch_size % world or world
        raise ConfigError(
            f"batch_size={batch_size} rows cannot be shared evenly by world={world}",
            where="penstock.load: batch_size is that of all ranks together",
            next_step=f"a multiple of {world}, such as {nearest} or {nearest + world}",
        )


def _make_kind(
    opened: tuple[Opened, ...],
    length: int | None,
    fill: Fill,
    fields: Mapping[str, Any] | Vocabulary | None,
    columns: Sequence[str] | None,
    budget: Budget,
    larger: bool,
) -> Kind:
    schema, where = opened[0].schema, opened[0].path
    datasets = [each.shards for each in opened]
    if opened[0].old is None and columns is None and fields is None and is_token_rows(schema):
        return Rows(datasets, schema, length, larger)
    if opened[0].old is None and (columns is not None or not (fields or is_grouped(schema))):
        return Arrays(datasets, schema, columns, larger)
    if length is None:
        raise ConfigError(
            "how many tokens a row of events has is not said", where="penstock.load", next_step="length=1024, say"
        )
    room = budget.allowed // _PARSED_SHARE
    if opened[0].old is not None:
        from penstock.loader.old_records import OldEvents

        return OldEvents([each.old for each in opened if each.old], _vocabulary(fields, None, where), length, fill)
    bound = bind(_vocabulary(fields, schema, where), schema, where)
    return Events(datasets, schema, bound, length, fill, room, larger)


def _is_larger_than_memory(opened: tuple[Opened, ...]) -> bool:
    """Whether the columns would leave the rest of the machine less than half of its memory."""
    size = sum(column.array.nbytes for each in opened for shard in each.shards for column in shard.values())
    return size > machine.memory_limit().amount // 2


def _vocabulary(fields: Mapping[str, Any] | Vocabulary | None, schema: Any, where: str) -> Vocabulary:
    if isinstance(fields, Vocabulary):
        return fields
    if fields is not None:
        return make_vocabulary(fields)
    if schema is not None and not fits_pings(schema):
        raise ConfigError(
            f"how its events become tokens is not said: the columns are not those of pings "
            f"({', '.join(field.column for field in PINGS.fields)})",
            where=where,
            next_step="say it by column: fields={'dst': 'ip', 'at': 'time', 'value': 'float11'} (docs/tokens.md)",
        )
    return PINGS


def _shares(kind: Kind, weights: Sequence[float] | None, mix_by: str, datasets: int) -> tuple[int, ...]:
    """Rows of each dataset in a block of the stream."""
    if weights is None:
        weights = [1.0] * datasets
    if len(weights) != datasets:
        raise ConfigError(
            f"weights= has {len(weights)} numbers for {datasets} datasets",
            where="load(weights=...)",
            next_step="one weight a dataset, in the order of the paths",
        )
    if datasets == 1:
        return (1,)
    exact = [Fraction(weight).limit_denominator(10**6) for weight in weights]
    if mix_by == "tokens":
        exact = [weight / _tokens_a_row(kind, number) for number, weight in enumerate(exact)]
    return whole_shares(exact)


def _tokens_a_row(kind: Kind, number: int) -> Fraction:
    """Useful tokens of the first rows of a dataset under seed 0: a fact of the data and the recipe, not of the seed."""
    streams = [
        stream if i == number else Stream(stream.shard_records, stream.draws, stream.contexts)
        for i, stream in enumerate(kind.streams)
    ]
    shares = tuple(1 if i == number else 0 for i in range(len(streams)))
    rows = min(_MIX_ROWS, streams[number].rows)
    draws = Order(tuple(streams), shares, seed=0).draw(0, rows)
    out = {name: np.zeros((rows, *shape), dtype) for name, (shape, dtype) in kind.layout.items()}
    return Fraction(max(1, kind.fill(draws, out).tokens), rows)


def _refuse_no_batch(order: Order, batch_size: int, remainder: Remainder) -> None:
    """An epoch that ends before its first batch is a mistake, not an empty loop."""
    rows = order.rows
    if rows is not None and rows < (batch_size if remainder == "drop" else 1):
        raise ConfigError(
            f"{order.epochs} epochs have {rows:,} rows, and a batch takes {batch_size:,}",
            where="penstock.load",
            next_step="a smaller batch_size, more epochs, or remainder='pad'",
        )


def _hold(kind: Kind, budget: Budget) -> None:
    """cache="memory": all columns in this process, or a refusal."""
    needed, used = kind.tables.column_bytes, own_memory().counted
    if used + needed > budget.allowed:
        raise PlanError(
            f"cache='memory' needs {format_size(needed)} for the columns; memory: {budget} leaves "
            f"{format_size(max(0, budget.allowed - used))} after {format_size(used)} in use",
            where="penstock.load",
            next_step="leave cache= out: columns are mapped, and the system keeps in memory what it can",
        )
    kind.tables.hold()


def _batches_ahead(kind: Kind, rows: int, budget: Budget, is_limited: bool, asked: int | None) -> int:
    """How many batches may be ahead: what was asked for, or what memory has room for."""
    size = batch_bytes(kind.layout, rows)
    used = own_memory().counted
    room = budget.allowed - used if is_limited else min(_MOST_AHEAD_BYTES, budget.allowed - used)
    fits = room // size - 2  # one that is being made, one that the consumer has
    wanted = asked or _AHEAD
    if fits < (asked or _FEWEST_AHEAD) and is_limited:
        needed = used + ((asked or _FEWEST_AHEAD) + 2) * size
        raise PlanError(
            f"batches of {format_size(size)} do not fit: memory: {budget} leaves {format_size(max(0, room))} after "
            f"{format_size(used)} in use by this process, and {(asked or _FEWEST_AHEAD) + 2} are needed",
            where="penstock.load",
            next_step=f"memory='{format_size(needed)}' or more, a smaller batch_size, or more ranks",
        )
    return max(_FEWEST_AHEAD, min(wanted, fits))
