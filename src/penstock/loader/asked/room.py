"""Room: memory= and cache= -> where columns are read from, and how many batches may be ahead. Used by load.py."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.base import machine
from penstock.base.errors import ConfigError, PlanError
from penstock.base.memory import Budget, make_budget, own_memory
from penstock.base.sizes import format_size
from penstock.loader.asked.opening import Opened
from penstock.loader.asked.options import largest_batch
from penstock.loader.batches import TOKEN_ARRAYS
from penstock.loader.feeding.buffers import batch_bytes
from penstock.loader.feeding.readahead import read_once, read_randomly
from penstock.loader.kind import Kind

_AHEAD = 16  # batches, where memory allows
_FEWEST_AHEAD = 2
_MOST_AHEAD_BYTES = 2**30
_MOST_HELD_BYTES = 2**29  # eight ranks of a machine have one each
_HELD_SHARE = 8  # one in so many bytes allowed may hold parsed addresses and categories


@dataclass(frozen=True)
class Room:
    """Memory of this process, shared out between columns and batches of `rows` rows."""

    budget: Budget
    is_limited: bool  # whether memory= was given
    rows: int
    ahead: int | None  # as asked for

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Room:
        memory, rows = options["memory"], largest_batch(options) // options["world"]
        try:
            budget = make_budget("100%" if memory is None else memory)
        except ValueError as error:
            raise ConfigError(
                f"load() cannot take memory={memory!r}: {error}",
                where="penstock.load",
                next_step="bytes as a number, or '2GB', '512MiB', '50%'",
            ) from error
        length = 0 if options["encode"] else options["length"] or 0  # raw.py knows the bytes of an event
        if (size := rows * length * 4 * len(TOKEN_ARRAYS)) > budget.allowed:  # before anything of that length is made
            raise PlanError(
                f"batches do not fit: {rows:,} rows of {length:,} tokens take {format_size(size)}; memory: {budget}",
                where="penstock.load",
                next_step="a smaller length or batch_size, or more memory=",
            )
        return cls(budget, memory is not None, rows, options["ahead"])

    @property
    def left(self) -> int:
        return self.budget.allowed - own_memory().counted

    def place_columns(self, kind: Kind, cache: str | None, larger_than_memory: bool) -> None:
        """Copy columns into memory if cache="memory" asks for it, or tell the system how they will be read."""
        if cache == "memory":
            needed, used = kind.tables.column_bytes, own_memory().counted
            if used + needed > self.budget.allowed:
                raise PlanError(
                    f"cache='memory' needs {format_size(needed)} for the columns; memory: {self.budget} leaves "
                    f"{format_size(max(0, self.budget.allowed - used))} after {format_size(used)} in use",
                    where="penstock.load",
                    next_step="leave cache= out: columns are mapped, and the system keeps in memory what it can",
                )
            kind.tables.hold()
        # A share of what is allowed, of what is left beside the fewest batches.
        least = ((self.ahead or _FEWEST_AHEAD) + 2) * batch_bytes(kind.layout, self.rows)
        kind.hold(max(0, min(self.budget.allowed // _HELD_SHARE, _MOST_HELD_BYTES, self.left - least)))
        if cache != "memory":
            (read_randomly if larger_than_memory else read_once)(kind.tables.columns)

    def batches_ahead(self, kind: Kind) -> int:
        """Batches that may be ahead: what was asked for, or what memory has room for."""
        size, used = batch_bytes(kind.layout, self.rows), own_memory().counted
        room, fewest = self.budget.allowed - used, self.ahead or _FEWEST_AHEAD
        if (fewest + 2) * size > room:  # one that is being made, one that the consumer has
            needed = math.ceil(1.01 * (used + (fewest + 2) * size) / 10**6)
            raise PlanError(
                f"batches of {format_size(size)} do not fit: memory: {self.budget} leaves {format_size(max(0, room))} "
                f"after {format_size(used)} in use by this process, and {fewest + 2} are needed",
                where="penstock.load",
                next_step=f"memory='{needed}MB' or more, a smaller batch_size, or more ranks",
            )
        if self.ahead:
            return self.ahead
        most = room if self.is_limited else min(_MOST_AHEAD_BYTES, room)
        return max(_FEWEST_AHEAD, min(_AHEAD, most // size - 2))


def is_larger_than_memory(opened: tuple[Opened, ...], cache: str | None) -> bool:
    """Whether the columns would leave the rest of the machine less than half of its memory, or cache= says so."""
    if cache is not None and opened[0].old is not None:
        raise ConfigError(
            f"cache={cache!r} is an option for columns, but {opened[0].path} is an .arrayrecord file",
            where="penstock.load",
            next_step="leave cache= out, or prepare the events as columns (`penstock run pings`)",
        )
    size = sum(column.array.nbytes for each in opened for shard in each.shards for column in shard.values())
    return cache == "disk" or (cache is None and size > machine.memory_limit().amount // 2)


def batches_that_fit(mapped_bytes: int, own_bytes: int, room: int) -> int:
    """Batches that may be ahead in `room` bytes, where functions make larger ones than the loader's own."""
    fits = room // (mapped_bytes + own_bytes) - 2
    if fits < 1:
        raise PlanError(
            f"batches that map() makes do not fit: {format_size(mapped_bytes)} each, and memory= leaves "
            f"{format_size(room)} for all of them",
            where="loader.map",
            next_step="more memory=, a smaller batch_size, or smaller dtypes in what the function returns",
        )
    return fits
