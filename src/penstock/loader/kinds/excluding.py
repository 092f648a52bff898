"""Excluding: rows of tokens and a list of documents -> the same rows, with those documents as padding. Next: maker.py.

The rows are searched once, when they are loaded. No row moves: an excluded segment becomes padding where it stands.
With `documents="varlen"` it stays a sequence of its own: `cu_seqlens`, `position_ids` and `seq_idx` do not change.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.asked.excluded import ContentHash, Line, read_lines
from penstock.loader.asked.opening import Asked, Opened
from penstock.loader.batches import Array, Batch
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made, Shard
from penstock.shards.origins import HASH, NO_ORIGINS, ORIGIN, Origin, Origins, has_hashes, read_origins

EXCLUDED = "segments_excluded"  # in stats().counts
_AT_ONCE = 1 << 20
_SHOWN_LINES = 10


class Excluding:
    """Rows of tokens without some of their segments. The recipe does not know of them: no row moves."""

    def __init__(self, kind: Kind, asked: Asked) -> None:
        self._kind = kind
        self._excluded = _excluded_of(asked)  # numbers of segments, by shard and record
        self.name, self.unit, self.vocabulary = kind.name, kind.unit, kind.vocabulary
        self.streams, self.tables, self.layout = kind.streams, kind.tables, kind.layout
        self.hold, self.describe = kind.hold, kind.describe

    def fill(self, draws: Draws, out: Batch) -> Made:
        made = self._kind.fill(draws, out)
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
                    if name.startswith(("inputs", "targets")):
                        array[row][here if name.startswith("inputs") else behind] = 0
        return cleared


def _excluded_of(asked: Asked) -> Mapping[tuple[int, int], list[int]]:
    """The excluded segments. Lines without a match are reported; a list of which no line has one is refused."""
    lines = read_lines(asked.options["exclude"])
    excluded: dict[tuple[int, int], list[int]] = {}
    matched: set[Line] = set()
    shards = 0
    for opened in asked.opened:
        columns = _columns_of(lines, opened)
        for shard in opened.shards:
            for name, wanted in columns.items():
                for record, segment, value in _places(shard, name, list(wanted)):
                    excluded.setdefault((shards, record), []).append(segment)
                    matched.add(wanted[value])
            shards += 1
    _report([line for line in lines if line not in matched], len(lines))
    return excluded


def _report(missing: list[Line], count: int) -> None:
    names = ", ".join(map(str, missing[:_SHOWN_LINES])) + (", ..." if len(missing) > _SHOWN_LINES else "")
    if len(missing) == count:
        raise ConfigError(
            f"none of the {count:,} documents to exclude is in these rows: {names}",
            where="load(exclude=...)",
            next_step="give file:position or the hash, as loader.origin(k) and `penstock inspect --origins` show them; "
            "or leave exclude= out",
        )
    if missing:
        warnings.warn(
            f"{len(missing):,} of the {count:,} documents to exclude are not in these rows: {names}",
            UserWarning,
            stacklevel=2,
        )


def _columns_of(lines: Iterable[Line], opened: Opened) -> dict[str, dict[int, Line]]:
    """Values to look for in each column of a dataset, and the line that asks for each."""
    found = read_origins(open_store(opened.path), opened.manifest) if opened.manifest else None
    if found is None or opened.manifest is None:
        raise _no_column("documents can be excluded only from datasets that keep their origins", opened.path)
    hashes = {line.value: line for line in lines if isinstance(line, ContentHash)}
    if hashes and not has_hashes(opened.manifest.schema):
        raise _no_column("this dataset keeps no content hashes, and the list to exclude has some", opened.path)
    origins = [line for line in lines if isinstance(line, Origin)]
    wanted: dict[str, dict[int, Line]] = {ORIGIN: _values_of(origins, found, opened.path), HASH: dict(hashes)}
    return {name: values for name, values in wanted.items() if values}


def _no_column(what: str, path: str) -> ConfigError:
    return ConfigError(what, where=path, next_step=NO_ORIGINS)


def _values_of(wanted: Iterable[Origin], origins: Origins, path: str) -> dict[int, Line]:
    """The origins as the column stores them. A name that several inputs have is refused without its source."""
    pieces: dict[str, list[tuple[int, int]]] = {}
    for number, piece in enumerate(origins.pieces):
        pieces.setdefault(piece.file, []).append((piece.source, number))
    values: dict[int, Line] = {}
    for origin in wanted:
        source, file, position = origin
        known = pieces.get(file, [])
        sources = sorted({each for each, _ in known})
        if source < 0 and len(sources) > 1:
            raise ConfigError(
                f"{file}:{position} may be of several inputs: {', '.join(map(str, sources))}",
                where=path,
                next_step=f'name the input: [{sources[0]}, "{file}", {position}]',
            )
        # The same file may be in several pieces: the position tells which, and others have no such value.
        values |= {(number << origins.shift) | position: origin for own, number in known if own == source or source < 0}
    return values


def _part(shard: Shard, name: str) -> str:
    """The flat column with the values: of packed rows they are lists."""
    return name if name in shard else f"{name}/values"


def _places(shard: Shard, name: str, values: list[int]) -> Iterator[tuple[int, int, int]]:
    """Record, segment from 1, and value of each place of a shard that has one of the values, read some at a time."""
    column: Any = shard[_part(shard, name)]
    offsets: Any = shard.get(f"{name}/offsets")
    starts = np.arange(len(column) + 1) if offsets is None else offsets.read(0, len(offsets))
    wanted = np.array(values, column.array.dtype)
    for first in range(0, len(column), _AT_ONCE):
        read = column.read(first, min(first + _AT_ONCE, len(column)))
        here = np.flatnonzero(np.isin(read, wanted))
        records = np.searchsorted(starts, first + here, side="right") - 1
        segments = first + here - starts[records] + 1
        yield from zip(records.tolist(), segments.tolist(), read[here].tolist(), strict=True)
