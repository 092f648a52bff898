"""Survey: turn a Config into what is known of its input before a row is used. Next: plan.py.

Reads listings, footers, headers and a hundred rows; writes nothing.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
import pyarrow as pa

from penstock.base.errors import ConfigError, InputError, file_error
from penstock.prepare.config import Config, SourceConfig, stage_errors
from penstock.prepare.exchange.order import sort_rows
from penstock.prepare.exchange.spill import with_codes
from penstock.prepare.rows import Rows
from penstock.prepare.slices import Segment, Slice, cut_slices
from penstock.prepare.sources import (
    COMPRESSIONS,
    SUFFIXES,
    File,
    FileSurvey,
    Reading,
    UnreadablePart,
    compression_of,
    format_of,
    read_segment,
    survey_file,
)
from penstock.prepare.stage import FunctionStage, Stage
from penstock.shards.arrayrecord import refuse_unfit
from penstock.shards.schema import Schema, schema_from_arrow

_SAMPLE_ROWS = 100
_SAMPLE_BYTES = 256 * 1024


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

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.slices)

    def rows_of(self, piece: Slice) -> int:
        """Rows of a slice: counted where a footer tells, estimated for text."""
        return piece.rows if piece.rows >= 0 else max(1, int(piece.bytes / self.stored_row_bytes))

    def reading(self, config: Config, rows_at_once: int, bytes_at_once: int) -> Reading:
        return Reading(self.schema, self.columns, self.strict, rows_at_once, bytes_at_once, self.formats, config.input)


def take_survey(config: Config) -> Survey:
    stages = config.build_stages()
    files = [file for number, source in enumerate(config.input) for file in find_files(config, number, source)]
    _refuse_twice(files)
    good, bad = _survey_files(config, files)
    schema = _nullable(good[0][1].schema)
    needed = columns_needed(stages)
    if needed and not needed <= set(schema.names):  # the stage that names a column too many says so
        _check_stages(config, stages, pa.RecordBatch.from_pylist([], schema=schema), schema, tuple(schema.names))
    columns = tuple(name for name in schema.names if needed is None or name in needed)
    good, wrong = _same_schema(good, schema, columns, config)
    formats = tuple(_format_of_source(files, number) for number in range(len(config.input)))
    slices = cut_slices(chain.from_iterable(survey.pieces for _, survey in good), config.slice_bytes)
    reading = Reading(schema, columns, needed is None, _SAMPLE_ROWS, _SAMPLE_BYTES, formats, config.input)
    sample, stored_row_bytes = _sample(slices, reading)
    stages, output, given = _check_stages(config, stages, sample, schema, columns)
    _refuse_unfit(config, stages, output, given)
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
    )


def find_files(config: Config, number: int, source: SourceConfig) -> list[File]:
    """Files of one source in bytewise order of their paths relative to the pattern's fixed part."""
    found: dict[str, File] = {}
    for pattern in source.path:
        root, locations = _match(os.path.join(config.folder, pattern))
        locations = [each for each in locations if not _is_below(each, config.output_path)]
        for location in locations:
            path = os.fsencode(os.path.relpath(location, root)).decode("utf-8", "backslashreplace")
            if found.get(path, File(number, path, location, "")).location != location:
                raise InputError(
                    f"two files of one source have the same name: {path}",
                    where=f"{found[path].location} and {location}",
                    next_step="give them as two sources, or under one common folder",
                )
            found[path] = File(number, path, location, format_of(location, source.format))
        if not locations:
            raise InputError(
                f"no file matches {pattern!r}",
                where=f"input[{number}], looked in {root}",
                next_step="check the path; quote patterns on the command line; `**` crosses folders",
            )
    files = sorted(found.values(), key=lambda file: os.fsencode(file.path))
    formats = sorted({file.format for file in files})
    if len(formats) > 1:
        raise InputError(
            f"one source has files of different formats: {', '.join(formats)}",
            where=f"input[{number}]",
            next_step="give each format as a source of its own: input: ['*.csv', '*.parquet']",
        )
    return files


def _refuse_twice(files: list[File]) -> None:
    """A file that two patterns or sources name would have its rows twice."""
    seen: dict[str, File] = {}
    for file in files:
        first = seen.setdefault(os.path.realpath(file.location), file)
        if first is not file:
            raise InputError(
                "this file is in the input twice",
                where=f"{first.location} (input[{first.source}]) and {file.location} (input[{file.source}])",
                next_step="let each file match one pattern of one source",
            )


def _is_below(path: str, folder: str) -> bool:
    """Whether a file is the job's own output: an output inside the input folder must not feed itself."""
    return os.path.abspath(path).startswith(os.path.join(os.path.abspath(folder), ""))


def _match(pattern: str) -> tuple[str, list[str]]:
    """(the folder that positions are relative to, the files). A folder means every file below it of a known ending.

    A link that leads nowhere counts as a file: reading it fails by name, where leaving it out would say nothing.
    """
    if os.path.isdir(pattern):
        endings = tuple(suffix + packed for suffix in SUFFIXES for packed in ("", *COMPRESSIONS))
        return pattern, [each for each in _files_below(pattern) if each.lower().endswith(endings)]
    if os.path.lexists(pattern):
        return os.path.dirname(pattern), [pattern]
    root = pattern
    while glob.has_magic(root):
        root = os.path.dirname(root)
    return root, [each for each in glob.glob(pattern, recursive=True) if not os.path.isdir(each)]


def _files_below(folder: str) -> Iterator[str]:
    def refuse(error: OSError) -> None:
        raise file_error(error, "list", error.filename or folder)

    for place, _, names in os.walk(folder, onerror=refuse):
        if not os.path.basename(place).startswith(".penstock"):
            yield from (os.path.join(place, name) for name in names)


def _format_of_source(files: list[File], number: int) -> str:
    return next(file.format for file in files if file.source == number)


Surveyed = list[tuple[File, FileSurvey]]


def _survey_files(config: Config, files: list[File]) -> tuple[Surveyed, list[BadFile]]:
    good: Surveyed = []
    bad = []
    for file in files:
        try:
            good.append((file, survey_file(file, config.input[file.source], config.slice_bytes)))
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
        if file.format == "parquet" and found.field(name).type != expected.field(name).type:
            return f"column {name!r} is {found.field(name).type}, not {expected.field(name).type}"
    extra = [name for name in found.names if name not in expected.names]
    if extra and len(columns) == len(expected.names):
        return f"it has a column {extra[0]!r} that the first has not"
    return None


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
    for segment in chain.from_iterable(piece.segments for piece in slices):
        for rows in _readable(segment, reading):
            if len(rows):
                return rows.batch.slice(0, _SAMPLE_ROWS), stored or _text_row_bytes(segment, len(rows))
    schema = pa.schema([reading.schema.field(name) for name in reading.columns])
    return pa.RecordBatch.from_pylist([], schema=schema), stored or 1.0


def _text_row_bytes(segment: Segment, rows: int) -> float:
    """Stored bytes a row, from the first chunk; a compressed file is taken to shrink its text to a quarter."""
    if compression_of(segment.location):
        return _SAMPLE_BYTES / rows / 4
    return min(segment.bytes, _SAMPLE_BYTES) / rows


def _readable(segment: Segment, reading: Reading) -> Iterator[Rows]:
    try:
        yield from read_segment(segment, reading, frozenset())
    except (UnreadablePart, InputError):
        return  # the task that reads it reports it


def _check_stages(
    config: Config, stages: tuple[Stage, ...], sample: pa.RecordBatch, schema: pa.Schema, columns: tuple[str, ...]
) -> tuple[tuple[Stage, ...], Schema, tuple[pa.Schema, ...]]:
    """Let every stage check the columns it is given; the answer is the stages, the columns they write and are given."""
    _refuse_order(config, stages)
    rows = Rows(sample, 0, "", np.arange(sample.num_rows))
    schema = pa.schema([schema.field(name) for name in schema.names if name in columns])
    checked: list[Stage] = []
    given: list[pa.Schema] = []
    for number, (name, stage) in enumerate(zip(config.stage_names, stages, strict=True)):
        given.append(schema)
        with stage_errors(number, name), redirect_stdout(sys.stderr):  # a user's function may print
            schema = stage.output_schema(schema, rows.batch)
        if isinstance(stage, FunctionStage):
            stage = replace(stage, expected=schema)
        checked.append(stage)
        if stage.uses_artifact:
            rows = Rows(pa.RecordBatch.from_pylist([], schema=schema), 0, "", np.arange(0))
        else:
            with redirect_stdout(sys.stderr):
                rows = _reduced(stage, stage(rows), schema)
    return tuple(checked), schema_from_arrow(schema, "the columns that the stages give"), tuple(given)


def _refuse_unfit(config: Config, stages: tuple[Stage, ...], output: Schema, given: tuple[pa.Schema, ...]) -> None:
    """An ArrayRecord file holds the records of `group`, as it made them, and nothing else."""
    if config.format != "arrayrecord":
        return
    groups = [number for number, stage in enumerate(stages) if stage.exchange()]
    if not groups:
        raise ConfigError("format: arrayrecord holds grouped events, and there is no `group` among the stages")
    exchange = stages[groups[-1]].exchange()
    assert exchange
    refuse_unfit(given[groups[-1]], exchange.by, exchange.order)
    if stages[groups[-1]].describe().get("null_keys") == "group":
        raise ConfigError("format: arrayrecord names records by their key, and null_keys: group makes one without")
    made = stages[groups[-1]].output_schema(given[groups[-1]], pa.RecordBatch.from_pylist([], given[groups[-1]]))
    if schema_from_arrow(made, "group") != output:
        raise ConfigError(
            "format: arrayrecord holds records as `group` makes them, and a stage behind it changes their columns",
            next_step="do that before `group`, or leave `format:` out",
        )


def _reduced(stage: Stage, rows: Rows, schema: pa.Schema) -> Rows:
    """What a stage with an exchange makes of the first rows, as if there were no others."""
    exchange = stage.exchange()
    if exchange is None:
        return rows
    runs = [sort_rows([with_codes(rows.batch)], exchange)] if len(rows) else []
    records = list(stage.reduce(iter(runs)))
    batch = records[0] if records else pa.RecordBatch.from_pylist([], schema=schema)
    return Rows(batch, 0, "", np.arange(batch.num_rows))


def _refuse_order(config: Config, stages: tuple[Stage, ...]) -> None:
    """One split at most, and nothing measured before it: statistics of test rows would leak into training."""
    split = [number for number, stage in enumerate(stages) if stage.splits()]
    if len(split) > 1:
        raise ConfigError(f"stages[{split[1]}]: a second split would overrule the first; name all shares in one")
    exchanges = [number for number, stage in enumerate(stages) if stage.exchange()]
    if split and exchanges and split[0] < exchanges[-1]:
        raise ConfigError(
            f"stages[{split[0]}].split: it stands before {config.stage_names[exchanges[-1]]}, "
            "which would bring rows of both splits together",
            next_step=f"move it behind stages[{exchanges[-1]}]: there it decides by key",
        )
    for number, stage in enumerate(stages[: split[0]] if split else ()):
        if stage.exchange() is None and stage.fit() is not None:
            raise ConfigError(
                f"stages[{number}].{config.stage_names[number]}: it measures training rows, but stands before split",
                next_step=f"move it behind stages[{split[0]}]",
            )
