"""Survey: turn a Config into what is known of its input before a row is used. Next: plan.py.

Reads listings, footers, headers and a hundred rows; writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.fingerprint import fingerprint
from penstock.prepare.checking import check_stages, refuse_unfit_format
from penstock.prepare.config import Config
from penstock.prepare.finding import find_files
from penstock.prepare.sample_schema import declared_schema
from penstock.prepare.scouting import Scouted
from penstock.prepare.shortening import shortened
from penstock.prepare.slices import Segment, Slice, cut_slices
from penstock.prepare.sources import (
    File,
    FileSurvey,
    Reading,
    SourceOptions,
    compression_of,
    readable,
    survey_file,
)
from penstock.prepare.stage import Stage
from penstock.shards.schema import Schema

_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 256 * 1024
_SAMPLE_DOCUMENTS = 20
_DOCUMENTS_A_SLICE = 1 << 21  # where they are compared: short ones are stored in few bytes, and cost as much as others


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
    sample: pa.RecordBatch  # the first rows, at most a hundred
    stored_row_bytes: float  # bytes a row takes in the input, as far as can be told without reading it
    given: tuple[pa.Schema, ...]  # what each stage is given
    sources: tuple[SourceOptions, ...]  # how each source is read; what functions yield is known by now

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.slices)

    def rows_of(self, piece: Slice) -> int:
        """Rows of a slice: counted where a footer tells, estimated for text."""
        return piece.rows if piece.rows >= 0 else max(1, int(piece.bytes / self.stored_row_bytes))

    def reading(self, rows_at_once: int, bytes_at_once: int) -> Reading:
        return Reading(self.schema, self.columns, self.strict, rows_at_once, bytes_at_once, self.formats, self.sources)

    @property
    def unit(self) -> str:
        """What the job calls its rows."""
        named = next((stage.unit_in for stage in self.stages if stage.unit_in), "")
        return named or ("samples" if set(self.formats) <= {"function", "npz"} else "rows")


Scout = Callable[[Sequence[File], SourceOptions, str, dict[str, Any]], Scouted]


def take_survey(config: Config, scout: Scout) -> Survey:
    """`scout` calls a user's function somewhere, to see what it yields."""
    stages = config.build_stages()
    files = find_files(config)
    sources, scouted = _scout(config, files, scout)
    good, bad = _survey_files(config, sources, files)
    schema = _nullable(good[0][1].schema)
    needed = columns_needed(stages)
    if needed and not needed <= set(schema.names):  # the stage that names a column too many says so
        check_stages(config, stages, pa.RecordBatch.from_pylist([], schema=schema), schema, tuple(schema.names))
    columns = tuple(name for name in schema.names if needed is None or name in needed)
    good, wrong = _same_schema(good, schema, columns, config)
    formats = tuple(_format_of_source(files, number) for number in range(len(config.input)))
    most = _files_a_slice(len(files)) if "function" in formats else None
    pieces = chain.from_iterable(survey.pieces for _, survey in good)
    most_rows = _DOCUMENTS_A_SLICE if any(stage.keyed_by() for stage in stages) else None
    slices = cut_slices(pieces, config.slice_bytes, most, most_rows)
    reading = Reading(schema, columns, needed is None, _SAMPLE_ROWS, _SAMPLE_BYTES, formats, sources)
    if scouted:
        sample, stored_row_bytes = scouted.sample.select(list(columns)), scouted.stored_row_bytes
    else:
        sample, stored_row_bytes = _sample(slices, reading)
        if not any(stage.code() for stage in stages):  # a user's function is given whole rows
            sample = shortened(sample, _SAMPLE_BYTES)
    made_from = fingerprint(describe_files(slices, (*bad, *wrong)))
    stages, output, given = check_stages(config, stages, sample, schema, columns, made_from)
    refuse_unfit_format(config, stages, output, given)
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
        sample=sample,
        stored_row_bytes=stored_row_bytes,
        given=given,
        sources=sources,
    )


def _files_a_slice(files: int) -> int:
    """Small files may make large samples: so many that there are some sixty tasks, but not more than 256."""
    return min(256, -(-files // 64))


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
) -> tuple[Surveyed, list[BadFile]]:
    good: Surveyed = []
    bad = []
    for file in files:
        try:
            good.append((file, survey_file(file, sources[file.source], config.slice_bytes)))
        except InputError as error:
            if config.on_bad_input == "fail":
                raise
            bad.append(BadFile(file.source, file.path, "unreadable file", error.what))
    if not good:
        raise InputError(
            f"none of the {len(files)} files can be read", where=f"the first: {bad[0].path}: {bad[0].detail}"
        )
    return good, bad


def _same_schema(
    good: Surveyed, schema: pa.Schema, columns: tuple[str, ...], config: Config
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
                where=f"{file.location}; the first is {good[0][0].location}",
                next_step="`select` the columns they share, or set `on_bad_input: set_aside` to go on without it",
            )
        else:
            wrong.append(BadFile(file.source, file.path, "other columns than the first file", difference))
    return fitting, wrong


def _difference(found: pa.Schema, expected: pa.Schema, columns: tuple[str, ...], file: File) -> str | None:
    if file.format == "jsonl":
        return None  # a line tells its own columns, and is held against the schema when it is read
    for name in columns:
        if name not in found.names:
            return f"it has no column {name!r}"
        if file.format not in ("csv", "text") and found.field(name).type != expected.field(name).type:
            return f"column {name!r} is {found.field(name).type}, not {expected.field(name).type}"
    extra = [name for name in found.names if name not in expected.names]
    if extra and len(columns) == len(expected.names):
        return f"it has a column {extra[0]!r} that the first has not"
    return None


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
    return pa.RecordBatch.from_pylist([], schema=schema), stored or 1.0


def _looked_at(slices: tuple[Slice, ...]) -> Iterator[list[Segment]]:
    """Segments to take the first rows from, until there are any.

    A file that is one row is a document, and may be larger than what the driver is to hold: some small ones together
    come before the others, and tables before all of them.
    """
    segments = [segment for piece in slices for segment in piece.segments]
    documents = [segment for segment in segments if segment.rows == 1]
    yield from ([segment] for segment in segments if segment.rows != 1)
    yield [segment for segment in documents if segment.bytes <= _SAMPLE_BYTES][:_SAMPLE_DOCUMENTS]
    yield from ([segment] for segment in sorted(documents, key=lambda segment: segment.bytes))


def _text_row_bytes(segment: Segment, rows: int) -> float:
    """Stored bytes a row, from the first chunk; a compressed file is taken to shrink its text to a quarter."""
    if compression_of(segment.location):
        return _SAMPLE_BYTES / rows / 4
    return min(segment.bytes, _SAMPLE_BYTES) / rows
