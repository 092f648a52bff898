"""Source: files of one format. Survey a file (schema, pieces, identity), then read segments of it as Rows.

To add a source, write a module with a `SOURCE`, a value of a class below `Source`, and add a line to registry.py.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError, did_you_mean
from penstock.base.stores.store import OtherFolder
from penstock.base.user_code.carried import shown_name
from penstock.prepare.budget.room import most_line_bytes, most_row_bytes
from penstock.prepare.rows.layouts import may_be_text, plain_schema
from penstock.prepare.rows.rows import Rows, SetAside
from penstock.prepare.samples.items import Items
from penstock.prepare.samples.schema import SampleSchema
from penstock.prepare.sources.reading.input_file import identity_of_ends, was_changed
from penstock.prepare.sources.registry import SOURCES
from penstock.prepare.sources.slices import Segment, Slice
from penstock.shards.origins import Origins

TEXT_SCHEMA = pa.schema([("text", pa.string())])


@dataclass(frozen=True)
class SourceOptions:
    """The part of a source's config that decides how its bytes are read, cheap to send to workers."""

    types: dict[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    null_values: tuple[str, ...] = ()
    newlines_in_values: bool = False
    text_column: str | None = None  # read alone, and called `text`
    document: str = "file"  # what a row of plain text is: a file, or a line
    encoding: str = ""  # of text formats; none is UTF-8
    bad_utf8: str = "set_aside"  # or repair
    trust_pickle: bool = False
    named: tuple[str, ...] = ()  # columns that stages name; a pickled table is read for those that the arrays lack
    format: str = "auto"  # of the files themselves, where a function makes samples of their rows
    function: str = ""  # module:name; it is given whole files, or rows of them
    takes_rows: bool = False
    batch_rows: int = 0  # rows that it is given at a time
    samples: SampleSchema = ()  # what it yields, once that is known
    items: Items | None = None  # what it is given one by one, if it is given no files

    @property
    def takes_files(self) -> bool:
        """Whether a function is given whole files: not rows of them, and not items."""
        return bool(self.function) and not self.takes_rows and self.items is None

    @property
    def function_name(self) -> str:
        """Name of the function for people."""
        return shown_name(self.function)


@dataclass(frozen=True, slots=True)  # there may be a million
class File:
    """A file of the input, as listed: its source, its name in positions, where it lies, its format."""

    source: int
    path: str
    location: str
    format: str
    encoding: str = ""  # of its text, if that is not UTF-8

    def segment(self, identity: str, rows: int, size: int, first: int = 0, last: int = 1, ordinal: int = 0) -> Segment:
        """A part of the file; the whole, if no more is said."""
        place = (self.source, self.path, self.location)
        return Segment(*place, identity, first, last, ordinal, rows, size, encoding=self.encoding)


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """Facts of a file that are known without reading its rows."""

    schema: pa.Schema
    pieces: tuple[Segment, ...]
    not_seen: tuple[str, ...] = ()  # columns that `types:` declares, and that none of the first rows has
    decoded_bytes: int = 0  # at least, of lists and compressed batches: first rows tell nothing about them


@dataclass(frozen=True)
class Reading:
    """The way to read every segment of a pass: columns, their types, rows or bytes at a time."""

    schema: pa.Schema  # all columns of the file, in the dataset's types
    columns: tuple[str, ...]  # the ones to read
    strict: bool  # whether a column that is not in `schema` is an error
    rows_at_once: int
    bytes_at_once: int
    formats: tuple[str, ...]
    options: tuple[SourceOptions, ...]  # one a source
    codes: frozenset[str] = frozenset()  # text columns that may come as codes, where that costs less
    most_record_bytes: int = 1 << 62  # of a line; one that has more is set aside
    most_row_bytes: int = 1 << 62  # of the text of a row of Parquet or Arrow, likewise
    excluded: frozenset[int] = frozenset()  # parts of the file that are known to be unreadable
    brings_origins: frozenset[tuple[int, str]] = frozenset()  # files, by source and path, whose rows come with origins
    tell: Callable[[int], None] | None = None  # called with samples made of a file so far; set where a task runs

    def within(self, allowed: int) -> Reading:
        """Limit the size of a record by the memory that is allowed."""
        return replace(self, most_record_bytes=most_line_bytes(allowed), most_row_bytes=most_row_bytes(allowed))

    @property
    def wanted(self) -> pa.Schema:
        """Schema of the columns to read."""
        return pa.schema([self.schema.field(name) for name in self.columns])

    def repairs(self, segment: Segment) -> bool:
        """Whether text that is not UTF-8 is repaired."""
        return self.options[segment.source].bad_utf8 == "repair"

    def none_of(self, segment: Segment, *aside: SetAside) -> Rows:
        """Rows of a segment whose rows are all set aside."""
        empty = pa.RecordBatch.from_pylist([], schema=self.wanted)
        return Rows(empty, segment.source, (segment.path,), np.arange(0), None, aside)

    def rows_of(self, stored_row_bytes: float) -> int:
        """Rows to take at a time if a row has so many bytes: those of another source may be smaller."""
        return max(1, min(self.rows_at_once, int(self.bytes_at_once / max(stored_row_bytes, 1.0))))


@dataclass(frozen=True)
class Brought:
    """Origins that a dataset has of its rows, for a job that reads it."""

    origins: Origins
    sources: tuple[Mapping[str, Any], ...]  # options of the inputs of its own job
    columns: tuple[str, ...]
    has_hashes: bool
    per_segment: bool  # whether rows are packed, and have one for each of their documents


class UnreadablePart(Exception):
    """A part of a file cannot be used; nothing of it must be, however much was read before.

    `title` is what it is counted under, `reason` what happened. `rows` is -1 for a whole file. It is raised by a
    source that has given rows of the part already, and yielded in their place by one that has not.
    """

    def __init__(
        self,
        segment: Segment,
        part: int,
        ordinal: int,
        rows: int,
        reason: str,
        title: str = "",
        trace: str = "",
        name: str = "",
    ) -> None:
        super().__init__(reason)
        self.segment, self.part, self.ordinal, self.rows, self.reason = segment, part, ordinal, rows, reason
        self.title = title or ("unreadable row group" if rows >= 0 else "unreadable file")
        self.trace = trace  # of the user's own code
        self.name = name or segment.path  # in rejected/

    def between(self, first: int, last: int) -> UnreadablePart | None:
        """The part cut to rows `first` to `last`, or None. A part without a row count stays as it is."""
        if self.rows < 0:
            return self
        start, stop = max(first, self.ordinal), min(last, self.ordinal + self.rows)
        if start >= stop:
            return None
        facts = (self.reason, self.title, self.trace, self.name)
        return UnreadablePart(self.segment, self.part, start, stop - start, *facts)


class Misnamed(InputError):
    """A name in `types:` is no column of a file: a mistake of the job where it is one of no other file either."""


class Source(ABC):
    """A format of files. The facts below are asked by those who survey, plan and run a job."""

    unit: ClassVar[str] = "rows"  # the word for rows of this format, where no stage says
    is_numbered: ClassVar[bool] = False  # files come in the order of the numbers in their names
    keeps_positions: ClassVar[bool] = False  # rows may bring the positions they had in other files
    lines_tell_columns: ClassVar[bool] = False  # a line is held against the schema when it is read
    files_tell_types: ClassVar[bool] = True  # if not, all files have the types of the first
    takes: ClassVar[tuple[str, ...]] = ()  # of types, delimiter and encoding: those that have a say in its files
    is_one_part: ClassVar[bool] = True  # a file that cannot be read to its end is set aside as a whole
    reads_files: ClassVar[bool] = True

    @abstractmethod
    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
        """Raises InputError, with the reason, for a file that cannot be read."""

    @abstractmethod
    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
        """Rows of one segment, in order."""

    def survey_alike(self, file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema) -> FileSurvey | None:  # noqa: ARG002
        """Survey a later file of a source whose first file tells the types; None if it must be surveyed anew."""
        return None

    def identity(self, location: str) -> str:
        """Text that differs if the file is no longer the one that was surveyed."""
        return identity_of_ends(location)

    def is_changed(self, segment: Segment) -> bool:
        """Whether the file is no longer the one that was surveyed."""
        return self.identity(segment.location) != segment.identity

    def most_files(self, files: int) -> int | None:  # noqa: ARG002
        """The most files of a slice, where their bytes do not tell what they cost."""
        return None

    def folders(self, slices: Sequence[Slice]) -> tuple[OtherFolder, ...]:  # noqa: ARG002
        """Folders that a job holds while it reads them."""
        return ()

    def brought(self, segment: Segment) -> Brought | None:  # noqa: ARG002
        """The origins that the rows of a file bring, if they do."""
        return None

    def origin(self, slices: Sequence[Slice]) -> dict[str, Any]:  # noqa: ARG002
        """Facts for the manifest: what the input was made from, where it tells."""
        return {}


def source_of(format_name: str) -> Source:
    return _source_in(SOURCES[format_name].module)


@cache
def _source_in(module: str) -> Source:
    source: Source = importlib.import_module(module).SOURCE
    return source


def survey_file(file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema | None = None) -> FileSurvey:
    """Raises InputError, with the reason, for a file that cannot be read. `known` is the schema of an earlier file of
    its source: where only the first file tells types, they are not inferred again."""
    source, file = source_of(file.format), replace(file, encoding=options.encoding)
    alike = source.survey_alike(file, options, slice_bytes, known) if known is not None else None
    surveyed = alike or source.survey(file, options, slice_bytes)
    if not options.text_column:
        return replace(surveyed, schema=_held_once(surveyed.schema, known))
    _refuse_no_text(options.text_column, surveyed.schema, file.location)
    return FileSurvey(TEXT_SCHEMA, surveyed.pieces)


def _held_once(schema: pa.Schema, known: pa.Schema | None) -> pa.Schema:
    """The plain schema; the known one if it is the same, which is then in memory once however many files have it."""
    if known is None:
        return plain_schema(schema)
    if known.equals(schema, check_metadata=True):  # in which names of features are
        return known
    plain = plain_schema(schema)
    return known if known.equals(plain, check_metadata=True) else plain


def _refuse_no_text(column: str, schema: pa.Schema, location: str) -> None:
    """Raise InputError unless the file has that column, of text."""
    if column not in schema.names:
        raise missing_column(column, schema.names, location)
    kind = schema.field(column).type
    if not may_be_text(kind):
        raise InputError(
            f"`text_column: {column}` is {kind}, not text",
            where=location,
            next_step=f"name a column of text; or leave text_column out, and make text of {column!r} in a stage of "
            f"your own (docs/how-to/own-stage.md). Columns: {_shown(schema.names)}",
        )


def missing_column(column: str, names: Iterable[str], location: str) -> InputError:
    known = list(names)
    return InputError(
        f"there is no column {column!r}, which `text_column` names.{did_you_mean(column, known)}",
        where=location,
        next_step=f"name one of its columns: {_shown(known)}",
    )


def _shown(names: list[str]) -> str:
    return ", ".join(names) or "it has none"


def read_segment(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows | UnreadablePart]:
    """Rows of one segment, in order. `excluded` parts are known to be unreadable and are passed over."""
    found = _all_rows(segment, reading, excluded)
    return _kept(found, *segment.keeps) if segment.keeps else found


def _kept(found: Iterator[Rows | UnreadablePart], first: int, last: int) -> Iterator[Rows | UnreadablePart]:
    """The rows whose ordinals are in the range; reading ends behind it."""
    try:
        for rows in found:
            if isinstance(rows, Rows):
                yield rows.between(first, last)
                if len(rows) and rows.ordinals[-1] >= last:
                    return
            elif part := rows.between(first, last):
                yield part
    except UnreadablePart as error:
        if part := error.between(first, last):
            raise part from error


def _all_rows(segment: Segment, reading: Reading, excluded: frozenset[int]) -> Iterator[Rows | UnreadablePart]:
    source = source_of(reading.formats[segment.source])
    if excluded and source.is_one_part:
        return iter(())
    reading = replace(reading, excluded=excluded)
    column = reading.options[segment.source].text_column
    if not column:
        return source.read(segment, reading)
    schema = pa.schema([(column, pa.string())])
    alone = replace(reading, schema=schema, columns=(column,), strict=False, codes=frozenset())
    found = source.read(segment, alone)
    return (_as_text(rows, column, reading.columns) if isinstance(rows, Rows) else rows for rows in found)


def _as_text(rows: Rows, column: str, columns: tuple[str, ...]) -> Rows:
    """The rows with that column as `text`, and with no other."""
    array = rows.batch.column(column)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    batch = pa.RecordBatch.from_arrays([array.cast(pa.string())], schema=TEXT_SCHEMA)
    return replace(rows, batch=batch.select(list(columns)))


def readable(segment: Segment, reading: Reading) -> Iterator[Rows]:
    """The rows that can be read, for a preview. The task that reads the slice later reports the others."""
    try:
        for rows in read_segment(segment, reading, frozenset()):
            if isinstance(rows, Rows):
                yield rows
    except (UnreadablePart, InputError):
        return


def refuse_changed(piece: Slice, reading: Reading) -> None:
    """Raise InputError if a file of the slice is not the one that was surveyed: a task must not mix the two."""
    for segment in piece.segments:
        if source_of(reading.formats[segment.source]).is_changed(segment):
            raise was_changed("this file was changed while the job was reading it", segment.location)
