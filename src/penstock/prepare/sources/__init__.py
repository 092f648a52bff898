"""Source: files of one format. Survey a file (schema, pieces, identity), then read segments of it as Rows.

Each format is a module with two functions, `survey` and `read`; adding a format is adding a module here. Those that
infer types from the first file have `survey_alike` for the others. What else a format may tell is asked below:
`UNIT`, `NUMBERED`, `most_files`, `folders`, `origin`.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from types import ModuleType
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.base.stores.other_folder import OtherFolder
from penstock.prepare.budget.room import most_line_bytes, most_row_bytes
from penstock.prepare.rows.layouts import plain_schema
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.schema import SampleSchema
from penstock.prepare.sources.reading.text_column import TEXT_SCHEMA, as_text, refuse_no_text
from penstock.prepare.sources.slices import Segment, Slice

SUFFIXES = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".txt": "text",
}
COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2"}
_ENDS = 64 * 1024


@dataclass(frozen=True)
class SourceOptions:
    """The part of a source's config that decides how its bytes are read, in a form that workers take lightly."""

    types: dict[str, str] = field(default_factory=dict)
    delimiter: str | None = None
    null_values: tuple[str, ...] = ()
    newlines_in_values: bool = False
    text_column: str | None = None  # read alone, and called `text`
    document: str = "file"  # what a row of plain text is: a file, or a line
    bad_utf8: str = "set_aside"  # or repair
    trust_pickle: bool = False
    named: tuple[str, ...] = ()  # columns that stages name; a pickled table is read for those that the arrays lack
    format: str = "auto"  # of the files themselves, where a function makes samples of their rows
    function: str = ""  # module:name; it is given whole files, or rows of them
    takes_rows: bool = False
    batch_rows: int = 0  # rows that it is given at a time
    samples: SampleSchema = ()  # what it yields, once that is known


@dataclass(frozen=True, slots=True)  # there may be a million
class File:
    """A file of the input, as listed: its source, its name in positions, where it lies, its format."""

    source: int
    path: str
    location: str
    format: str


@dataclass(frozen=True, slots=True)
class FileSurvey:
    """What was learnt of a file without reading its rows."""

    schema: pa.Schema
    pieces: tuple[Segment, ...]
    not_seen: tuple[str, ...] = ()  # columns that `types:` declares, and that none of the first rows has


@dataclass(frozen=True)
class Reading:
    """How to read every segment of a pass: which columns, as which types, how many rows or bytes at a time."""

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
    tell: Callable[[int], None] | None = None  # called with samples made of a file so far; set where a task runs

    def within(self, allowed: int) -> Reading:
        """Limit the size of a record by the memory that is allowed."""
        return replace(self, most_record_bytes=most_line_bytes(allowed), most_row_bytes=most_row_bytes(allowed))

    def rows_of(self, stored_row_bytes: float) -> int:
        """How many rows to take at a time where a row has so many bytes: those of another source may be smaller."""
        return max(1, min(self.rows_at_once, int(self.bytes_at_once / max(stored_row_bytes, 1.0))))


class UnreadablePart(Exception):
    """A part of a file cannot be used; nothing of it must be, however much was read before.

    `title` is what it is counted under, `reason` what happened. `rows` is -1 for a whole file. It is raised by a
    source that has given rows of the part already, and yielded in their place by one that has not.
    """

    def __init__(
        self, segment: Segment, part: int, ordinal: int, rows: int, reason: str, title: str = "", trace: str = ""
    ) -> None:
        super().__init__(reason)
        self.segment, self.part, self.ordinal, self.rows, self.reason = segment, part, ordinal, rows, reason
        self.title = title or ("unreadable row group" if rows >= 0 else "unreadable file")
        self.trace = trace  # of the user's own code

    def between(self, first: int, last: int) -> UnreadablePart | None:
        """The part cut to rows `first` to `last`, or None. A part without a row count stays as it is."""
        if self.rows < 0:
            return self
        start, stop = max(first, self.ordinal), min(last, self.ordinal + self.rows)
        if start >= stop:
            return None
        return UnreadablePart(self.segment, self.part, start, stop - start, self.reason, self.title, self.trace)


def survey_file(file: File, options: SourceOptions, slice_bytes: int, known: pa.Schema | None = None) -> FileSurvey:
    """Raises InputError, with the reason, for a file that cannot be read. `known` is the schema of an earlier file of
    its source: where only the first file tells types, they are not inferred again."""
    module = _format(file.format)
    alike: FileSurvey | None = None
    if known is not None and hasattr(module, "survey_alike"):
        alike = module.survey_alike(file, options, slice_bytes, known)
    surveyed: FileSurvey = alike or module.survey(file, options, slice_bytes)
    if not options.text_column:
        return replace(surveyed, schema=plain_schema(surveyed.schema))
    refuse_no_text(options.text_column, surveyed.schema, file.location)
    return FileSurvey(TEXT_SCHEMA, surveyed.pieces)


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
    module = _format(reading.formats[segment.source])
    column = reading.options[segment.source].text_column
    if not column:
        return module.read(segment, reading, excluded)  # type: ignore[no-any-return]
    schema = pa.schema([(column, pa.string())])
    alone = replace(reading, schema=schema, columns=(column,), strict=False, codes=frozenset())
    found: Iterator[Rows | UnreadablePart] = module.read(segment, alone, excluded)
    return (as_text(rows, column, reading.columns) if isinstance(rows, Rows) else rows for rows in found)


def readable(segment: Segment, reading: Reading) -> Iterator[Rows]:
    """As many rows as can be read, for a look at them; the task that reads them for good reports the others."""
    try:
        for rows in read_segment(segment, reading, frozenset()):
            if isinstance(rows, Rows):
                yield rows
    except (UnreadablePart, InputError):
        return


def refuse_changed(piece: Slice, reading: Reading) -> None:
    """Raise InputError if a file of the slice is not the one that was surveyed: a task must not mix the two."""
    for segment in piece.segments:
        if _format(reading.formats[segment.source]).identity(segment.location) != segment.identity:
            raise InputError(
                "this file was changed while the job was reading it",
                where=segment.location,
                next_step="let nothing write to the input during a run, then run the same command",
            )


def unit_of(formats: Sequence[str]) -> str:
    """What rows of these formats are called, where no stage says."""
    units = {getattr(_format(name), "UNIT", "rows") for name in formats}
    return units.pop() if len(units) == 1 else "rows"


def are_numbered(formats: Sequence[str]) -> bool:
    """Whether files come in the order of the numbers in their names."""
    return any(getattr(_format(name), "NUMBERED", False) for name in formats)


def most_files(formats: Sequence[str], files: int) -> int | None:
    """The most files of a slice, where their bytes do not tell what they cost."""
    limits = [_format(name).most_files(files) for name in formats if hasattr(_format(name), "most_files")]
    return min(limits, default=None)


def folders_of(formats: Sequence[str], slices: Sequence[Slice]) -> tuple[OtherFolder, ...]:
    """Folders that a job holds while it reads them."""
    module = _format(formats[0])
    return module.folders(slices) if len(formats) == 1 and hasattr(module, "folders") else ()


def origin_of(formats: Sequence[str], slices: Sequence[Slice]) -> dict[str, Any]:
    """Facts for the manifest: what the input was made from, where it tells."""
    module = _format(formats[0])
    return module.origin(slices) if len(formats) == 1 and hasattr(module, "origin") else {}


@cache
def _format(name: str) -> ModuleType:
    return importlib.import_module(f"penstock.prepare.sources.{name}")


def format_of(location: str, declared: str) -> str:
    """The declared format, or the one its name tells."""
    if declared != "auto":
        return declared
    name = location.lower()
    for suffix in COMPRESSIONS:
        name = name.removesuffix(suffix)
    for suffix, format_name in SUFFIXES.items():
        if name.endswith(suffix):
            return format_name
    raise InputError(
        "cannot tell the format from the file name",
        where=location,
        next_step=f"name it in the job: input: {{path: ..., format: parquet | csv | jsonl | arrow | text}} "
        f"(known endings: {' '.join(SUFFIXES)}, each also with {' '.join(COMPRESSIONS)})",
    )


def compression_of(location: str) -> str | None:
    return next((kind for suffix, kind in COMPRESSIONS.items() if location.lower().endswith(suffix)), None)


def is_remote(location: str) -> bool:
    return "://" in location


def first_line(error: BaseException, lines: int = 1) -> str:
    """What a library says went wrong, in a line."""
    return " ".join(str(error).strip().splitlines()[:lines]) or type(error).__name__


def identity_of_ends(location: str) -> str:
    """Size and hash of both ends: a file that was replaced or appended to gets another identity."""
    if is_remote(location):  # it names a commit, and what that holds does not change
        return digest(location.encode())
    with ReadFile(location) as handle:
        size = os.fstat(handle.fileno()).st_size
        head = handle.read(_ENDS)
        tail = head
        if size > _ENDS:
            handle.seek(size - _ENDS)
            tail = handle.read(_ENDS)
    return f"{size}-{digest(head, tail)}"
