"""Function: the samples that a user's own function yields, of one raw file or of rows of a table, as Rows.

What it raises sets aside what it was given, whole: a file, or a batch of rows. So samples of a file are held until
its function has come to the end; those of a file too large for that are given on, and taken back by starting the task
anew without the file.
"""

import os
import time
import traceback
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import CodeType
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.base.files import ReadFile
from penstock.base.user_code import load_object
from penstock.base.user_code.carried import carried_files, shown_name
from penstock.prepare import sources
from penstock.prepare.rows.rows import RAISED, Rows, SetAside
from penstock.prepare.samples.batch import Batch
from penstock.prepare.samples.held import Held
from penstock.prepare.samples.samples import Converter, Problem
from penstock.prepare.samples.schema import arrow_schema
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.registry import format_of
from penstock.prepare.sources.slices import Segment

_SAMPLES_A_BATCH = 1 << 20  # numbers that a position leaves for the samples of one batch of rows
_TELL_SECONDS = 0.2
_LONGEST_MESSAGE, _MOST_FRAMES = 2000, 40  # of what is kept; a RecursionError has a thousand frames


class Raised(Exception):
    """The user's function raised: `what` in a line, and the user's part of the traceback."""

    def __init__(self, error: BaseException, function: str) -> None:
        self.what = f"{type(error).__name__}: {_message(error)}"
        self.trace = _trace(error, function)
        super().__init__(self.what)


class Function(Source):
    unit = "samples"
    takes = ("types", "delimiter", "encoding")  # of the rows that it is given
    is_one_part = False  # those who run its tasks leave out files that it failed for

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
        schema = arrow_schema(options.samples)
        known = self.identity(file.location)
        if options.takes_rows:
            pieces = survey_rows(file, options, slice_bytes).pieces
            return FileSurvey(schema, tuple(replace(piece, identity=known, rows=-1) for piece in pieces))
        with ReadFile(file.location) as handle:
            size = handle.seek(0, 2)
        return FileSurvey(schema, (file.segment(known, -1, max(size, 1)),))

    def most_files(self, files: int) -> int:
        """Small files may make large samples: so many that there are some sixty tasks, but not more than 256."""
        return min(256, -(-files // 64))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
        takes_rows = reading.options[segment.source].takes_rows
        return _read_rows(segment, reading) if takes_rows else _read_file(segment, reading)


SOURCE = Function()


def survey_rows(file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
    """Survey of the table whose rows the function is given."""
    return sources.survey_file(replace(file, format=format_of(file.location, options.format)), options, slice_bytes)


def _read_file(segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
    held: list[Rows] = []
    given = False
    try:
        for rows in _samples(Path(segment.location), segment, 0, reading):
            held.append(rows)
            if sum(each.batch.nbytes for each in held) > reading.bytes_at_once:
                given = True
                yield from held
                held = []
    except Raised as raised:
        lost = _lost(segment, 0, 0, -1, raised)
        if given:
            raise lost from raised
        yield lost
        return
    yield from held


def _read_rows(segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
    for taken in _row_batches(segment, reading):
        if isinstance(taken, UnreadablePart):
            yield taken
            continue
        first = int(taken.ordinals[0]) if len(taken) else 0
        try:
            made = list(_samples(taken.batch, segment, first * _SAMPLES_A_BATCH, reading)) if len(taken) else []
        except Raised as raised:
            yield _lost(segment, first, first, len(taken), raised)
            made = []
            taken = replace(taken, batch=taken.batch.slice(0, 0))
        yield replace(reading.none_of(segment), made_of=(len(taken), taken.set_aside))
        yield from made


def _row_batches(segment: Segment, reading: Reading) -> Iterator[Rows | UnreadablePart]:
    """Rows of the table, exactly `batch_rows` at a time whatever memory there is; fewer at the end of the segment."""
    options = reading.options[segment.source]
    file = File(segment.source, segment.path, segment.location, "function")
    schema = survey_rows(file, options, 1 << 62).schema
    formats = (*reading.formats[: segment.source], format_of(segment.location, options.format))
    inner = replace(reading, schema=schema, columns=tuple(schema.names), strict=False, formats=formats)
    held: list[Rows] = []
    for rows in sources.read_segment(segment, inner, reading.excluded):
        if isinstance(rows, UnreadablePart):
            yield rows
            continue
        held.append(rows)
        if sum(map(len, held)) >= options.batch_rows:
            *full, rest = _cut(held, options.batch_rows)
            yield from full
            held = [rest]
    yield from _cut(held, options.batch_rows)


def first_rows(file: File, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The first batch of the table's rows, as the function will be given it."""
    pieces = survey_rows(file, options, 1 << 20).pieces
    reading = Reading(
        pa.schema([]), (), False, 1024, 1 << 20, ("function",) * (file.source + 1), (options,) * (file.source + 1)
    )
    for rows in _row_batches(pieces[0], reading) if pieces else ():
        if isinstance(rows, Rows) and len(rows):
            yield rows.batch
            return


def _cut(held: list[Rows], count: int) -> list[Rows]:
    """The rows as batches of `count`, the last with what is left, and with everything that was set aside on the way."""
    if not held:
        return []
    table = pa.Table.from_batches([rows.batch for rows in held]).combine_chunks()
    ordinals = np.concatenate([rows.ordinals for rows in held])
    aside = tuple(each for rows in held for each in rows.set_aside)
    cuts = []
    for start in range(0, len(ordinals) - len(ordinals) % count + 1, count):
        part = table.slice(start, count).combine_chunks()
        batch = part.to_batches()[0] if part.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
        cuts.append(Rows(batch, held[0].source, held[0].paths, ordinals[start : start + count]))
    return [*cuts[:-1], replace(cuts[-1], set_aside=aside)]


def _samples(argument: Any, segment: Segment, ordinal: int, reading: Reading) -> Iterator[Rows]:
    """Samples that the function yields for `argument`, converted `rows_at_once` at a time; fewer if they are large."""
    options = reading.options[segment.source]
    converter = Converter(options.samples)
    rows_at_once, bytes_at_once, tell = reading.rows_at_once, reading.bytes_at_once, reading.tell
    held = Held(converter, rows_at_once, bytes_at_once)
    number, told = 0, time.monotonic()
    for each in yielded_by(options.function, argument):
        rest = each
        while True:
            rest = held.take(rest)
            if tell and time.monotonic() > told + _TELL_SECONDS:  # a slow function is not a hanging one
                told = time.monotonic()
                tell(number + len(held))
            if held.is_full:
                yield _rows(held, number, segment, ordinal, reading)
                number += len(held)
                held = Held(converter, rows_at_once, bytes_at_once)
            if rest is None:
                break
    if len(held):
        yield _rows(held, number, segment, ordinal, reading)


def _rows(held: Held, number: int, segment: Segment, ordinal: int, reading: Reading) -> Rows:
    typed = held.typed().shifted(number)
    batch = typed.batch.select(list(reading.columns))
    aside = tuple(_set_aside(each, segment, ordinal) for each in typed.problems)
    return Rows(batch, segment.source, (segment.path,), typed.numbers + ordinal, set_aside=aside)


def yielded_by(function: str, argument: Any) -> Iterator[Any]:
    """The samples one by one; what the user's code raises comes as Raised. One dict is one sample."""
    try:
        answer = load_object(function)(argument)
        if not isinstance(answer, Iterable | Batch):
            returned = "None" if answer is None else f"a value of type {type(answer).__name__}"
            raise TypeError(
                f"{shown_name(function)} returned {returned}; it should yield samples (dicts) or penstock.Batch, "
                "or return a list of them"
            )
        yield from [answer] if isinstance(answer, Mapping | Batch) else answer
    except (Exception, SystemExit) as error:  # sys.exit() in a function ends its file, not the job
        raise Raised(error, function) from error


def _set_aside(problem: Problem, segment: Segment, ordinal: int) -> SetAside:
    facts = {"sample": problem.sample, "key": problem.key, "detail": problem.detail}
    return segment.set_aside(problem.sample + ordinal, problem.reason, **facts)


def _lost(segment: Segment, part: int, ordinal: int, rows: int, raised: Raised) -> UnreadablePart:
    return UnreadablePart(segment, part, ordinal, rows, raised.what, RAISED, raised.trace)


def _message(error: BaseException) -> str:
    """The error's message, as long as a line can be, without characters that cannot be written."""
    try:
        text = str(error)
    except Exception:
        return "it cannot say why: its own __str__ raised"
    return text[:_LONGEST_MESSAGE].encode("utf-8", "backslashreplace").decode()


def _trace(error: BaseException, function: str) -> str:
    """The user's part of the traceback, by names of files: where they lie is no business of the output."""
    own, carried = os.path.dirname(__file__), carried_files(function)
    walked = list(traceback.walk_tb(error.__traceback__))
    lines = [
        _carried_line(frame.f_code, number) if frame.f_code.co_filename in carried else _line(told)
        for (frame, number), told in zip(walked, traceback.extract_tb(error.__traceback__), strict=True)
        if not frame.f_code.co_filename.startswith(own)
    ]
    if len(lines) > _MOST_FRAMES:  # how many depends on how deep the caller stood
        lines = [*lines[: _MOST_FRAMES // 2], *lines[-_MOST_FRAMES // 2 :]]
    return "\n".join(lines)


def _line(frame: traceback.FrameSummary) -> str:
    return f"{os.path.basename(frame.filename)}, line {frame.lineno}, in {frame.name}: {frame.line}"


def _carried_line(code: CodeType, number: int) -> str:
    """Code of a script or notebook may move in its file, which changes no byte: lines count from the function's own."""
    return f"{code.co_name}, line {number - code.co_firstlineno + 1} of it"
