"""Excluding: a list of origins -> the segments of rows that must not be trained on, and batches without them.

The rows are searched once, when they are loaded. No row moves: an excluded segment becomes padding where it stands.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Self

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.asked.opening import Asked, Opened
from penstock.loader.batches import Array
from penstock.loader.kinds.rows import Rows
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made
from penstock.shards.origins import ORIGIN, Origin, Origins, read_origins

EXCLUDED = "segments_excluded"  # in stats().counts
_AT_ONCE = 1 << 20
_USAGE = 'one per line: file:position, or [source, "file", position] where inputs have files of the same name'


class ExcludingRows(Rows):
    """Rows of tokens without some of their segments. The recipe does not know of them: no row moves."""

    _excluded: Mapping[tuple[int, int], list[int]]  # numbers of segments, by shard and record

    @classmethod
    def of(cls, asked: Asked) -> Self:
        made = super().of(asked)
        made._excluded = _excluded_of(asked)
        return made

    def fill(self, draws: Draws, out: Mapping[str, Array]) -> Made:
        made = super().fill(draws, out)
        made.counts = {EXCLUDED: self._clear(draws, out)}
        made.tokens = int(np.count_nonzero(out["targets_segmentation"]))
        made.filled = int(np.count_nonzero(out["inputs_segmentation"]))
        return made

    def _clear(self, draws: Draws, out: Mapping[str, Array]) -> int:
        """Make padding of the excluded segments of a batch; how many there were.

        A target is cleared if the token that it names is of an excluded segment, also behind the last token before it.
        """
        cleared = 0
        for row, place in enumerate(zip(draws.shards[:, 0].tolist(), draws.records[:, 0].tolist(), strict=True)):
            if own := self._excluded.get(place):
                inputs, targets = out["inputs_segmentation"][row], out["targets_segmentation"][row]
                last = targets[-1] or inputs[-1] + 1  # a token that is only a target may begin the next document
                behind = np.isin(np.append(inputs[1:], last), own)
                here = np.isin(inputs, own)
                cleared += len(np.unique(inputs[here]))
                for name, array in out.items():
                    array[row][here if name.startswith("inputs") else behind] = 0
        return cleared


def _excluded_of(asked: Asked) -> Mapping[tuple[int, int], list[int]]:
    """The excluded segments. A list of which no origin is in these rows is refused."""
    wanted = _read(asked.options["exclude"])
    found: dict[tuple[int, int], list[int]] = {}
    shards = 0
    for opened in asked.opened:
        values = _values_of(wanted, _origins(opened), opened.path)
        for shard in opened.shards:
            for record, segment in _places(shard, values):
                found.setdefault((shards, record), []).append(segment)
            shards += 1
    if not found:
        raise ConfigError(
            f"none of the {len(wanted):,} origins to exclude is in these rows; the first is {wanted[0]}"
            if wanted
            else "there are no origins in the list to exclude",
            where="load(exclude=...)",
            next_step=f"give origins as loader.origin(k) names them, {_USAGE}; or leave exclude= out",
        )
    return found


def _read(given: str | os.PathLike[str] | Sequence[Any]) -> list[Origin]:
    """Origins of a file or a list. -1 is any source."""
    lines: Iterable[Any] = given if not isinstance(given, str | os.PathLike) else ()
    if isinstance(given, str | os.PathLike):
        try:
            with open(given, encoding="utf-8") as file:
                lines = [line.strip() for line in file if line.strip()]
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"the list of origins cannot be read: {reason}", where=os.fspath(given)) from error
    return [_parsed(line) for line in lines]


def _parsed(line: Any) -> Origin:
    try:
        if isinstance(line, str) and not line.startswith("["):
            file, _, position = line.rpartition(":")
            return Origin(-1, file, int(position))
        source, file, position = json.loads(line) if isinstance(line, str) else line
        return Origin(int(source), str(file), int(position))
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{line!r} is not an origin", where="load(exclude=...)", next_step=_USAGE) from error


def _origins(opened: Opened) -> Origins:
    found = read_origins(open_store(opened.path), opened.manifest) if opened.manifest else None
    if found is None:
        raise ConfigError(
            "documents can be excluded only from datasets that keep their origins",
            where=opened.path,
            next_step="prepare it again with `provenance: true`",
        )
    return found


def _values_of(wanted: Sequence[Origin], origins: Origins, path: str) -> Array:
    """The origins as the column stores them. A name that several inputs have is refused without its source."""
    pieces: dict[str, list[tuple[int, int, int]]] = {}
    for number, piece in enumerate(origins.pieces):
        pieces.setdefault(piece.file, []).append((piece.source, piece.first, number))
    values = []
    for source, file, position in wanted:
        known = pieces.get(file, [])
        sources = sorted({each[0] for each in known})
        if source < 0 and len(sources) > 1:
            raise ConfigError(
                f"{file}:{position} may be of several inputs: {', '.join(map(str, sources))}",
                where=path,
                next_step=f'name the input: [{sources[0]}, "{file}", {position}]',
            )
        # The same file may be in several pieces: the position tells which, and others have no such value.
        values += [(number << origins.shift) | position for own, _, number in known if own == source or source < 0]
    return np.array(values, "i8")


def _places(shard: Mapping[str, Any], values: Array) -> Iterable[tuple[int, int]]:
    """Record and segment, from 1, of each of these origins in a shard, read some at a time."""
    offsets, column = shard[f"{ORIGIN}/offsets"], shard[f"{ORIGIN}/values"]
    starts = offsets.read(0, len(offsets))
    for first in range(0, len(column) if len(values) else 0, _AT_ONCE):
        places = first + np.flatnonzero(np.isin(column.read(first, min(first + _AT_ONCE, len(column))), values))
        records = np.searchsorted(starts, places, side="right") - 1
        yield from zip(records.tolist(), (places - starts[records] + 1).tolist(), strict=True)
