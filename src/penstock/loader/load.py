"""Load: paths and options -> a Loader, everything decided and refused before the first batch. `penstock.load`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from penstock.base import machine
from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.numbers import is_positive, is_whole
from penstock.base.sizes import format_size
from penstock.loader.engine import noticing_compilation
from penstock.loader.feeding.buffers import batch_bytes
from penstock.loader.feeding.readahead import read_once, read_randomly
from penstock.loader.kind import TOKEN_ARRAYS, Kind
from penstock.loader.kinds.arrays import Arrays
from penstock.loader.kinds.events import Events
from penstock.loader.kinds.rows import Overflow, Rows, is_token_rows
from penstock.loader.loader import Loader, Parts, make_draw
from penstock.loader.opening import Opened, Path, open_all
from penstock.loader.order.order import Draws, Fill, Order, Remainder, whole_shares
from penstock.loader.order.recipe import Recipe
from penstock.loader.tokens.binding import bind, fits_pings, is_grouped
from penstock.loader.tokens.vocabulary import PINGS, Vocabulary, make_vocabulary
from penstock.shards.dataset import DEFAULT_SPLIT

Cache = Literal["memory", "disk"]
_MOST = 2**31 - 1  # of rows, tokens, ranks, epochs: their products stay within 64 bits
_MOST_WORKERS = 1024
_AHEAD = 16  # batches, where memory allows
_FEWEST_AHEAD = 2
_MOST_AHEAD_BYTES = 2**30
_MOST_HELD_BYTES = 2**29  # eight ranks of a machine have one each
_HELD_SHARE = 8  # one in so many bytes allowed may hold parsed addresses and categories
_MIX_ROWS = 256  # of each dataset, to learn how many tokens its rows have
_MIX_ROWS_AT_ONCE = 16
_UNUSED = {  # by kind: what it is loaded as, and options that mean nothing then, with what they are about
    "rows": ("rows of tokens", {"augment": "events", "fill": "events"}),
    "arrays": (
        "columns as they are",
        {"augment": "events", "fill": "events", "fields": "events", "length": "tokens", "mix_by": "tokens"},
    ),
    "old events": ("events of .arrayrecord files", {"columns": "arrays"}),
}


def load(
    path: Path | Sequence[Path],
    split: str | None = None,
    *,
    batch_size: int,
    length: int | None = None,
    seed: int = 0,
    rank: int = 0,
    world: int = 1,
    workers: int | Literal["auto"] = "auto",
    memory: str | int | None = None,
    epochs: int | None = None,
    fill: Fill | None = None,
    cache: Cache | None = None,
    fields: Mapping[str, Any] | Vocabulary | None = None,
    augment: bool | None = None,
    columns: Sequence[str] | None = None,
    overflow: Overflow | None = None,
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

    `split` is "train" unless another is named; an .arrayrecord file is a split by itself. Stored rows of tokens that
    are longer than `length` are refused, or cut with overflow="truncate".

    `batch_size` is global: rank r of `world` gets its share of the rows of every batch. `memory` bounds this whole
    process, buffers included. Events are encoded as docs/tokens.md says, by `fields` or as pings. `augment` reorders
    the events of a segment and their fields, and leaves times out: the default for pings, and not with `fields`.
    """
    arguments = dict(locals())
    _refuse_options(arguments)
    # As Python's own: numpy's go into no state, and make kernels of their own.
    batch_size, seed, rank, world = (int(each) for each in (batch_size, seed, rank, world))
    length, epochs, ahead = (None if each is None else int(each) for each in (length, epochs, ahead))
    opened = open_all(path, split)
    _refuse_cache(opened, cache)
    _refuse_weights(weights, len(opened))
    budget = _make_budget(memory)
    _refuse_length(length, batch_size // world, budget)
    larger = cache == "disk" or (cache is None and _is_larger_than_memory(opened))
    with noticing_compilation():
        kind = _make_kind(
            opened, arguments, length, fill or "packed", fields, augment, columns, overflow, budget, larger
        )
        shares = _shares(kind, weights, mix_by, len(opened))
        order = Order(kind.streams, shares, seed, shuffle, epochs)
        _refuse_no_batch(order, batch_size, remainder)
        draw = make_draw(order)
        _warm_up(kind, draw)
    if cache == "memory":
        _hold(kind, budget)
    if isinstance(kind, Events):
        kind.hold(_room_to_hold(kind, batch_size // world, budget, ahead))
    if cache != "memory":
        (read_randomly if larger else read_once)(kind.tables.columns)
    named = None if all(each.is_bare for each in opened) else DEFAULT_SPLIT if split is None else split
    settings = {"kind": kind.name, "split": named, "batch_size": batch_size, "seed": seed, "shuffle": bool(shuffle)}
    return Loader(
        Parts(
            arguments=arguments,
            kind=kind,
            order=order,
            draw=draw,
            recipe=Recipe(tuple(each.name for each in opened), {**settings, "shares": list(shares), **kind.describe()}),
            batch_size=batch_size,
            rank=rank,
            world=world,
            remainder=remainder,
            workers=None if workers == "auto" else int(workers),
            cores=machine.cpu_count().amount,
            ahead=_batches_ahead(kind, batch_size // world, budget, memory is not None, ahead),
            batch_bytes=batch_bytes(kind.layout, batch_size // world),
            room=None if memory is None else budget.allowed - own_memory().counted,
            log_every=log_every,
            flops=(flops_per_token, peak_flops) if flops_per_token and peak_flops else None,
        )
    )


def _refuse_options(given: Mapping[str, Any]) -> None:
    """What cannot be, before anything is opened."""
    rank, world, workers, log_every = (given[name] for name in ("rank", "world", "workers", "log_every"))
    checks: list[tuple[bool, str, str]] = [
        (given["split"] is None or isinstance(given["split"], str), "split", "the name of a split, such as 'train'"),
        (is_whole(given["batch_size"], 1, _MOST), "batch_size", f"a whole number from 1 to {_MOST:,}"),
        (_is_none_or_whole(given["length"]), "length", f"tokens of a row, from 1 to {_MOST:,}"),
        (is_whole(given["seed"], 0, 2**64 - 1), "seed", "a whole number from 0 to 2^64 - 1"),
        (is_whole(world, 1, _MOST), "world", "how many ranks there are, above 0"),
        (is_whole(world, 1, _MOST) and is_whole(rank, 0, world - 1), "rank", "a whole number from 0 to world - 1"),
        (
            (isinstance(workers, str) and workers == "auto") or is_whole(workers, 0, _MOST_WORKERS),
            "workers",
            f"'auto', or a whole number from 0 to {_MOST_WORKERS:,}",
        ),
        (_is_none_or_whole(given["epochs"]), "epochs", f"None (no end), or a whole number from 1 to {_MOST:,}"),
        (_is_none_or_whole(given["ahead"]), "ahead", f"None, or how many batches, from 1 to {_MOST:,}"),
        (isinstance(given["shuffle"], (bool, np.bool_)), "shuffle", "True or False"),
        (
            given["augment"] is None or isinstance(given["augment"], (bool, np.bool_)),
            "augment",
            "True, False, or None (True for pings)",
        ),
        (not isinstance(given["columns"], (str, bytes)), "columns", "a list of names: columns=['features']"),
        (log_every is None or is_positive(log_every), "log_every", "None, or seconds above 0"),
        *(
            (given[name] is None or is_positive(given[name]), name, "None, or a number above 0")
            for name in ("flops_per_token", "peak_flops")
        ),
        (
            (given["flops_per_token"] is None) == (given["peak_flops"] is None),
            "flops_per_token" if given["peak_flops"] is None else "peak_flops",
            "both flops_per_token and peak_flops, or neither",
        ),
        *(
            (
                any(given[name] is word or _is_text(given[name], word) for word in words),
                name,
                " or ".join(map(repr, words)),
            )
            for name, words in (
                ("fill", (None, "packed", "one_key")),
                ("cache", (None, "memory", "disk")),
                ("mix_by", ("examples", "tokens")),
                ("overflow", (None, "truncate")),
                ("remainder", ("drop", "pad")),
            )
        ),
    ]
    for good, name, usage in checks:
        if not good:
            taken = f"load() cannot take {name}={given[name]!r}"
            raise ConfigError(taken, where="penstock.load", next_step=f"give {usage}")
    batch_size = given["batch_size"]
    if batch_size % world:
        nearest = batch_size - batch_size % world or world
        raise ConfigError(
            f"batch_size={batch_size} rows cannot be shared evenly by world={world}",
            where="penstock.load: batch_size is that of all ranks together",
            next_step=f"a multiple of {world}, such as {nearest} or {nearest + world}",
        )


def _is_none_or_whole(value: Any) -> bool:
    return value is None or is_whole(value, 1, _MOST)


def _is_text(value: Any, word: str | None) -> bool:
    return isinstance(value, str) and value == word


def _refuse_weights(weights: Any, datasets: int) -> None:
    if weights is None:
        return
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)) or not np.ndim(weights):
        raise ConfigError(
            f"weights={weights!r} is no list of numbers", where="load(weights=...)", next_step="weights=[0.3, 0.7]"
        )
    if len(weights) != datasets:
        raise ConfigError(
            f"weights= has {len(weights)} numbers for {datasets} datasets",
            where="load(weights=...)",
            next_step="one weight per dataset, in the order of the paths",
        )
    whole_shares(list(weights))


def _refuse_length(length: int | None, rows: int, budget: Budget) -> None:
    """Before anything of that length is made."""
    size = rows * (length or 0) * 4 * len(TOKEN_ARRAYS)
    if size > budget.allowed:
        raise PlanError(
            f"batches do not fit: {rows:,} rows of {length:,} tokens take {format_size(size)}; memory: {budget}",
            where="penstock.load",
            next_step="a smaller length or batch_size, or more memory=",
        )


def _make_kind(
    opened: tuple[Opened, ...],
    given: Mapping[str, Any],
    length: int | None,
    fill: Fill,
    fields: Mapping[str, Any] | Vocabulary | None,
    augment: bool | None,
    columns: Sequence[str] | None,
    overflow: Overflow | None,
    budget: Budget,
    larger: bool,
) -> Kind:
    schema, where = opened[0].schema, opened[0].path
    datasets = [each.shards for each in opened]
    if opened[0].old is None and columns is None and fields is None and is_token_rows(schema):
        _refuse_unused("rows", given, where)
        return Rows(datasets, schema, length, larger, overflow)
    if overflow is not None:
        raise ConfigError(
            f"overflow={overflow!r} is about rows of tokens that were packed before, and this dataset has none",
            where=where,
            next_step="leave overflow= out: events are taken as they fit, and arrays are whole",
        )
    if opened[0].old is None and (columns is not None or not (fields or is_grouped(schema))):
        arrays = Arrays(datasets, schema, columns, larger)  # first: what is wrong with the columns matters more
        _refuse_unused("arrays", given, where)
        return arrays
    if length is None:
        raise ConfigError(
            "how many tokens a row of events has is not said", where="penstock.load", next_step="length=1024, say"
        )
    vocabulary = _vocabulary(fields, schema if opened[0].old is None else None, where)
    if fill == "packed" and length + 1 < vocabulary.smallest_event:
        raise ConfigError(
            f"no event fits into a row of length={length}: the smallest takes {vocabulary.smallest_event} tokens",
            where="penstock.load",
            next_step="longer rows, or fewer fields",
        )
    augment = vocabulary == PINGS if augment is None else bool(augment)
    if opened[0].old is not None:
        from penstock.loader.kinds.old_records import OldEvents

        _refuse_unused("old events", given, where)
        return OldEvents([each.old for each in opened if each.old], vocabulary, length, fill, augment, budget)
    return Events(datasets, schema, bind(vocabulary, schema, where), length, fill, augment, budget, larger)


def _refuse_unused(kind: str, given: Mapping[str, Any], where: str) -> None:
    """Options that were given and say nothing about data of this kind."""
    loaded, unused = _UNUSED[kind]
    for name, about in unused.items():
        if given[name] is not None and (name, given[name]) != ("mix_by", "examples"):
            raise ConfigError(
                f"{name}={given[name]!r} is about {about}, and this dataset is loaded as {loaded}",
                where=where,
                next_step=f"leave {name}= out",
            )


def _refuse_cache(opened: tuple[Opened, ...], cache: Cache | None) -> None:
    if cache is not None and opened[0].old is not None:
        raise ConfigError(
            f"cache={cache!r} is about columns, and {opened[0].path} is an .arrayrecord file",
            where="penstock.load",
            next_step="leave cache= out, or prepare the events as columns (`penstock run pings`)",
        )


def _make_budget(memory: str | int | None) -> Budget:
    try:
        return make_budget("100%" if memory is None else memory)
    except ValueError as error:
        raise ConfigError(
            f"load() cannot take memory={memory!r}: {error}",
            where="penstock.load",
            next_step="bytes as a number, or '2GB', '512MiB', '50%'",
        ) from error


def _is_larger_than_memory(opened: tuple[Opened, ...]) -> bool:
    """Whether the columns would leave the rest of the machine less than half of its memory."""
    size = sum(column.array.nbytes for each in opened for shard in each.shards for column in shard.values())
    return size > machine.memory_limit().amount // 2


def _vocabulary(fields: Mapping[str, Any] | Vocabulary | None, schema: Any, where: str) -> Vocabulary:
    if isinstance(fields, Vocabulary):
        return fields
    if fields is not None and not isinstance(fields, Mapping):
        raise ConfigError(
            f"fields= is a {type(fields).__name__}", where="load(fields=...)", next_step="a dict: fields={'dst': 'ip'}"
        )
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
    if datasets == 1:
        return (1,)
    shares = whole_shares([1.0] * datasets if weights is None else list(weights))
    if mix_by == "tokens":
        shares = whole_shares([share / _tokens_a_row(kind, number) for number, share in enumerate(shares)])
    return shares


def _tokens_a_row(kind: Kind, number: int) -> Fraction:
    """Useful tokens of the first rows of a dataset under seed 0: a fact of the data and the recipe, not of the seed."""
    shares = tuple(int(i == number) for i in range(len(kind.streams)))
    rows, order, tokens = min(_MIX_ROWS, kind.streams[number].rows), Order(kind.streams, shares, seed=0), 0
    for first in range(0, rows, _MIX_ROWS_AT_ONCE):
        draws = order.draw(first, min(_MIX_ROWS_AT_ONCE, rows - first))
        out = {name: np.zeros((len(draws.keys), *shape), dtype) for name, (shape, dtype) in kind.layout.items()}
        tokens += kind.fill(draws, out).tokens
    return Fraction(max(1, tokens), rows)


def _refuse_no_batch(order: Order, batch_size: int, remainder: Remainder) -> None:
    """An epoch that ends before its first batch is a mistake, not an empty loop."""
    rows = order.rows
    if rows is not None and rows < (batch_size if remainder == "drop" else 1):
        raise ConfigError(
            f"{order.epochs_have} {rows:,} rows, and a batch takes {batch_size:,}",
            where="penstock.load"
            if len(order.shares) == 1
            else f"mixed in blocks of {order.block:,} rows, as weights= say",
            next_step="a smaller batch_size, more epochs, or remainder='pad'"
            if rows
            else "more epochs, or weights in the ratio of smaller numbers",
        )


def _warm_up(kind: Kind, draw: Callable[[int, int], Draws]) -> None:
    """Make one row: what has to be compiled or loaded for the first batch is then there."""
    out = {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in kind.layout.items()}
    kind.fill(draw(0, 1), out)


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


def _room_to_hold(kind: Kind, rows: int, budget: Budget, ahead: int | None) -> int:
    """Bytes for what makes rows faster: a share of what is allowed, of what is left beside the fewest batches."""
    least = ((ahead or _FEWEST_AHEAD) + 2) * batch_bytes(kind.layout, rows)
    return max(0, min(budget.allowed // _HELD_SHARE, _MOST_HELD_BYTES, budget.allowed - own_memory().counted - least))


def _batches_ahead(kind: Kind, rows: int, budget: Budget, is_limited: bool, asked: int | None) -> int:
    """How many batches may be ahead: what was asked for, or what memory has room for."""
    size = batch_bytes(kind.layout, rows)
    used = own_memory().counted
    room = budget.allowed - used
    fewest = asked or _FEWEST_AHEAD
    if (fewest + 2) * size > room:  # one that is being made, one that the consumer has
        needed = math.ceil(1.01 * (used + (fewest + 2) * size) / 10**6)
        raise PlanError(
            f"batches of {format_size(size)} do not fit: memory: {budget} leaves {format_size(max(0, room))} after "
            f"{format_size(used)} in use by this process, and {fewest + 2} are needed",
            where="penstock.load",
            next_step=f"memory='{needed}MB' or more, a smaller batch_size, or more ranks",
        )
    if asked:
        return asked
    most = room if is_limited else min(_MOST_AHEAD_BYTES, room)
    return max(_FEWEST_AHEAD, min(_AHEAD, most // size - 2))
