"""Mixing: datasets, weights and phases -> the order of rows, and the functions that draw them. Used by load.py."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.loader.batches import empty_batch
from penstock.loader.engine import compiled
from penstock.loader.kind import Kind
from penstock.loader.order.order import MOST_BLOCK, Draws, Order, whole_shares
from penstock.loader.order.phases import Phase, Phases

_ROWS = 256  # of each dataset, to learn how many tokens its rows have
_ROWS_AT_ONCE = 16


@dataclass(frozen=True)
class PhaseAsked:
    """One phase as load() was asked for it; `weights` are None where all datasets have equal shares."""

    first: int
    batch_size: int
    weights: Sequence[float] | None

    @property
    def words(self) -> str:
        return f"phases[from {self.first:,}]"


def make_phases(kind: Kind, options: Mapping[str, Any]) -> Phases:
    """The phases that were asked for, each from where the one before leaves every dataset."""
    asked, datasets = phases_asked(options, len(kind.streams)), len(kind.streams)
    limits, before, made = _limits(options, datasets), (0,) * datasets, []
    skipped: tuple[tuple[int, ...], ...] = ()
    for number, phase in enumerate(asked):
        steps = asked[number + 1].first - phase.first if number + 1 < len(asked) else None
        shares = _shares(kind, phase.weights, options["mix_by"], datasets)
        end = None if steps is None else steps * phase.batch_size
        order = Order(kind.streams, shares, options["seed"], options["shuffle"], limits, before, skipped, end)
        if len(asked) > 1:
            _refuse_block(phase, order)
        if end is not None:
            _refuse_more_epochs(phase, order, end, options["path"])
            before, skipped = order.taken(end), order.skipped_after(end)
        made.append(Phase(phase.first, phase.batch_size, order))
    phases = Phases(tuple(made), options["remainder"])
    _refuse_no_batch(phases)
    return phases


def phases_asked(options: Mapping[str, Any], datasets: int) -> tuple[PhaseAsked, ...]:
    size, weights = options["batch_size"], options["weights"]
    refuse_weights(weights, datasets, "load(weights=...)")
    if options["phases"] is None:
        return (PhaseAsked(0, size, weights),)
    made = []
    for number, each in enumerate(options["phases"]):
        own = each.get("weights", weights)
        refuse_weights(own, datasets, f"load(phases=...), phase {number + 1}", may_be_zero=True)
        made.append(PhaseAsked(int(each["from"]), int(each.get("batch_size", size)), own))
    return tuple(made)


def _limits(options: Mapping[str, Any], datasets: int) -> int | tuple[int | None, ...] | None:
    most = options["max_epochs"]
    if most is None or not isinstance(most, Sequence):
        return options["epochs"] if most is None else int(most)
    if len(most) != datasets:
        raise ConfigError(
            f"max_epochs= has {len(most)} numbers for {datasets} datasets",
            where="load(max_epochs=...)",
            next_step="one number for all, or one per dataset in the order of the paths; None: as often as needed",
        )
    return tuple(None if each is None else int(each) for each in most)


def _refuse_block(phase: PhaseAsked, order: Order) -> None:
    if order.block > MOST_BLOCK:
        raise ConfigError(
            f"the weights of {phase.words} are too far apart: they need blocks of {order.block:,} rows, and a phase "
            f"may have blocks of {MOST_BLOCK:,}",
            where="load(phases=...)",
            next_step="weights in the ratio of smaller numbers; 0 leaves a dataset out of a phase",
        )


def _refuse_more_epochs(phase: PhaseAsked, order: Order, end: int, paths: Any) -> None:
    """A phase of a fixed length must find the rows it takes; a block may take a late row of a dataset early."""
    for number, (taken, stream, limit) in enumerate(zip(order.reached(end), order.streams, order.limits, strict=True)):
        if limit is not None and taken > limit * stream.rows:
            path = paths[number] if isinstance(paths, (list, tuple)) else paths
            raise ConfigError(
                f"at the end of {phase.words}, dataset {number + 1} ({os.fspath(path)}) would be read "
                f"{taken / stream.rows:.2f} times, but max_epochs allows {limit} ({taken:,} rows of {stream.rows:,})",
                where="load(phases=..., max_epochs=...)",
                next_step="a shorter phase, a smaller batch_size, weights of smaller whole numbers, or more epochs",
            )


def _refuse_no_batch(phases: Phases) -> None:
    """An epoch that ends before its first batch is a mistake, not an empty loop."""
    order, size = phases.last.order, phases.last.batch_size
    if order.rows is None or order.rows >= (size if phases.remainder == "drop" else 1):
        return
    mixed = f"mixed in blocks of {order.block:,} rows, as weights= say"
    raise ConfigError(
        f"{order.epochs_have} {max(0, order.rows):,} rows, but a batch needs {size:,}",
        where="penstock.load" if len(order.shares) == 1 else mixed,
        next_step="a smaller batch_size, more epochs, or remainder='pad'"
        if order.rows > 0
        else "more epochs, or weights in the ratio of smaller numbers",
    )


def make_draws(phases: Phases) -> list[Callable[[int, int], Draws]]:
    """For each phase, by the kernel or in plain arithmetic; both give the same."""
    if not compiled():
        return [phase.order.draw for phase in phases.each]
    from penstock.loader.compiled import order as kernel

    first = kernel.make_table(phases.first.order)
    tables = [first, *(kernel.of_phase(first, phase.order) for phase in phases.each[1:])]
    return [partial(kernel.draw, table) for table in tables]


def refuse_weights(weights: Any, datasets: int, where: str, may_be_zero: bool = False) -> None:
    if weights is None:
        return
    if isinstance(weights, (str, bytes)) or not isinstance(weights, (Sequence, np.ndarray)) or not np.ndim(weights):
        raise ConfigError(f"weights={weights!r} is not a list of numbers", where=where, next_step="weights=[0.3, 0.7]")
    if len(weights) != datasets:
        raise ConfigError(
            f"weights= has {len(weights)} numbers for {datasets} datasets",
            where=where,
            next_step="one weight per dataset, in the order of the paths",
        )
    if may_be_zero and not any(weights):
        raise ConfigError("all weights are 0", where=where, next_step="give at least one dataset a weight above 0")
    whole_shares([each for each in weights if each or not may_be_zero], where)


def _shares(kind: Kind, weights: Sequence[float] | None, mix_by: str, datasets: int) -> tuple[int, ...]:
    """Rows of each dataset in a block of the stream. A dataset of weight 0 has none."""
    if datasets == 1:
        return (1,)
    given = [1.0] * datasets if weights is None else list(weights)
    used = [number for number, weight in enumerate(given) if weight]
    shares = whole_shares([given[number] for number in used])
    if mix_by == "tokens":
        shares = whole_shares([share / _tokens_a_row(kind, number) for number, share in zip(used, shares, strict=True)])
    of = dict(zip(used, shares, strict=True))
    return tuple(of.get(number, 0) for number in range(datasets))


def _tokens_a_row(kind: Kind, number: int) -> Fraction:
    """Useful tokens of the first rows of a dataset under seed 0: a fact of the data and the recipe, not of the seed.

    Those of excluded documents count too, or a longer list would move rows.
    """
    shares = tuple(int(i == number) for i in range(len(kind.streams)))
    rows, order, tokens = min(_ROWS, kind.streams[number].rows), Order(kind.streams, shares, seed=0), 0
    for first in range(0, rows, _ROWS_AT_ONCE):
        draws = order.draw(first, min(_ROWS_AT_ONCE, rows - first))
        made = kind.fill(draws, empty_batch(kind.layout, len(draws.keys)))
        tokens += made.tokens + made.tokens_excluded
    return Fraction(max(1, tokens), rows)
