"""Scouting: call a user's function on some of its files, to learn what samples it yields. Run in a worker.

Where no schema is declared it is inferred from the first sample of up to a hundred files, spread over the input.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.prepare.samples.batch import samples_of
from penstock.prepare.samples.fitting import Misfit
from penstock.prepare.samples.inferring import agreed_schema, infer_schema
from penstock.prepare.samples.schema import SampleSchema, arrow_schema, declared_schema
from penstock.prepare.sources import File, Reading, SourceOptions, UnreadablePart, readable
from penstock.prepare.sources.function import SOURCE, Raised, first_rows, yielded_by
from penstock.prepare.sources.items import PATH, item_files, one_item
from penstock.prepare.sources.slices import Segment

if TYPE_CHECKING:
    from penstock.prepare.job.config import Config  # workers scout, too, and do without it

MOST_FILES = 100  # whose first samples tell the schema
_SAMPLES = 100
_SECONDS = 0.02  # after which no other file is counted: only a projection needs the number of samples


@dataclass(frozen=True)
class Scouted:
    """The schema of what a function yields, the first samples, and bytes of input per sample."""

    samples: SampleSchema
    sample: pa.RecordBatch
    stored_row_bytes: float
    tried: tuple[str, ...]  # files that were read, a table at least in part


Scout = Callable[[Sequence[File], SourceOptions, str | None, dict[str, Any]], Scouted]


def scout_sources(
    config: Config, files: Sequence[File], scout: Scout
) -> tuple[tuple[SourceOptions, ...], Scouted | None]:
    """(how each source is read, what the first function yields). `scout` calls a user's function somewhere."""
    sources, first = [], None
    for number, source in enumerate(config.input):
        declared = declared_schema(source.samples, source.missing) if source.samples else ()
        options = source.options(declared)
        if source.function:
            own = _tried_files(number, options, files)
            scouted = scout(own, options, source.floats, source.missing)
            options = source.options(scouted.samples)
            first = first or scouted
        sources.append(options)
    return tuple(sources), first


def _tried_files(number: int, options: SourceOptions, files: Sequence[File]) -> list[File]:
    if options.items:
        return item_files(number, options.items, MOST_FILES)
    return [file for file in files if file.source == number]


def scout(
    files: Sequence[File],
    options: SourceOptions,
    floats: str | None,
    missing: dict[str, Any],
    tell: Callable[[str], None] = lambda _: None,
) -> Scouted:
    """`tell` is called with the path of each file before the function is given it."""
    samples = options.samples or _inferred(files, options, floats, missing, tell)
    options = replace(options, samples=samples)
    batches: list[pa.RecordBatch] = []
    rows = size = 0
    tried = []
    started = time.monotonic()
    for file in files:
        tell(file.path)
        reading = _reading(file, options)
        for piece in _pieces(file, options):
            for each in readable(piece, reading):
                rows += len(each)
                if sum(batch.num_rows for batch in batches) < _SAMPLES:
                    batches.append(each.batch)
            size += piece.bytes
            if rows and time.monotonic() > started + _SECONDS:
                break  # a table may have thousands of pieces
        tried.append(PATH if options.items else file.path)
        if rows and time.monotonic() > started + _SECONDS:
            break
    table = pa.Table.from_batches(batches, schema=arrow_schema(samples)).slice(0, _SAMPLES).combine_chunks()
    sample = table.to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], schema=table.schema)
    return Scouted(samples, sample, size / rows if rows else 1.0, tuple(tried))


def _pieces(file: File, options: SourceOptions) -> tuple[Segment, ...]:
    if options.items:
        return (one_item(file),)
    try:
        return SOURCE.survey(file, options, 1 << 20).pieces
    except InputError:
        return ()  # the survey reports it


def _reading(file: File, options: SourceOptions) -> Reading:
    schema = arrow_schema(options.samples)
    formats, every = (file.format,) * (file.source + 1), (options,) * (file.source + 1)
    return Reading(schema, tuple(schema.names), True, _SAMPLES, 1 << 20, formats, every)


def _inferred(
    files: Sequence[File],
    options: SourceOptions,
    floats: str | None,
    missing: dict[str, Any],
    tell: Callable[[str], None],
) -> SampleSchema:
    found: list[SampleSchema] = []
    raised: list[tuple[File, Raised]] = []
    unreadable: list[tuple[File, UnreadablePart | InputError]] = []
    for file in spread(files, MOST_FILES):
        tell(file.path)
        try:
            samples = list(_first_sample(file, options))
            found += [infer_schema(sample, f"{file.path}, sample 0", floats, missing) for sample in samples]
        except Raised as error:
            raised.append((file, error))
        except Misfit as misfit:  # a batch whose samples cannot be counted
            unreadable.append((file, _no_batch(file, misfit)))
        except (UnreadablePart, InputError) as error:  # the survey or the task that reads it reports it
            unreadable.append((file, error))
    if found:
        return agreed_schema(found, missing)
    raise _no_sample(files, options, raised, unreadable)


def _no_batch(file: File, misfit: Misfit) -> InputError:
    return InputError(
        f"{misfit.reason}: {misfit.detail}",
        where=f"{file.location}, sample 0, key {misfit.key!r}",
        next_step="yield arrays and lists of one length in penstock.Batch, the number of its samples",
    )


def _no_sample(
    files: Sequence[File],
    options: SourceOptions,
    raised: list[tuple[File, Raised]],
    unreadable: list[tuple[File, UnreadablePart | InputError]],
) -> InputError:
    count = min(len(files), MOST_FILES)
    word, where = ("items", "path") if options.items else ("files", "location")
    if raised:
        file, first = raised[0]
        others = "" if len(raised) == count else ", and yielded no sample for the others"
        told = InputError(
            f"{options.function_name} failed for {len(raised)} of {count} {word}{others}; the first: {first.what}",
            where=getattr(file, where),
            next_step="fix the function, and run the same command",
        )
        if first.trace:
            told.add_note(first.trace)
        return told
    if unreadable:
        file, why = unreadable[0]
        if isinstance(why, InputError):
            return why
        return InputError(
            f"no row can be read to call {options.function_name}; the first of {count} {word}: {why.reason}",
            where=getattr(file, where),
            next_step="replace the file, or declare the types: schema: {features: 'float32[893]'}",
        )
    return InputError(
        f"{options.function_name} yielded no sample for any of {count} {word}",
        where=getattr(files[0], where) if files else None,
        next_step="check the function, or declare the types: schema: {features: 'float32[893]'}",
    )


def _first_sample(file: File, options: SourceOptions) -> Iterator[Any]:
    """The first, or none: the rest is not asked for."""
    if options.items:
        yield from _first_of(options.function, options.items[int(file.location)])
    elif not options.takes_rows:
        yield from _first_of(options.function, Path(file.location))
    else:
        for batch in first_rows(file, options):
            yield from _first_of(options.function, batch)


def _first_of(function: str, argument: Any) -> Iterator[Any]:
    return itertools.islice(samples_of(yielded_by(function, argument)), 1)


def spread(files: Sequence[File], count: int) -> list[File]:
    """The first, the last, and others at equal distances between."""
    if len(files) <= count:
        return list(files)
    return [files[round(number * (len(files) - 1) / (count - 1))] for number in range(count)]
