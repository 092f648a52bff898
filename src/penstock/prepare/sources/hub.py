"""Hub: a split of a dataset, on the Hugging Face hub or in a local folder, as the `datasets` library sees it.

The library says which files belong to the split. Those of Parquet and JSON lines are then read as any others, from the
hub at the commit that the survey settled. Of other kinds the library makes the rows: each of its shards is read here
as one file. Should one of their files change, every shard counts as changed. A `.json`, packed or not, may be lines or
one array, which its name does not tell: that too is read by the library.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlencode

import numpy as np
import pyarrow as pa

from penstock.base.errors import InputError, PenstockError
from penstock.base.files import special_kind
from penstock.base.fingerprint import fingerprint
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.reading.bad_text import sound_text
from penstock.prepare.sources.reading.input_file import first_line, identity_of_ends, library, size_of, unreachable
from penstock.prepare.sources.registry import COMPRESSIONS
from penstock.prepare.sources.slices import Segment

_SCHEME = "hf:"
_OF_HUB = re.compile(r"hf://datasets/[^@]+@[^/]+/(.+)")  # how the library spells a file at a commit
_LINES = tuple(f".{name}{packed}" for name in ("jsonl", "ndjson") for packed in ("", *COMPRESSIONS))
_DAMAGE = (pa.ArrowException, ValueError, TypeError, EOFError)  # of what is in a file, not of the way to it
# Asked of the library at a time, whatever memory allows: a few large rows are few bytes, and where the library joins
# tables of its own, which may not fit together, depends on this number. It divides the 10,000 rows of its CSV tables.
_ROWS_ASKED = 16
_ROW_BYTES = 8  # which a row takes here beside its values: its place in the shard
_UNTOLD_BYTES = 256 << 20  # of a shard whose size nobody tells: twice what job.py does unmeasured


@dataclass(frozen=True)
class Split:
    """A split of a dataset: all that the library must be told to open it again."""

    path: str  # an id of the hub, or a folder
    split: str
    name: str | None = None
    revision: str | None = None

    @property
    def is_local(self) -> bool:
        return os.path.isdir(self.path)

    def __str__(self) -> str:
        looked = "" if self.is_local else f" (on {os.environ.get('HF_ENDPOINT', 'huggingface.co')}: no such path here)"
        return f"{self.path}{f', {self.name}' if self.name else ''}, split {self.split}{looked}"


@dataclass(frozen=True)
class Shard:
    """One shard of a split, and how a location spells it."""

    of: Split
    number: int
    count: int
    bytes: int
    known: str  # the identity of the split

    @property
    def location(self) -> str:
        told = {name: value for name, value in asdict(self.of).items() if value is not None and name != "path"}
        own = {"shard": self.number, "count": self.count, "bytes": self.bytes, "known": self.known}
        return f"{_SCHEME}{quote(self.of.path)}?{urlencode(told | own)}"

    @classmethod
    def at(cls, location: str) -> Shard:
        path, _, query = location.removeprefix(_SCHEME).partition("?")
        told = dict(parse_qsl(query))
        split = Split(unquote(path), told["split"], told.get("name"), told.get("revision"))
        return cls(split, int(told["shard"]), int(told["count"]), int(told["bytes"]), told["known"])


@dataclass(frozen=True)
class _Resolved:
    """A split at the commit that its revision stands for now, and its files, each with what tells its version."""

    split: Split
    files: tuple[str, ...]
    versions: tuple[tuple[str, ...], ...]
    format: str

    def identity(self) -> str:
        """Local files are told by their content: a copy is no other file."""
        described = [
            [os.path.relpath(file, self.split.path), identity_of_ends(file)]
            if os.path.isfile(file)
            else [file, version]
            for file, version in zip(self.files, self.versions, strict=True)
        ]
        return fingerprint([self.split.name, self.split.split, described])


def hub_files(source: int, split: Split) -> list[File]:
    """The shards of a split as the files of a source, in the order of their rows."""
    _opened.cache_clear()
    _schema.cache_clear()
    resolved = _resolve(split)
    shown = os.path.basename(os.path.normpath(split.path)) if split.is_local else split.path
    locations = _shards(resolved) if resolved.format == "hub" else list(resolved.files)
    names = _names(locations, split.path)
    return [
        File(source, f"{shown}@{split.split}/{name}", location, resolved.format)
        for name, location in zip(names, locations, strict=True)
    ]


def _names(locations: list[str], folder: str) -> list[str]:
    """By its own name a row keeps its position when the split has one file more. Shards of the library have none."""
    names = [_own_name(location, folder) for location in locations]
    if all(names) and len(set(names)) == len(names):
        return names
    return [f"{number:05d}-of-{len(locations):05d}" for number in range(len(locations))]


def _own_name(location: str, folder: str) -> str:
    """The path inside the dataset; nothing for what is not a file of it."""
    if of_hub := _OF_HUB.fullmatch(location):
        return of_hub[1]
    for root in (os.path.abspath(folder), os.path.realpath(folder)):  # which of them the library gives, differs
        below = os.path.join(root, "")
        if location.startswith(below):
            return os.fsencode(location.removeprefix(below)).decode("utf-8", "backslashreplace")
    return ""


def _shards(resolved: _Resolved) -> list[str]:
    with _telling(resolved.split):
        count = max(1, _opened(resolved.split).num_shards)
    known, size = resolved.identity(), _shard_bytes(resolved.files, count)
    return [Shard(resolved.split, number, count, size, known).location for number in range(count)]


def _shard_bytes(files: tuple[str, ...], count: int) -> int:
    """An equal share of all files. Where one does not tell its size, so much that the job is never taken for small."""
    sizes = [size_of(file) for file in files]
    share = sum(size for size in sizes if size is not None) // count
    return max(1, share) if sizes and None not in sizes else max(share, _UNTOLD_BYTES)


class Hub(Source):
    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        shard = Shard.at(file.location)
        return FileSurvey(_schema(shard.of), (file.segment(shard.known, -1, shard.bytes),))

    def identity(self, location: str) -> str:
        """A commit of the hub does not change; a local folder may."""
        shard = Shard.at(location)
        return _resolve(shard.of).identity() if shard.of.is_local else shard.known

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        shard = Shard.at(segment.location)
        ordinal = 0
        try:
            for batch in _batches(shard, reading):
                ordinals = np.arange(ordinal, ordinal + batch.num_rows)
                yield sound_text(Rows(batch, segment.source, (segment.path,), ordinals), reading.repairs(segment))
                ordinal += batch.num_rows
        except PenstockError:
            raise
        except Exception as error:  # the library's own, of the file systems below it and of what is in a file
            cause = error.__cause__ or error
            if shard.of.is_local or isinstance(cause, _DAMAGE):
                raise UnreadablePart(segment, 0, 0, -1, first_line(cause)) from error
            raise unreachable(cause, str(shard.of)) from error


SOURCE = Hub()


def _batches(shard: Shard, reading: Reading) -> Iterator[pa.RecordBatch]:
    dataset = _opened(shard.of).select_columns(list(reading.columns))
    if shard.count > 1:
        dataset = dataset.shard(num_shards=shard.count, index=shard.number)
    found = dataset.with_format("arrow").iter(batch_size=_ROWS_ASKED)
    yield from _cut((_typed(table, reading.wanted) for table in found), reading.bytes_at_once)


def _typed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast a table to the types of the columns: the library infers the types of a CSV table by table."""
    table = table.select(schema.names).replace_schema_metadata(None)
    return table if table.schema.equals(schema) else table.cast(schema)


def _cut(tables: Iterable[pa.Table], most_bytes: int) -> Iterator[pa.RecordBatch]:
    """Batches of at most so many bytes, or of one row that has more."""
    held: list[pa.Table] = []
    size = 0
    for table in tables:
        fits = size + _bytes_of(table) <= most_bytes
        for piece in [table] if fits else [table.slice(row, 1) for row in range(table.num_rows)]:
            if held and size + _bytes_of(piece) > most_bytes:
                yield from pa.concat_tables(held).combine_chunks().to_batches()
                held, size = [], 0
            held.append(piece)
            size += _bytes_of(piece)
    if held:
        yield from pa.concat_tables(held).combine_chunks().to_batches()


def _bytes_of(table: pa.Table) -> int:
    return int(table.nbytes) + _ROW_BYTES * int(table.num_rows)


@lru_cache(maxsize=1)
def _schema(split: Split) -> pa.Schema:
    with _telling(split):
        dataset = _opened(split)
        if dataset.features is not None:
            return dataset.features.arrow_schema.remove_metadata()
        for table in dataset.with_format("arrow").iter(batch_size=1):
            return table.schema.remove_metadata()
    raise InputError("this split has no rows, and does not declare its columns", where=str(split))


@lru_cache(maxsize=1)
def _opened(split: Split) -> Any:
    """The split as an iterable dataset. A worker reads its shards one after the other."""
    return library().load_dataset(
        split.path, name=split.name, revision=split.revision, split=split.split, streaming=True
    )


def _resolve(split: Split) -> _Resolved:
    with _telling(split):
        builder = library().load_dataset_builder(split.path, name=split.name, revision=split.revision)
        splits = builder.config.data_files or {}
        if splits and split.split not in splits:
            raise ValueError(f"Bad split: {split.split}. Available splits: {list(map(str, splits))}")
    files = splits.get(split.split, [])
    _refuse_special(files)
    versions = tuple(tuple(map(str, each)) for each in getattr(files, "origin_metadata", [()] * len(files)))
    commit = next((each[1] for each in versions if len(each) == 2), split.revision)
    return _Resolved(
        replace(split, revision=commit), tuple(map(str, files)), versions, _own_format(builder, list(map(str, files)))
    )


def _refuse_special(files: Iterable[Any]) -> None:
    for file in map(str, files):
        if kind := special_kind(file):
            raise InputError(
                f"this is a {kind}, not a file, and the `datasets` library would read it as part of the split",
                where=file,
                next_step="move it elsewhere",
            )


def _own_format(builder: Any, files: list[str]) -> str:
    """The format of penstock's own that reads what the library's builder does; `hub` where the library must.

    Ours tells of what breaks off and of single bad lines; Arrow's reader of datasets, which the library uses for
    Parquet, keeps a process from ending if it is left in the middle of a file.
    """
    kinds = {kind.__name__ for kind in type(builder).__mro__}
    if files and "Parquet" in kinds:
        return "parquet"
    is_lines = all(file.lower().endswith(_LINES) for file in files) and not getattr(builder.config, "field", None)
    return "jsonl" if files and is_lines and "Json" in kinds else "hub"


@contextmanager
def _telling(split: Split) -> Iterator[None]:
    """Turn an error of the library, raised as it opens a dataset, into an InputError."""
    try:
        yield
    except PenstockError:
        raise
    except Exception as error:
        if type(error) is not ValueError:
            raise unreachable(error, str(split)) from error
        raise InputError(  # no such split or configuration: the library names those that are there
            first_line(error, 2), where=str(split), next_step="choose one of them with `split:` or `name:`"
        ) from error
