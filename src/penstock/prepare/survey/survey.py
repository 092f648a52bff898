"""Survey: turn a Config into what is known of its input before a row is used. Next: plan.py.

Reads listings, footers, headers and a hundred rows; writes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, groupby, islice
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError, PlanError
from penstock.base.fingerprint import fingerprint
from penstock.base.memory import Budget, own_memory
from penstock.base.sizes import format_size
from penstock.base.stores.other_folder import OtherFolder
from penstock.prepare.budget.heap import give_back_memory
from penstock.prepare.budget.room import most_line_bytes
from penstock.prepare.job.config import Config
from penstock.prepare.rows.layouts import refuse_other_layouts
from penstock.prepare.samples.schema import declared_schema
from penstock.prepare.sources import (
    File,
    FileSurvey,
    Reading,
    SourceOptions,
    compression_of,
    folders_of,
    most_files,
    readable,
    survey_file,
    unit_of,
)
from penstock.prepare.sources.reading.declared import Misnamed, refuse_misspelled
from penstock.prepare.sources.row_range import RowRange, pieces_in_range
from penstock.prepare.sources.slices import Segment, Slice, cut_slices
from penstock.prepare.stages.interfaces import Compares, HoldsFolders
from penstock.prepare.stages.select import path_to
from penstock.prepare.stages.stage import Stage
from penstock.prepare.survey.checking import check_stages
from penstock.prepare.survey.finding import find_files
from penstock.prepare.survey.formats import refuse_unfit_format
from penstock.prepare.survey.listing import Unread
from penstock.prepare.survey.scouting import Scouted
from penstock.prepare.survey.shortening import shortened
from penstock.shards.feature_names import FeatureNames, misaligned, names_of
from penstock.shards.schema import Schema

FILE_BYTES = 1536  # of the driver's memory for each file, at the most: benchmarks/RESULTS.md
MANY_FILES = 1000  # fewer are nothing beside what any job needs
_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 256 * 1024
_SAMPLE_FILES = 20


@dataclass(frozen=True)
class BadFile:
    """A file that cannot be used at all, and why."""

    source: int
    path: str
    reason: str
    detail: str


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
    not_seen: tuple[str, ...] = ()  # columns that `types:` declares, and that none of the first rows has

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.slices)

    @property
    def rows_are_estimated(self) -> bool:
        return any(piece.rows < 0 for piece in self.slices)

    def rows_of(self, piece: Slice) -> int:
        """Rows of a slice: counted where a footer tells, estimated for text."""
        return piece.rows if piece.rows >= 0 else max(1, int(piece.bytes / self.stored_row_bytes))

    def reading(self, rows_at_once: int, bytes_at_once: int) -> Reading:
        return Reading(self.schema, self.columns, self.strict, rows_at_once, bytes_at_once, self.formats, self.sources)

    @property
    def unit(self) -> str:
        """What the job calls its rows."""
        named = next((stage.unit_in for stage in self.stages if stage.unit_in), "")
        return named or unit_of(self.formats)

    @property
    def other_folders(self) -> tuple[OtherFolder, ...]:
        """Folders beside the output that the job holds while it runs."""
        by_stages = (each for stage in self.stages if isinstance(stage, HoldsFolders) for each in stage.other_folders())
        return (*by_stages, *folders_of(self.formats, self.slices))


Scout = Callable[[Sequence[File], SourceOptions, str | None, dict[str, Any]], Scouted]


def take_survey(config: Config, scout: Scout, budget: Budget | None = None) -> Survey:
    """`scout` calls a user's function somewhere, to see what it yields. Planning itself must fit in `budget`."""
    stages = config.build_stages()
    found = find_files(config)
    files = found.files
    if budget and len(files) >= MANY_FILES:
        _refuse_too_many(len(files), budget)
    sources, scouted = _scout(config, files, scout)
    sources = tuple(replace(each, named=_named(stages)) for each in sources)
    good, bad, not_seen = _survey_files(config, sources, files)
    first, told = _first_with_columns(good)
    schema = _nullable(told.schema)
    needed = _whole_columns(columns_needed(stages), schema)
    if needed and not needed <= set(schema.names):  # the stage that names a column too many says so
        check_stages(config, stages, _no_rows(schema), schema, tuple(schema.names))
    columns = tuple(name for name in schema.names if needed is None or name in needed)
    refuse_other_layouts(schema, columns)
    good, wrong = _same_schema(good, first, schema, columns, config)
    formats = tuple(_format_of_source(files, number) for number in range(len(config.input)))
    most = most_files(formats, len(files))
    reading = Reading(schema, columns, needed is None, _SAMPLE_ROWS, _SAMPLE_BYTES, formats, sources)
    if budget:
        reading = replace(reading, most_record_bytes=most_line_bytes(budget.allowed))
    pieces = list(chain.from_iterable(survey.pieces for _, survey in good))
    pieces = _in_ranges(pieces, found.ranges, (*bad, *wrong), reading)
    most_rows = min((stage.most_rows_per_slice for stage in stages if isinstance(stage, Compares)), default=None)
    slices = cut_slices(pieces, config.slice_bytes, most, most_rows)
    if scouted:
        sample, stored_row_bytes = scouted.sample.select(list(columns)), scouted.stored_row_bytes
    else:
        sample, stored_row_bytes = _sample(slices, reading.within(budget.allowed) if budget else reading)
        if not any(stage.code() for stage in stages):  # a user's function is given whole rows
            sample = _beginnings(sample)
    made_from = fingerprint(describe_files(slices, (*bad, *wrong)))
    stages, output, given, names = check_stages(config, stages, sample, schema, columns, made_from)
    refuse_unfit_format(config, list(zip(config.stage_names, stages, strict=True)), output, given)
    return Survey(
        stages=stages,
        schema=schema,
        columns=columns,
        strict=needed is None,
        output=output,
        slices=slices,
        formats=formats,
        files=len(files),
        bad_files=(*bad, *wrong),
        unread=found.unread,
        sample=sample,
        stored_row_bytes=stored_row_bytes,
        given=given,
        sources=sources,
        feature_names=names,
        not_seen=tuple(name for name in not_seen if name in columns),
    )


def _refuse_too_many(files: int, budget: Budget) -> None:
    """The driver holds something of every file: it must not be killed while it counts them."""
    held = own_memory().counted
    needed = held + files * FILE_BYTES
    if needed > budget.allowed:
        raise PlanError(
            f"the input has {files:,} files, and the driver needs {format_size(needed)} to plan them: "
            f"{format_size(held)} of its own and about {FILE_BYTES:,} bytes per file; "
            f"{budget} allows {format_size(budget.allowed)}",
            where="counted when the input was listed",
            next_step=f"memory: {math.ceil(1.5 * needed / 10e6) * 10}MB, or join small files into larger ones",
        )


def _scout(config: Config, files: list[File], scout: Scout) -> tuple[tuple[SourceOptions, ...], Scouted | None]:
    """How each source is read, and what the first function was seen to yield."""
    sources, first = [], None
    for number, source in enumerate(config.input):
        declared = declared_schema(source.samples, source.missing) if source.samples else ()
        options = source.options(declared)
        if source.function:
            own = [file for file in files if file.source == number]
            scouted = scout(own, options, source.floats, source.missing)
            options = source.options(scouted.samples)
            first = first or scouted
        sources.append(options)
    return tuple(sources), first


def _format_of_source(files: list[File], number: int) -> str:
    return next(file.format for file in files if file.source == number)


Surveyed = list[tuple[File, FileSurvey]]


def _survey_files(
    config: Config, sources: tuple[SourceOptions, ...], files: list[File]
) -> tuple[Surveyed, list[BadFile], list[str]]:
    """(the files that can be read, the others, columns that `types:` declares and no first row has)."""
    good: Surveyed = []
    bad = []
    not_seen: list[str] = []
    misnamed: dict[int, Misnamed] = {}
    slice_bytes = config.slice_bytes
    schemas: dict[int, pa.Schema] = {}  # by source: of the last file that tells, held once however many have it
    for file in files:
        try:
            known = schemas.get(file.source)
            found = survey_file(file, sources[file.source], slice_bytes, known)
            if known is None and _tells_columns(file, found):
                refuse_misspelled(file, found)
                not_seen += found.not_seen
            if known is not None and known.equals(found.schema, check_metadata=True):  # names of features
                found = replace(found, schema=known)
            elif _tells_columns(file, found):
                schemas[file.source] = found.schema
            good.append((file, found))
        except InputError as error:
            if config.on_bad_input == "fail":
                raise
            bad.append(BadFile(file.source, file.path, "unreadable file", error.what))
            if isinstance(error, Misnamed):
                misnamed.setdefault(file.source, error)
    for number, mistake in misnamed.items():
        if number not in schemas:
            raise mistake
    if not good:
        raise InputError(
            f"none of the {len(files)} files can be read", where=f"the first: {bad[0].path}: {bad[0].detail}"
        )
    return good, bad, not_seen


def _tells_columns(file: File, found: FileSurvey) -> bool:
    """Whether a file shows its columns: a JSONL file without a line shows none but the declared ones."""
    return bool(len(found.schema)) and (bool(found.pieces) or file.format != "jsonl")


def _first_with_columns(good: Surveyed) -> tuple[File, FileSurvey]:
    """The file whose columns are the input's; the first of all if none shows any."""
    return next((each for each in good if _tells_columns(*each)), good[0])


def _same_schema(
    good: Surveyed, first: File, schema: pa.Schema, columns: tuple[str, ...], config: Config
) -> tuple[Surveyed, list[BadFile]]:
    """Hold every file's needed columns against the first file's."""
    fitting: Surveyed = []
    wrong = []
    for file, survey in good:
        difference = _difference(survey.schema, schema, columns, file)
        if difference is None:
            fitting.append((file, survey))
        elif config.on_bad_input == "fail":
            raise InputError(
                f"this file's columns differ from the first file's: {difference}",
                where=f"{file.location}; the first is {first.location}",
                next_step="`select` the columns they share, or set `on_bad_input: set_aside` to go on without it",
            )
        else:
            wrong.append(BadFile(file.source, file.path, "other columns than the first file", difference))
    return fitting, wrong


def _difference(found: pa.Schema, expected: pa.Schema, columns: tuple[str, ...], file: File) -> str | None:
    if file.format == "jsonl":
        return None  # a line tells its own columns, and is held against the schema when it is read
    types = dict(zip(found.names, found.types, strict=True))
    expected_types = dict(zip(expected.names, expected.types, strict=True))
    for name in columns:
        if name not in types:
            return f"it has no column {name!r}"
        if wrong := misaligned(names_of(found.field(name)), names_of(expected.field(name))):
            return f"column {name!r}: {wrong}"
        if file.format not in ("csv", "text") and types[name] != expected_types[name]:
            return f"column {name!r} is {types[name]}, not {expected_types[name]}"
    extra = [name for name in types if name not in expected_types]
    if extra and len(columns) == len(expected_types):
        return f"it has a column {extra[0]!r} that the first has not"
    return None


def _named(stages: tuple[Stage, ...]) -> tuple[str, ...]:
    """Every column that a stage names."""
    return tuple(sorted(frozenset[str]().union(*(stage.needs(frozenset()) or () for stage in stages))))


def _in_ranges(
    pieces: list[Segment], ranges: dict[int, RowRange], bad: Sequence[BadFile], reading: Reading
) -> list[Segment]:
    """The pieces with the rows that the sources ask for: all, or those of `split: train[a:b]`."""
    for each in bad:
        if each.source in ranges:
            raise InputError(
                f"its rows cannot be counted, which `split: {ranges[each.source]}` needs: {each.detail}",
                where=each.path,
                next_step="replace the file, or leave it out of the input",
            )
    by_source = {number: list(own) for number, own in groupby(pieces, lambda piece: piece.source)}
    for number, rows in ranges.items():
        by_source[number] = pieces_in_range(number, by_source.get(number, []), rows, reading)
    return list(chain.from_iterable(by_source.values()))


def describe_files(slices: Sequence[Slice], bad_files: Sequence[BadFile]) -> dict[str, Any]:
    """What the input is, wherever it lies."""
    segments = [segment for piece in slices for segment in piece.segments]
    files = sorted({(segment.source, segment.path, segment.identity) for segment in segments})
    bad = [[each.source, each.path, each.reason] for each in bad_files]
    return {"files": [list(each) for each in files], "set_aside": bad}


def _nullable(schema: pa.Schema) -> pa.Schema:
    """Whether a column says that it has no nulls changes nothing here, and must not make two schemas differ."""
    return pa.schema([field.with_nullable(True) for field in schema])


def columns_needed(stages: tuple[Stage, ...]) -> frozenset[str] | None:
    """The input columns some stage or the output uses; None means all of them."""
    needed: frozenset[str] | None = None
    for stage in reversed(stages):
        needed = stage.needs(needed)
    return needed


def _whole_columns(needed: frozenset[str] | None, schema: pa.Schema) -> frozenset[str] | None:
    """Columns to read: a field of a struct is read with its column."""
    return None if needed is None else frozenset((path_to(name, schema) or (name,))[0] for name in needed)


def _sample(slices: tuple[Slice, ...], reading: Reading) -> tuple[pa.RecordBatch, float]:
    """(the first rows, stored bytes a row): footers count rows, a text file's first chunk tells its lines."""
    counted = [piece for piece in slices if piece.rows > 0]
    stored = sum(piece.bytes for piece in counted) / max(1, sum(piece.rows for piece in counted))
    schema = pa.schema([reading.schema.field(name) for name in reading.columns])
    for segments in _looked_at(slices):
        found = [rows.batch for each in segments for rows in islice(filter(len, readable(each, reading)), 1)]
        if found:
            sample = pa.Table.from_batches(found).combine_chunks().to_batches()[0]
            return sample.slice(0, _SAMPLE_ROWS), stored or _text_row_bytes(segments[0], int(sample.num_rows))
    return _no_rows(schema), stored or 1.0


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch without rows; made of arrays because Arrow makes no union from Python's values."""
    return pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def _beginnings(sample: pa.RecordBatch) -> pa.RecordBatch:
    """The sample, and no giant: what the driver holds of the first rows it holds to the end."""
    if sample.nbytes <= 2 * _SAMPLE_BYTES:
        return sample
    beginnings = shortened(sample, _SAMPLE_BYTES)
    del sample
    give_back_memory()
    return beginnings


def _looked_at(slices: tuple[Slice, ...]) -> Iterator[list[Segment]]:
    """Segments to take the first rows from, until there are any.

    A file that is one row may be larger than what the driver is to hold: some small ones together
    come before the others, and tables before all of them.
    """
    segments = [segment for piece in slices for segment in piece.segments]
    whole_files = [segment for segment in segments if segment.rows == 1]
    yield from ([segment] for segment in segments if segment.rows != 1)
    yield [segment for segment in whole_files if segment.bytes <= _SAMPLE_BYTES][:_SAMPLE_FILES]
    yield from ([segment] for segment in sorted(whole_files, key=lambda segment: segment.bytes))


def _text_row_bytes(segment: Segment, rows: int) -> float:
    """Stored bytes a row, from the first chunk; a compressed file is taken to shrink its text to a quarter."""
    if compression_of(segment.location):
        return _SAMPLE_BYTES / rows / 4
    return min(segment.bytes, _SAMPLE_BYTES) / rows
