"""Parquet: a piece is a row group; rows are decoded a batch at a time, whatever the row group's size."""

import inspect
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from penstock.base.errors import InputError
from penstock.base.files import ReadFile
from penstock.base.fingerprint import digest
from penstock.prepare.rows.layouts import without_metadata
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.reading.input_file import (
    RemoteFile,
    first_line,
    identity_of_ends,
    is_remote,
    open_input,
    unusable,
    was_changed,
)
from penstock.prepare.sources.reading.large_rows import MOST_GROWTH, sound_rows, too_large
from penstock.prepare.sources.slices import Segment

# Compressed pages are fetched this much at a time per column; without it Arrow holds a whole column chunk.
_BUFFER_BYTES = 1 << 20
# JSON and UUIDs of a file that does not name Arrow's types are text and bytes, as its footer says (pyarrow from 21 on).
_AS_SURVEYED = {
    option: False for option in inspect.signature(pq.ParquetFile).parameters if option == "arrow_extensions_enabled"
}
# Longer rows are decoded one by one. A batch that grows while a large row is added takes a fourth copy of that row.
_LONG_ROW = 64 << 10
# Long text may be stored once for thousands of rows. Then the footer and the first rows do not tell how long it is.
# Where values take more than this in the file, a batch has few rows anyway.
_LONG_VALUE = 1 << 10
_ROWS_OF_CODES = 1 << 10
# Least bytes of a decoded value: lists of millions of equal numbers take a few bytes in the file.
_WIDTHS = {"BOOLEAN": 1 / 8, "INT32": 4, "INT64": 8, "INT96": 8, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_SMALL_FILE = 64 << 10  # read whole by a survey: there may be a hundred thousand, and every read has its price


class Parquet(Source):
    is_one_part = False

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        with open_input(file.location) as handle:
            size = handle.seek(0, 2)
            handle.seek(0)
            source = handle if size > _SMALL_FILE else pa.BufferReader(handle.read())
            try:
                metadata = pq.read_metadata(source)
                schema = without_metadata(metadata.schema.to_arrow_schema())
            except MemoryError:
                raise
            except (pa.ArrowException, OSError, ValueError) as error:
                where = f"{file.location}, footer, {size:,} bytes"
                raise unusable(f"not a readable Parquet file: {first_line(error)}", where) from error
            known = identity_of_ends(file.location) if is_remote(file.location) else _identity_of(source, size)
        _refuse_twins(schema, file.location)
        pieces, ordinal, list_bytes = [], 0, 0.0
        has_lists = any(map(pa.types.is_nested, schema.types))
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            size_bytes = sum(chunk.total_compressed_size for chunk in _chunks(group))
            pieces.append(file.segment(known, group.num_rows, size_bytes, number, number + 1, ordinal))
            ordinal += group.num_rows
            list_bytes += _decoded_bytes(_lists(metadata, group)) if has_lists else 0
        return FileSurvey(schema, tuple(pieces), decoded_bytes=int(list_bytes))

    def identity(self, location: str) -> str:
        """Size and hash of the footer, which names every column chunk's place, size and statistics."""
        if is_remote(location):
            return identity_of_ends(location)
        with ReadFile(location) as handle:
            return _identity_of(handle, handle.seek(0, 2))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        with open_input(segment.location) as handle:
            file = _open(handle, segment, reading.codes)
            ordinal = segment.ordinal
            for group in range(segment.first, segment.last):
                count = file.metadata.row_group(group).num_rows
                if group not in reading.excluded:
                    yield from _read_group(file, group, ordinal, count, segment, reading)
                ordinal += count


SOURCE = Parquet()


def _refuse_twins(schema: pa.Schema, location: str) -> None:
    names = schema.names
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"column {twice!r} occurs twice", where=f"{location}, footer")


def _identity_of(handle: Any, size: int) -> str:
    handle.seek(max(0, size - 8))
    length = int.from_bytes(handle.read(4), "little")
    handle.seek(max(0, size - 8 - length))
    return f"{size}-{digest(handle.read(length + 8))}"


def _open(handle: ReadFile | RemoteFile, segment: Segment, codes: frozenset[str]) -> pq.ParquetFile:
    try:
        metadata = pq.read_metadata(handle)
        return pq.ParquetFile(
            handle,
            metadata=metadata,
            read_dictionary=[name for name in codes if _is_coded(metadata, name, segment)],
            pre_buffer=False,
            buffer_size=_BUFFER_BYTES,
            page_checksum_verification=True,
            **_AS_SURVEYED,
        )
    except MemoryError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        what = f"the file changed while it was being read: {first_line(error)}"
        raise was_changed(what, segment.location) from error


def _is_coded(metadata: pq.FileMetaData, name: str, segment: Segment) -> bool:
    """Whether the file itself holds the column as codes, and not as text from where its dictionary grew too large.

    Plain text has four bytes of length a value, so a column with less cannot be plain. Reading codes as codes saves
    making text of them and codes again; making codes of plain text is better done elsewhere (benchmarks/LOG.md).
    """
    groups = [metadata.row_group(number) for number in range(segment.first, segment.last)]
    found = [chunk for group in groups for chunk in _chunks(group) if chunk.path_in_schema == name]
    return bool(found) and all(chunk.total_uncompressed_size < 4 * chunk.num_values for chunk in found)


def _chunks(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(number) for number in range(group.num_columns)]


def _lists(metadata: pq.FileMetaData, group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    chunks = _chunks(group)
    return [each for number, each in enumerate(chunks) if metadata.schema.column(number).max_repetition_level]


def _bytes_of(chunks: Iterable[pq.ColumnChunkMetaData]) -> int:
    """Bytes before they were compressed; of codes that stand for text, those of the codes."""
    return sum(each.total_uncompressed_size for each in chunks)


def _decoded_bytes(chunks: Iterable[pq.ColumnChunkMetaData]) -> float:
    """Least decoded bytes of chunks. For text it is the size in the file, which may be that of its codes."""
    sizes = (max(each.total_uncompressed_size, each.num_values * _WIDTHS.get(each.physical_type, 0)) for each in chunks)
    return float(sum(sizes))


def _most_rows(file: pq.ParquetFile, group: int, at_once: int, segment: Segment, reading: Reading) -> int:
    """Most rows whose decoded size is bounded, even if each has the longest value of its dictionary."""
    metadata, most_bytes = file.metadata.row_group(group), MOST_GROWTH * reading.bytes_at_once
    coded = {
        each.path_in_schema: each.num_values / max(metadata.num_rows, 1)
        for each in _chunks(metadata)
        if each.has_dictionary_page
        and each.physical_type == "BYTE_ARRAY"
        and each.path_in_schema not in reading.codes
        and each.path_in_schema.partition(".")[0] in reading.columns
        and each.total_uncompressed_size < _LONG_VALUE * each.num_values
        and each.total_uncompressed_size * _most_values(each, metadata, at_once) > most_bytes
    }
    if not coded:
        return at_once
    longest = _longest_values(file.metadata, group, list(coded), min(at_once, _ROWS_OF_CODES), segment)
    return max(1, int(most_bytes / max(sum(longest.get(path, 0) * count for path, count in coded.items()), 1)))


def _most_values(chunk: pq.ColumnChunkMetaData, group: pq.RowGroupMetaData, rows: int) -> float:
    return float(min(rows * chunk.num_values / max(group.num_rows, 1), chunk.num_values))


def _longest_values(
    metadata: pq.FileMetaData, group: int, paths: list[str], at_once: int, segment: Segment
) -> dict[str, int]:
    """Bytes of the longest value of each column's dictionary, which comes with values that are read as codes."""
    longest: dict[str, int] = {}
    with open_input(segment.location) as handle:
        file = pq.ParquetFile(handle, metadata=metadata, read_dictionary=paths, pre_buffer=False, **_AS_SURVEYED)
        for rows in file.iter_batches(at_once, row_groups=[group], columns=paths, use_threads=False):
            leaves = [leaf for column in rows.columns for leaf in _leaves(column)]
            if len(leaves) > len(paths):  # a column with a dot in its name, and a struct whose fields have that path
                return {}
            for path, leaf in zip(paths, leaves, strict=True):
                if pa.types.is_dictionary(leaf.type) and len(leaf.dictionary):
                    longest[path] = pc.max(pc.binary_length(leaf.dictionary)).as_py()
            if len(longest) == len(paths):  # else all lists of these rows were empty
                break
    return longest


def _leaves(array: pa.Array) -> Iterator[pa.Array]:
    """Arrays without inner ones, in the order in which the file has their columns."""
    if pa.types.is_struct(array.type):
        inner = [array.field(number) for number in range(array.type.num_fields)]
    else:
        inner = [array.values] if pa.types.is_nested(array.type) else []
    for each in inner:
        yield from _leaves(each)
    if not inner:
        yield array


def _read_group(
    file: pq.ParquetFile, group: int, ordinal: int, count: int, segment: Segment, reading: Reading
) -> Iterator[Rows]:
    first, seen = ordinal, 0
    chunks = _chunks(file.metadata.row_group(group))
    texts = (each for each in chunks if each.physical_type == "BYTE_ARRAY" and each.path_in_schema in reading.columns)
    if count == 1 and (size := _bytes_of(texts)) > reading.most_row_bytes:
        # Told by the footer: it is not read.
        yield reading.none_of(segment, too_large(segment, ordinal, size, reading.most_row_bytes))
        return
    read = [each for each in chunks if each.path_in_schema.partition(".")[0] in reading.columns]
    is_long = _bytes_of(read) >= _LONG_ROW * max(count, 1)
    at_once = 1 if is_long else reading.rows_of(_decoded_bytes(read) / max(count, 1))
    try:
        at_once = min(at_once, _most_rows(file, group, at_once, segment, reading))
        for batch in file.iter_batches(at_once, row_groups=[group], columns=list(reading.columns), use_threads=False):
            # The file may order its columns otherwise.
            yield from sound_rows(batch.select(list(reading.columns)), ordinal, segment, reading)
            ordinal += batch.num_rows
            seen += batch.num_rows
    except MemoryError:  # the file is not to blame: the task is tried again with less
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadablePart(segment, group, first, count, first_line(error)) from error
    if seen != count:
        reason = f"{seen:,} rows could be read, its footer says {count:,}"
        raise UnreadablePart(segment, group, first, count, reason)
