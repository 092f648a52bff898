"""Looking: paths -> the columns of their first rows. Reads a few files, a megabyte of each at most. Next: roles.py."""

import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.prepare.job.config import Config
from penstock.prepare.rows.rows import Rows, SetAside
from penstock.prepare.sources import File, readable
from penstock.prepare.sources.registry import SOURCES, format_of
from penstock.prepare.survey.agreement import Agreed, agree
from penstock.prepare.survey.finding import Found, find_files
from penstock.prepare.survey.listing import Tally, Unread, ending_of, files_below
from penstock.show.asking.proposing.columns import Column, columns_of
from penstock.show.asking.proposing.spelling import spelling_of
from penstock.show.asking.proposing.unread import refuse_other_files

FEW_FILES, MOST_FILES = 5, 100  # more than a few only while they have less than a megabyte together
MOST_ROWS = 10_000
_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Looked:
    """First rows of the input, and how a job names that input."""

    source: Any  # `input:` of the job
    folder: str  # of the job file: relative paths start there
    format: str
    file_count: int
    some: list[File]  # the files that were looked at
    agreed: Agreed
    unread: tuple[Unread, ...]
    rows: int
    columns: tuple[Column, ...]
    bad: tuple[SetAside, ...] = ()  # rows that cannot be read

    @property
    def unit(self) -> str:
        return "documents" if SOURCES[self.format].documents else "samples" if self.format == "npz" else "rows"


def look(paths: Sequence[str], folder: str, output: str) -> Looked:
    """Look at the files that the paths of a command line name. Raises a PenstockError that says what to do instead."""
    kinds = _kinds_of(paths)
    refuse_other_files(paths, kinds, folder)
    written = [_from_folder(path, folder) for path in paths]
    named: Any = written[0] if len(written) == 1 else written
    source = {"npz": named} if kinds.keys() == {"npz"} else named if len(written) == 1 else {"path": named}
    if kinds.keys() == {"text"}:  # without the format, a folder does not stand for its .md files
        source = {"path": named, "format": "text"}
    config = Config({"input": source, "output": output, "on_bad_input": "set_aside"}, folder=folder)
    some = _some(find_files(config).files)
    options = spelling_of(some)
    if options:
        source = {**(source if isinstance(source, dict) else {"path": source}), **options}
        config = Config({"input": source, "output": output, "on_bad_input": "set_aside"}, folder=folder)
    found = find_files(config)
    some = _some(found.files)
    agreed = agree(config, (), (config.input[0].options(),), some)
    null_texts = config.input[0].null_values if found.formats[0] == "csv" else ()
    table, bad = _table(found, agreed)
    columns = columns_of(table, null_texts)
    facts = (source, folder, found.formats[0], len(found.files), some, agreed, found.unread)
    return Looked(*facts, table.num_rows, columns, bad)


def _some(files: Sequence[File]) -> list[File]:
    """The first few files, and more of them if they are small: five files of ten rows do not show a key."""
    sizes = accumulate(os.path.getsize(each.location) for each in files[:MOST_FILES])
    return list(files[: max(FEW_FILES, sum(1 for size in sizes if size < _FILE_BYTES))])


def _kinds_of(paths: Sequence[str]) -> Counter[str]:
    """Number of files by format; files that penstock cannot read count under their ending."""
    kinds: Counter[str] = Counter()
    for path in paths:
        below = _files_of(path)
        by_kind = Counter(_kind_of(place) for place in below)
        tables = {kind for kind in by_kind if kind in SOURCES and kind != "npz" and not SOURCES[kind].documents}
        documents = {kind for kind in by_kind if kind in SOURCES and kind != "npz"}
        others = {kind for kind in by_kind if kind == "npz"} or set(by_kind)
        # A folder stands for its tables; for its documents if it has none; for other files if it has neither.
        taken = (tables or documents or others) if os.path.isdir(path) else set(by_kind)
        kinds.update({kind: count for kind, count in by_kind.items() if kind in taken})
    return kinds


def _files_of(path: str) -> Iterator[str]:
    if os.path.isdir(path):
        yield from files_below(path, frozenset(), False, Tally())
    elif os.path.lexists(path):
        yield path
    else:
        yield from (each for each in glob.iglob(path, recursive=True) if os.path.isfile(each))


def _kind_of(place: str) -> str:
    if place.lower().endswith(".npz"):
        return "npz"
    if place.lower().endswith(SOURCES["text"].documents):
        return "text"
    try:
        return format_of(place, "auto")
    except InputError:
        return ending_of(place)


def _from_folder(path: str, folder: str) -> str:
    """The path as the job file names it: relative to the file's folder, unless it was written in full."""
    if os.path.isabs(os.path.expanduser(path)):
        return path
    return os.path.relpath(path, folder)


def _table(found: Found, agreed: Agreed) -> tuple[pa.Table, tuple[SetAside, ...]]:
    """The first rows, and those that cannot be read. Plain text and arrays are not read: their kind is known."""
    looked_at: list[Rows] = []
    if found.formats[0] not in ("npz", "text"):
        looked_at = list(_first_rows(found, agreed))
    table = pa.Table.from_batches([rows.batch for rows in looked_at], agreed.schema)
    return table, tuple(each for rows in looked_at for each in rows.set_aside)


def _first_rows(found: Found, agreed: Agreed) -> Iterator[Rows]:
    reading = replace(agreed.reading(found.formats), rows_at_once=1000, bytes_at_once=_FILE_BYTES)
    count, seen = 0, Counter[str]()
    for segment in agreed.pieces:
        if seen[segment.location] >= _FILE_BYTES:
            continue
        for part in readable(segment, reading):
            batch = part.batch.slice(0, MOST_ROWS - count)
            count += batch.num_rows
            seen[segment.location] += batch.nbytes
            yield replace(part, batch=batch.cast(agreed.schema))
            if count >= MOST_ROWS:
                return
            if seen[segment.location] >= _FILE_BYTES:
                break
