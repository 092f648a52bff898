"""Agreement: survey every file of the input, and compare its columns with the first file's. Called by taking.py."""

from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import ConfigError, InputError, did_you_mean
from penstock.prepare.job.config import Config
from penstock.prepare.rows.layouts import refuse_other_layouts
from penstock.prepare.sources import File, FileSurvey, Misnamed, Reading, SourceOptions, source_of, survey_file
from penstock.prepare.sources.slices import Segment
from penstock.prepare.stages.stage import Stage
from penstock.prepare.survey.checking import check_stages, columns_needed, named_columns
from penstock.prepare.survey.first_rows import SAMPLE_BYTES, SAMPLE_ROWS, no_rows
from penstock.prepare.survey.resplit import dividing_hashes, refuse_same_hashes
from penstock.shards.schema import misaligned, names_of

Surveyed = list[tuple[File, FileSurvey]]
_IDLE = {  # options that may have no say, and what to do then
    "types": "leave it out; `cast: {column: type}` gives columns other types",
    "delimiter": "leave it out; `cast: {column: type}` gives columns other types",
    "encoding": "leave it out: such files say themselves how their text is stored",
}


@dataclass(frozen=True)
class BadFile:
    """A file that cannot be used at all, and why."""

    source: int
    path: str
    reason: str
    detail: str


@dataclass(frozen=True)
class Agreed:
    """The schema of the input, the columns of it that are read, and the files that have them."""

    schema: pa.Schema
    columns: tuple[str, ...]
    strict: bool  # all columns are read, and a file must have no other
    pieces: tuple[Segment, ...]
    bad: tuple[BadFile, ...]
    not_seen: tuple[str, ...]  # columns that `types:` declares, and that none of the first rows has
    sources: tuple[SourceOptions, ...]
    divided_by: tuple[dict[str, Any], ...]  # splits by hash of which the input is only a part
    decoded_bytes: int

    def reading(self, formats: tuple[str, ...]) -> Reading:
        """Reads a few rows at a time, to look at them."""
        return Reading(self.schema, self.columns, self.strict, SAMPLE_ROWS, SAMPLE_BYTES, formats, self.sources)


def agree(config: Config, stages: tuple[Stage, ...], sources: tuple[SourceOptions, ...], files: list[File]) -> Agreed:
    """Survey the files. The first that shows columns tells those of the input."""
    _refuse_idle_options(sources, files)
    refuse_same_hashes(config.stage_names, stages, files)
    sources = tuple(replace(each, named=named_columns(stages)) for each in sources)
    good, bad, not_seen = _survey_files(config, sources, files)
    # If no file shows columns, the first of all tells that.
    first, told = next((each for each in good if _tells_columns(*each)), good[0])
    # Whether a column says that it has no nulls changes nothing here, and must not make two schemas differ.
    schema = pa.schema([field.with_nullable(True) for field in told.schema])
    needed = columns_needed(stages, schema)
    if needed and not needed <= set(schema.names):  # the stage that names a column too many says so
        check_stages(config, stages, no_rows(schema), schema, tuple(schema.names))
    columns = tuple(name for name in schema.names if needed is None or name in needed)
    refuse_other_layouts(schema, columns)
    good, wrong = _same_schema(good, first, schema, columns, config)
    pieces = tuple(piece for _, survey in good for piece in survey.pieces)
    unseen = tuple(name for name in not_seen if name in columns)
    bad = [*bad, *wrong]
    divided_by = dividing_hashes(files)
    decoded_bytes = sum(survey.decoded_bytes for _, survey in good)
    return Agreed(schema, columns, needed is None, pieces, tuple(bad), unseen, sources, divided_by, decoded_bytes)


def _refuse_idle_options(sources: tuple[SourceOptions, ...], files: list[File]) -> None:
    """Refuse an option that no file of its source uses: it would be ignored silently."""
    formats = sorted({(file.source, file.format) for file in files})
    for number, source in enumerate(sources):
        names = [name for of, name in formats if of == number]
        taken = {option for name in names for option in source_of(name).takes}
        for option, advice in _IDLE.items():
            if names and getattr(source, option) and option not in taken:
                raise ConfigError(
                    f"input[{number}].{option}: it is an option for text formats, but these files are "
                    f"{' and '.join(names)}",
                    next_step=advice,
                )


def _survey_files(
    config: Config, sources: tuple[SourceOptions, ...], files: list[File]
) -> tuple[Surveyed, list[BadFile], list[str]]:
    """(the files that can be read, the others, columns that `types:` declares and no first row has)."""
    good: Surveyed = []
    bad = []
    first_error: InputError | None = None
    not_seen: list[str] = []
    misnamed: dict[int, Misnamed] = {}
    schemas: dict[int, pa.Schema] = {}  # by source: of the last file that tells
    slice_bytes = config.slice_bytes
    for file in files:
        try:
            known = schemas.get(file.source)
            found = survey_file(file, sources[file.source], slice_bytes, known)
            if known is None and _tells_columns(file, found):
                _refuse_misspelled(file, found)
                not_seen += found.not_seen
            if found.schema is not known and _tells_columns(file, found):
                schemas[file.source] = found.schema
            good.append((file, found))
        except InputError as error:
            if config.on_bad_input == "fail":
                raise
            bad.append(BadFile(file.source, file.path, "unreadable file", error.what))
            first_error = first_error or error
            if isinstance(error, Misnamed):
                misnamed.setdefault(file.source, error)
    for number, mistake in misnamed.items():
        if number not in schemas:
            raise mistake
    if not good and first_error:
        if len(files) == 1:
            raise first_error
        first = f"the first: {bad[0].path}: {bad[0].detail}"
        raise InputError(f"none of the {len(files):,} files can be read", first, first_error.next_step)
    return good, bad, not_seen


def _refuse_misspelled(file: File, survey: FileSurvey) -> None:
    """Refuse names that none of the first rows has, and that look like another one. Others may come in later rows."""
    known = [name for name in survey.schema.names if name not in survey.not_seen]
    for name in survey.not_seen:
        column = name.partition(".")[0]
        if column != name and column in known:
            raise Misnamed(
                f"input[{file.source}].types: {name!r} is a field of the column {column!r}, and `types:` is about "
                "whole columns",
                where=file.location,
                next_step=f"take the field with `select: [{name}]`, then give it a type with `cast:`",
            )
        if guess := did_you_mean(name, known):
            raise Misnamed(
                f"input[{file.source}].types: none of the first rows has a field {name!r}.{guess}",
                where=f"{file.location}, whose first rows have: {', '.join(known)}",
                next_step="correct the name in `types:`; if the field comes later, put a row that has it first",
            )


def _tells_columns(file: File, found: FileSurvey) -> bool:
    """Whether a file shows its columns: a JSONL file without a line shows none but the declared ones."""
    return bool(len(found.schema)) and (bool(found.pieces) or not source_of(file.format).lines_tell_columns)


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
                next_step="`select` the columns they share, or set `on_bad_input: set_aside` to continue without it",
            )
        else:
            wrong.append(BadFile(file.source, file.path, "other columns than the first file", difference))
    return fitting, wrong


def _difference(found: pa.Schema, expected: pa.Schema, columns: tuple[str, ...], file: File) -> str | None:
    source = source_of(file.format)
    if source.lines_tell_columns:
        return None
    types = dict(zip(found.names, found.types, strict=True))
    expected_types = dict(zip(expected.names, expected.types, strict=True))
    for name in columns:
        if name not in types:
            return f"it has no column {name!r}"
        if wrong := misaligned(names_of(found.field(name)), names_of(expected.field(name))):
            return f"column {name!r}: {wrong}"
        if source.files_tell_types and types[name] != expected_types[name]:
            return f"column {name!r} is {types[name]}, not {expected_types[name]}"
    extra = [name for name in types if name not in expected_types]
    if extra and len(columns) == len(expected_types):
        return f"it has a column {extra[0]!r} that the first has not"
    return None
