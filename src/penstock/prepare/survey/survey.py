"""Survey: what is known of a job's input before a row is used. Made by taking.py. Next: plan.py."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.stores.store import OtherFolder
from penstock.prepare.sources import Reading, Source, SourceOptions, source_of
from penstock.prepare.sources.row_range import RowRange, pieces_in_range
from penstock.prepare.sources.slices import Segment, Slice, cut_slices
from penstock.prepare.stages.interfaces import HoldsFolders
from penstock.prepare.stages.stage import Stage
from penstock.prepare.survey.agreement import BadFile
from penstock.prepare.survey.lineage import Lineage
from penstock.prepare.survey.listing import Unread
from penstock.shards.origins import HASH, Origins, origin_columns, shift_of, with_origins
from penstock.shards.schema import FeatureNames, Schema

MANY_FILES = 1000  # fewer are nothing beside what any job needs


@dataclass(frozen=True)
class Survey:
    stages: tuple[Stage, ...]
    schema: pa.Schema  # of the input, all its columns
    columns: tuple[str, ...]  # the ones the stages need
    strict: bool
    output: Schema
    slices: tuple[Slice, ...]
    formats: tuple[str, ...]
    files: int
    bad_files: tuple[BadFile, ...]
    unread: tuple[Unread, ...]  # what lies in the input and is not read; decides nothing
    sample: pa.RecordBatch  # the first rows, at most a hundred
    stored_row_bytes: float  # bytes a row takes in the input, as far as can be told without reading it
    given: tuple[pa.Schema, ...]  # what each stage is given
    sources: tuple[SourceOptions, ...]  # how each source is read; what functions yield is known by now
    feature_names: FeatureNames  # of the output's columns, where the input tells them
    optional: frozenset[str] = frozenset()  # columns of the output that may be null in any format
    not_seen: tuple[str, ...] = ()  # columns that `types:` declares, and that none of the first rows has
    hashed: str = ""  # column of the input with the text of documents, where their hashes are kept
    lineage: Lineage | None = None  # of all origins; None if they are not kept
    divided_by: tuple[dict[str, Any], ...] = ()  # splits by hash of which the input is only a part
    decoded_bytes: int = 0  # at least, of lists and compressed batches, as their files say

    @property
    def origin_columns(self) -> tuple[str, ...]:
        """Columns of the output that say where rows came from."""
        return origin_columns(self.output)

    @property
    def origin_bits(self) -> int | None:
        """Bits of a position in an origin; None if no origins are kept."""
        return shift_of(self.lineage.count(self.slices)) if self.lineage else None

    @property
    def kept_of_origins(self) -> dict[str, Any]:
        """Kept origins, for the description of the job."""
        hashes = {"content_hashes": True} if HASH in self.origin_columns else {}
        return {"provenance": True, **hashes} if self.origin_columns else {}

    def stored(self, schema: Schema) -> Schema:
        """Columns that tasks leave for each other: with origins, if they are kept."""
        return with_origins(schema, self.origin_columns)

    @property
    def origins(self) -> Origins:
        """Every piece of the input, by the number that origins have of it."""
        return (self.lineage or Lineage()).origins(self.slices)

    @property
    def folders(self) -> list[str | None]:
        """Folders that the files of origins lie in, by source."""
        return (self.lineage or Lineage()).folders(self.slices)

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.slices)

    @property
    def items(self) -> int:
        """Items that functions are given."""
        return sum(len(each.items) for each in self.sources if each.items)

    @property
    def file_bytes(self) -> int:
        """Bytes of the files; items have none."""
        return sum(map(self.file_bytes_of, self.slices))

    def file_bytes_of(self, piece: Slice) -> int:
        """Bytes of files in a slice; items have none."""
        return sum(segment.bytes for segment in piece.segments if self.kinds[segment.source].reads_files)

    @property
    def rows_are_estimated(self) -> bool:
        return any(piece.rows < 0 for piece in self.slices)

    def rows_of(self, piece: Slice) -> int:
        """Rows of a slice: counted where a footer tells, estimated for text."""
        return piece.rows if piece.rows >= 0 else max(1, int(piece.bytes / self.stored_row_bytes))

    def reading(self, rows_at_once: int, bytes_at_once: int) -> Reading:
        return Reading(self.schema, self.columns, self.strict, rows_at_once, bytes_at_once, self.formats, self.sources)

    @property
    def kinds(self) -> tuple[Source, ...]:
        """Format of each source, as a value."""
        return tuple(map(source_of, self.formats))

    @property
    def unit(self) -> str:
        """The job's word for its rows."""
        named = next((stage.unit_in for stage in self.stages if stage.unit_in), "")
        units = {kind.unit for kind in self.kinds}
        return named or (units.pop() if len(units) == 1 else "rows")

    @property
    def other_folders(self) -> tuple[OtherFolder, ...]:
        """Folders beside the output that the job holds while it runs."""
        by_stages = (each for stage in self.stages if isinstance(stage, HoldsFolders) for each in stage.other_folders())
        by_source = self.kinds[0].folders(self.slices) if len(self.kinds) == 1 else ()
        return (*by_stages, *by_source)

    @cached_property
    def described(self) -> dict[str, Any]:
        """Identity of the input, and of the order in which it is read."""
        described = describe_files(self.slices, self.bad_files)
        if self.feature_names:  # features were put in their order
            described["feature_names"] = self.feature_names
        paths = [[segment.source, segment.path] for piece in self.slices for segment in piece.segments]
        if any(kind.is_numbered for kind in self.kinds) and paths != sorted(paths):
            described["order"] = "numbers"  # where that is not the order of their names
        return described

    @property
    def origin(self) -> dict[str, Any]:
        """Facts for the manifest: what the input was made from, where it tells."""
        return self.kinds[0].origin(self.slices) if len(self.kinds) == 1 else {}


def describe_files(slices: Sequence[Slice], bad_files: Sequence[BadFile]) -> dict[str, Any]:
    """Identity of the input, wherever it lies."""
    segments = [segment for piece in slices for segment in piece.segments]
    files = sorted({(segment.source, segment.path, segment.identity) for segment in segments})
    bad = [[each.source, each.path, each.reason] for each in bad_files]
    return {"files": [list(each) for each in files], "set_aside": bad}


def slices_of(
    pieces: Iterable[Segment], slice_bytes: int, files: int, stages: tuple[Stage, ...], formats: tuple[str, ...]
) -> tuple[Slice, ...]:
    """At most so many files per slice as the sources say, and so many rows as the stages say."""
    by_sources = (source_of(name).most_files(files) for name in formats)
    most = min((most for most in by_sources if most is not None), default=None)
    by_stages = (stage.most_rows_per_slice for stage in stages if stage.most_rows_per_slice)
    return cut_slices(pieces, slice_bytes, most, min(by_stages, default=None))


def in_ranges(
    pieces: Iterable[Segment], ranges: dict[int, RowRange], bad: Sequence[BadFile], reading: Reading
) -> list[Segment]:
    """The pieces with the rows that the sources ask for: all, or those of `split: train[a:b]`."""
    for each in bad:
        if each.source in ranges:
            raise InputError(
                f"`split: {ranges[each.source]}` needs the number of rows, but they cannot be counted: {each.detail}",
                where=each.path,
                next_step="replace the file, or leave it out of the input",
            )
    by_source = {number: list(own) for number, own in groupby(pieces, lambda piece: piece.source)}
    for number, rows in ranges.items():
        by_source[number] = pieces_in_range(number, by_source.get(number, []), rows, reading)
    return list(chain.from_iterable(by_source.values()))
