"""Excluding: rows of tokens and a list of documents -> the same rows, with those documents as padding. Next: maker.py.

The rows are searched once, when they are loaded. No row moves: an excluded segment becomes padding where it stands. An
origin of a row of several documents, as rows have that were packed before penstock read them, excludes the whole row.
With `documents="varlen"` it stays a sequence of its own: `cu_seqlens`, `position_ids` and `seq_idx` do not change.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.base.errors import ConfigError
from penstock.base.stores import open_store
from penstock.loader.asked.excluded import ContentHash, Line, Place, read_lines
from penstock.loader.asked.opening import Asked, Opened
from penstock.loader.batches import Array, Batch
from penstock.loader.kind import Kind
from penstock.loader.order.order import Draws
from penstock.loader.tables import Made, Shard
from penstock.shards.origins import HASH, NO_ORIGINS, ORIGIN, Origins, has_hashes, read_origins
from penstock.shards.packed import count_documents

_ROW = 0  # in place of the number of a segment: all of the row
EXCLUDED = "segments_excluded"  # in stats().counts
_AT_ONCE = 1 << 20
_ROWS_AT_ONCE = 1 << 12  # whose documents are counted
_SHOWN_LINES = 10


class Excluding:
    """Rows of tokens without some of their segments. The recipe does not know of them: no row moves."""

    def __init__(self, kind: Kind, asked: Asked) -> None:
        self._kind = kind
        self._excluded = _excluded_of(asked)  # numbers of segments, by shard and record
        self.name, self.unit, self.vocabulary = kind.name, kind.unit, kind.vocabulary
        self.streams, self.tables, self.layout = kind.streams, kind.tables, kind.layout
        self.hold, self.holds, self.describe = kind.hold, kind.holds, kind.describe

    def fill(self, draws: Draws, out: Batch) -> Made:
        made = self._kind.fill(draws, out)
        made.counts = {EXCLUDED: self._clear(draws, out)}
        tokens = int(np.count_nonzero(out["targets_segmentation"]))
        made.tokens, made.tokens_excluded = tokens, made.tokens - tokens
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
                numbers = np.append(inputs[1:], last)
                here, behind = ((each > 0) if _ROW in own else np.isin(each, own) for each in (inputs, numbers))
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
    wanted_of = _wanted_of(lines, asked.opened)
    shards = 0
    for opened, columns in zip(asked.opened, wanted_of, strict=True):
        for shard in opened.shards:
            for name, wanted in columns.items():
                for record, segment, value in _places(shard, name, list(wanted)):
                    excluded.setdefault((shards, record), []).append(segment)
                    matched.add(wanted[value])
            shards += 1
    _report([line for line in lines if line not in matched], len(lines), asked.opened)
    return excluded


def _report(missing: list[Line], count: int, opened: Sequence[Opened]) -> None:
    names = ", ".join(map(str, missing[:_SHOWN_LINES])) + (", ..." if len(missing) > _SHOWN_LINES else "")
    places = [line for line in missing if isinstance(line, Place)]
    others = dict.fromkeys(place.dataset for place in places if not any(place.may_be_of(each.path) for each in opened))
    if others:
        names += f". {', '.join(map(str, others))}: not loaded here"
    if len(missing) == count:
        raise ConfigError(
            f"none of the {count:,} documents to exclude is in these rows: {names}",
            where="load(exclude=...)",
            next_step="give file:position or the hash, as loader.origin(k) and `penstock inspect --origins` show them. "
            "Origins of a dataset that was moved, or made into another, name its old path: leave `dataset` out",
        )
    if missing:
        warnings.warn(
            f"{len(missing):,} of the {count:,} documents to exclude are not in these rows: {names}",
            UserWarning,
            stacklevel=2,
        )


def _wanted_of(lines: Sequence[Line], opened: Sequence[Opened]) -> list[dict[str, dict[int, Line]]]:
    """For each dataset, the values to look for in each column, and the line that asks for each."""
    own = [[line for line in lines if isinstance(line, ContentHash) or line.may_be_of(each.path)] for each in opened]
    tables = [_origins_of(each, some) if some else Origins(()) for each, some in zip(opened, own, strict=True)]
    _refuse_several(lines, opened, tables)
    wanted = []
    for some, table in zip(own, tables, strict=True):
        places = [line for line in some if isinstance(line, Place)]
        hashes: dict[int, Line] = {line.value: line for line in some if isinstance(line, ContentHash)}
        values = {ORIGIN: _values_of(places, table), HASH: hashes}
        wanted.append({name: found for name, found in values.items() if found})
    return wanted


def _origins_of(opened: Opened, lines: Iterable[Line]) -> Origins:
    """The origins of a dataset, which these lines may be of."""
    found = read_origins(open_store(opened.path), opened.manifest) if opened.manifest else None
    if found is None or opened.manifest is None:
        raise _no_column("documents can be excluded only from datasets that keep their origins", opened.path)
    if any(isinstance(line, ContentHash) for line in lines) and not has_hashes(opened.manifest.schema):
        raise _no_column("this dataset keeps no content hashes, and the list to exclude has some", opened.path)
    return found


def _no_column(what: str, path: str) -> ConfigError:
    return ConfigError(what, where=path, next_step=NO_ORIGINS)


def _refuse_several(lines: Iterable[Line], opened: Sequence[Opened], tables: Sequence[Origins]) -> None:
    """Refuse a file name that several datasets have, or several inputs of one, if the line does not say which."""
    sources: dict[str, dict[int, set[int]]] = {}  # by file: the sources of each dataset that have it
    for number, table in enumerate(tables):
        for piece in table.pieces:
            sources.setdefault(piece.file, {}).setdefault(number, set()).add(piece.source)
    for line in (line for line in lines if isinstance(line, Place)):
        having = {
            number: sorted(known)
            for number, known in sources.get(line.file, {}).items()
            if line.may_be_of(opened[number].path) and (line.source is None or line.source in known)
        }
        paths = {opened[number].name: opened[number].path for number in having}  # one dataset may be loaded twice
        if line.dataset is None and len(paths) > 1:
            first = next(iter(paths.values()))
            raise _ambiguous(line, f"datasets: {', '.join(paths.values())}", line._replace(dataset=first))
        for number, known in having.items():
            if line.source is None and len(known) > 1:
                found = ", ".join(map(str, known))
                raise _ambiguous(line, f"inputs: {found}", line._replace(source=known[0]), opened[number].path)


def _ambiguous(line: Place, of: str, named: Place, where: str = "load(exclude=...)") -> ConfigError:
    return ConfigError(f"{line} may be of several {of}", where=where, next_step=f"name the one: {named.written()}")


def _values_of(wanted: Iterable[Place], origins: Origins) -> dict[int, Line]:
    """The origins as the column stores them."""
    pieces: dict[str, list[tuple[int, int]]] = {}
    for number, piece in enumerate(origins.pieces):
        pieces.setdefault(piece.file, []).append((piece.source, number))
    return {
        # The same file may be in several pieces: the position tells which, and others have no such value.
        (number << origins.shift) | place.position: place
        for place in wanted
        for source, number in pieces.get(place.file, [])
        if place.source in (None, source) and place.position < 1 << origins.shift
    }


def _places(shard: Shard, name: str, values: list[int]) -> Iterator[tuple[int, int, int]]:
    """Record, segment and value of each place of a shard that has one of the values, read some at a time.

    Segments count from 1. An origin that is not of one of them is that of the whole row: `_ROW`.
    """
    column: Any = shard[name if name in shard else f"{name}/values"]
    offsets: Any = shard.get(f"{name}/offsets")
    starts = np.arange(len(column) + 1) if offsets is None else offsets.read(0, len(offsets))
    wanted = np.array(values, column.array.dtype)
    for first in range(0, len(column), _AT_ONCE):
        read = column.read(first, min(first + _AT_ONCE, len(column)))
        here = np.flatnonzero(np.isin(read, wanted))
        records = np.searchsorted(starts, first + here, side="right") - 1
        in_order = _documents_of(shard, records) == starts[records + 1] - starts[records]
        segments = np.where(in_order, first + here - starts[records] + 1, _ROW)
        yield from zip(records.tolist(), segments.tolist(), read[here].tolist(), strict=True)


def _documents_of(shard: Shard, records: Array) -> Array:
    """How many documents each of these records has; they ascend. Those that are near to each other are read at once."""
    counts = np.empty(len(records), "i8")
    edges = np.flatnonzero(np.diff(records // _ROWS_AT_ONCE, prepend=-1, append=-1))
    for low, high in itertools.pairwise(edges.tolist()):
        first, last = int(records[low]), int(records[high - 1])
        counts[low:high] = count_documents(shard, first, last + 1)[records[low:high] - first]
    return counts
