"""Arrow: IPC files, as a stream (what datasets' save_to_disk leaves) or with a footer, mapped into memory.

A piece is a record batch: bytes of a stream, which has no index, or a number in a file with a footer.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.base.files import ReadFile
from penstock.prepare.rows.layouts import plain_array, without_metadata
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.reading.bad_text import as_binary
from penstock.prepare.sources.reading.input_file import first_line, unusable
from penstock.prepare.sources.reading.large_rows import MOST_GROWTH, is_bytes, sound_rows
from penstock.prepare.sources.slices import Segment

_MAGIC = b"ARROW1"  # of a file with a footer
_UNKNOWN = 1 << 62  # decoded bytes of compressed batches
_DAMAGE = (pa.ArrowException, OSError, EOFError)


class Arrow(Source):
    is_one_part = False

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:  # noqa: ARG002
        known = self.identity(file.location)
        pieces: list[Segment] = []
        ordinal = 0
        try:
            with _mapped(file.location) as mapped:
                schema = without_metadata(_open(mapped).schema)
                some = schema.names[:1]  # rows are counted without a look at the other columns
                for first, last, size, batch in _batches(mapped, some, 0, 1 << 62):
                    pieces.append(file.segment(known, batch.num_rows, size, first, last, ordinal))
                    ordinal += batch.num_rows
                is_compressed = _is_compressed(mapped)
        except MemoryError:
            raise
        except _DAMAGE as error:
            where = f"{file.location}, record batch {len(pieces)}"
            raise unusable(f"not a readable Arrow file: {first_line(error)}", where) from error
        return FileSurvey(schema, tuple(pieces), decoded_bytes=_UNKNOWN if is_compressed else 0)

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        columns = list(reading.columns)
        ordinal = segment.ordinal
        with _mapped(segment.location) as mapped:
            for first, _, _, batch in _batches(mapped, columns, segment.first, segment.last):
                if first not in reading.excluded:
                    _refuse_damaged(batch, segment, first, ordinal)
                    yield from _cut(batch.select(columns), ordinal, segment, reading)
                ordinal += batch.num_rows


SOURCE = Arrow()


def _cut(batch: pa.RecordBatch, ordinal: int, segment: Segment, reading: Reading) -> Iterator[Rows]:
    count = min(reading.rows_of(batch.nbytes / max(batch.num_rows, 1)), _most_rows(batch, reading))
    for start in range(0, batch.num_rows, count):
        yield from sound_rows(batch.slice(start, count), ordinal + start, segment, reading)


def _most_rows(batch: pa.RecordBatch, reading: Reading) -> int:
    """Most rows whose decoded size is bounded, even if each has the longest value of its dictionary or runs."""
    longest = sum(_longest_value(array) for array in batch.columns)
    return max(1, MOST_GROWTH * reading.bytes_at_once // max(longest, 1))


def _longest_value(array: pa.Array) -> int:
    """Bytes of the longest text that codes or runs stand for."""
    is_a = pa.types
    if not (is_a.is_dictionary(array.type) or is_a.is_run_end_encoded(array.type)):
        return 0
    values = array.dictionary if is_a.is_dictionary(array.type) else plain_array(array.values)
    if is_a.is_dictionary(values.type):
        values = values.dictionary
    return int(pc.max(pc.binary_length(as_binary(values))).as_py() or 0) if is_bytes(values.type) else 0


def _refuse_damaged(batch: pa.RecordBatch, segment: Segment, part: int, ordinal: int) -> None:
    """Arrow believes what a file says about where values start. Whether text is text is looked at later."""
    try:
        batch.validate()
        for array in batch.columns:
            _plain_codes(array).validate(full=True)
    except MemoryError:  # the file is not to blame: the task is tried again with less
        raise
    except pa.ArrowException as error:
        rows = batch.num_rows
        raise UnreadablePart(segment, part, ordinal, rows, first_line(error), "unreadable record batch") from error


def _plain_codes(array: pa.Array) -> pa.Array:
    """The array with text as bytes. Codes stay codes: what they stand for may be far more than memory."""
    if not pa.types.is_dictionary(array.type):
        return as_binary(array)
    return pa.DictionaryArray.from_arrays(array.indices, as_binary(array.dictionary), safe=False)


def _is_compressed(mapped: Any) -> bool:
    """Whether batches are compressed, as the header of the first one says. Arrow has no function for it."""
    mapped.seek(8 if mapped.read_at(len(_MAGIC), 0) == _MAGIC else 0)
    while True:
        try:
            message = pa.ipc.read_message(mapped)
        except EOFError:
            return False
        if message.type == "record batch":
            data = message.metadata.to_pybytes()
            return bool(_field(data, _table(data, _field(data, _table(data, 0), 2)), 3))


def _table(data: bytes, place: int) -> int:
    """Position of the table that this place of a flatbuffer points to."""
    return place + int.from_bytes(data[place : place + 4], "little")


def _field(data: bytes, table: int, number: int) -> int:
    """Position of a field of a table, or 0 if it is not there."""
    fields = table - int.from_bytes(data[table : table + 4], "little", signed=True)
    has, place = int.from_bytes(data[fields : fields + 2], "little"), fields + 4 + 2 * number
    offset = int.from_bytes(data[place : place + 2], "little") if place < fields + has else 0
    return table + offset if offset else 0


@contextmanager
def _mapped(location: str) -> Iterator[Any]:
    with ReadFile(location):  # its errors say which file
        pass
    # As bytes: Arrow would refuse a name that is no UTF-8.
    with pa.memory_map(os.fsencode(location)) as mapped:
        yield mapped


def _batches(mapped: Any, columns: list[str], first: int, last: int) -> Iterator[tuple[int, int, int, pa.RecordBatch]]:
    """(start, end, bytes, rows) of every batch between two places, with these columns alone."""
    schema = _open(mapped).schema
    reader = _open(mapped, included_fields=[schema.get_field_index(name) for name in columns])
    if isinstance(reader, pa.RecordBatchFileReader):
        share = max(1, mapped.size() // max(1, reader.num_record_batches))
        for number in range(first, min(last, reader.num_record_batches)):
            yield number, number + 1, share, reader.get_batch(number)
        return
    if first and "dictionary<" not in str(schema):  # what codes stand for is told on the way
        mapped.seek(first)
    while (place := mapped.tell()) < last:
        try:
            batch = reader.read_next_batch()
        except StopIteration:
            return
        if place >= first:
            yield place, mapped.tell(), mapped.tell() - place, batch


def _open(mapped: Any, **options: Any) -> Any:
    mapped.seek(0)
    start = mapped.read(len(_MAGIC))
    mapped.seek(0)
    kind = pa.ipc.open_file if start == _MAGIC else pa.ipc.open_stream
    return kind(mapped, options=pa.ipc.IpcReadOptions(**options))
