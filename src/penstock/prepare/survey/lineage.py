"""Lineage: the files of the input -> the table of all origins, with those that datasets among them bring."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from penstock.prepare.rows.marks import Marks
from penstock.prepare.sources import Brought, source_of
from penstock.prepare.sources.slices import Segment, Slice
from penstock.prepare.stages.interfaces import TakesText
from penstock.prepare.stages.select import Select
from penstock.prepare.stages.stage import Stage
from penstock.shards.origins import Origins, Piece


@dataclass(frozen=True)
class Lineage:
    """Origins that datasets among the input bring. Sources are then counted anew: theirs, and those of the job."""

    tables: tuple[Origins, ...] = ()
    sources: tuple[Mapping[str, Any], ...] | None = None  # options of each; None: they are the inputs of the job
    numbers: Mapping[int, int] = field(default_factory=dict)  # of the job's inputs that are no such dataset
    starts: tuple[int, ...] = ()  # number of the first source of each table
    of: Mapping[tuple[int, str], int] = field(default_factory=dict)  # table of a file, by source and path
    per_segment: bool = False  # whether packed rows bring those of their documents

    def count(self, slices: Sequence[Slice]) -> int:
        """How many pieces have a number."""
        return _count(slices) + sum(len(table.pieces) for table in self.tables)

    def marks(self, hashed: str, slices: Sequence[Slice]) -> Marks:
        """Marks of the rows. Pieces of the tables are numbered behind those of the input."""
        first, firsts = _count(slices), []
        for table in self.tables:
            firsts.append(first)
            first += len(table.pieces)
        return Marks(hashed, {file: firsts[number] for file, number in self.of.items()})

    def origins(self, slices: Sequence[Slice]) -> Origins:
        """Every piece by its number. Those of files that bring origins have no rows."""
        own = (self._piece(segment) for piece in slices for segment in piece.segments)
        brought = (
            Piece(start + piece.source, piece.file, piece.first)
            for table, start in zip(self.tables, self.starts, strict=True)
            for piece in table.pieces
        )
        return Origins((*own, *brought), self.sources)

    def folders(self, slices: Sequence[Slice]) -> list[str | None]:
        """Folder of each source, where its files lie on this machine; None where it is not known."""
        found: dict[int, str] = {}
        for segment in (segment for piece in slices for segment in piece.segments):
            if (segment.source, segment.path) not in self.of and segment.location.endswith(f"/{segment.path}"):
                number = self.numbers.get(segment.source, segment.source)
                found.setdefault(number, segment.location.removesuffix(segment.path))
        count = max(found, default=-1) + 1 if self.sources is None else len(self.sources)
        return [found.get(number) for number in range(count)]

    def _piece(self, segment: Segment) -> Piece:
        if (segment.source, segment.path) in self.of:
            return Piece(-1, "", 0)
        return Piece(self.numbers.get(segment.source, segment.source), segment.path, segment.ordinal)


def _count(slices: Sequence[Slice]) -> int:
    return slices[-1].first + len(slices[-1].segments) if slices else 0


def text_of(stages: Sequence[Stage], given: Sequence[pa.Schema]) -> str:
    """Column of the input with the text that the first stage of documents takes; none if a stage makes it."""
    for number, stage in enumerate(stages):
        if isinstance(stage, TakesText):
            column = stage.column
            for before in reversed(stages[:number]):
                column = before.columns.get(column, "") if isinstance(before, Select) else column
            return column if column in given[0].names else ""
    return ""


def lineage_of(
    segments: Iterable[Segment], formats: Sequence[str], inputs: Sequence[Mapping[str, Any]], keeps_packed: bool
) -> tuple[Lineage, bool]:
    """The lineage of the files, and whether all of them bring content hashes. `inputs` are the job's, by number.

    Packed rows bring origins only to a job that keeps them as they are (`keeps_packed`).
    """
    known: dict[str, int] = {}  # tables by the id of their dataset
    brought: list[Brought] = []
    of: dict[tuple[int, str], int] = {}
    plain: set[int] = set()
    for segment in segments:
        if (segment.source, segment.path) in of:
            continue
        found = source_of(formats[segment.source]).brought(segment)
        if found is None or (found.per_segment and not keeps_packed):
            plain.add(segment.source)
            continue
        if segment.identity not in known:
            known[segment.identity] = len(brought)
            brought.append(found)
        of[segment.source, segment.path] = known[segment.identity]
    if not brought:
        return Lineage(), False
    sources: list[Mapping[str, Any]] = []
    numbers: dict[int, int] = {}
    starts: dict[int, int] = {}
    for number, described in enumerate(inputs):
        if number in plain:
            numbers[number] = len(sources)
            sources.append(described)
        for table in (table for (source, _), table in of.items() if source == number and table not in starts):
            starts[table] = len(sources)
            sources += brought[table].sources
    tables = tuple(each.origins for each in brought)
    first_sources = tuple(starts[each] for each in range(len(tables)))
    per_segment = any(each.per_segment for each in brought)
    lineage = Lineage(tables, tuple(sources), numbers, first_sources, of, per_segment)
    return lineage, not plain and all(each.has_hashes for each in brought)
