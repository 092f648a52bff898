"""Text: a document is a file, or a line of one. It has one column, `text`."""

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from penstock.base.files import ReadFile
from penstock.prepare.rows.rows import Rows
from penstock.prepare.sources import TEXT_SCHEMA, File, FileSurvey, Reading, Source, SourceOptions, UnreadablePart
from penstock.prepare.sources.reading import bad_records, chunks
from penstock.prepare.sources.reading.bad_text import REASON, naming, sound_text
from penstock.prepare.sources.reading.chunks import Chunk
from penstock.prepare.sources.reading.encodings import marked_encoding
from penstock.prepare.sources.reading.input_file import BreaksOff, is_streamed, open_input, open_text
from penstock.prepare.sources.slices import Segment

TOO_LONG = "longer than 2 GiB"
_READ_AT_ONCE = 1 << 20
_LINES_A_FILE = 4  # a file that is one document is held less often on its way than a line that has to be found first


class Text(Source):
    files_tell_types = False
    takes = ("encoding",)

    def survey(self, file: File, options: SourceOptions, slice_bytes: int) -> FileSurvey:
        if options.document == "line":
            _refuse_marked(file)
            return FileSurvey(TEXT_SCHEMA, chunks.pieces_of(file, 0, slice_bytes, whole=False))
        known = self.identity(file.location)
        size = int(known.partition("-")[0])
        return FileSurvey(TEXT_SCHEMA, (file.segment(known, 1, max(size, 1)),))

    def read(self, segment: Segment, reading: Reading) -> Iterator[Rows]:
        repair = reading.repairs(segment)
        if reading.options[segment.source].document == "line":
            make = partial(_lines, repair=repair)
            yield from bad_records.read_records(segment, reading, chunks.line_ends, TEXT_SCHEMA, make)
        else:
            yield _document(segment, repair, _LINES_A_FILE * reading.most_record_bytes)


SOURCE = Text()


def _refuse_marked(file: File) -> None:
    """Refuse a file that says in its first bytes that it is not UTF-8. A compressed one is not opened for that."""
    if not is_streamed(file.location, file.encoding):
        with open_input(file.location) as handle:
            chunks.refuse_marked(handle.read(4), file)


def _document(segment: Segment, repair: bool, allowed: int) -> Rows:
    """`allowed` are the bytes that memory has room for."""
    most = min(allowed, chunks.MOST_BYTES)
    try:
        data = _contents(segment.location, segment.encoding, most)
    except BreaksOff as broken:
        return _none(segment, broken.rest, broken.reason, bad_records.BROKEN_OFF)
    except _TooLong as error:
        if most == chunks.MOST_BYTES:
            return _none(segment, error.begin, _too_long(), TOO_LONG)
        detail = f"it has more than the {allowed:,} bytes that this memory allows a document"
        return _none(segment, error.begin, detail, bad_records.TOO_LARGE_RECORD)
    except MemoryError:  # the file is not to blame: the task is tried again with less
        raise
    except (pa.ArrowException, OSError) as error:
        raise UnreadablePart(segment, 0, 0, 1, str(error).partition("\n")[0], "unreadable file") from error
    first = len(chunks.BYTE_ORDER_MARK) if data.startswith(chunks.BYTE_ORDER_MARK) else 0
    if not segment.encoding and not repair and (marked := marked_encoding(data)):
        detail = f"the file is {marked}, as its first bytes say: add `encoding: {marked}` to the input"
        return _none(segment, data[:_READ_AT_ONCE], detail, REASON)
    rows = _rows(data, np.array([first, len(data)], "i4"), segment, 0)
    return naming(sound_text(rows, repair, lambda _row: 1), segment)


def _too_long() -> str:
    return f"a document has at most {chunks.MOST_BYTES:,} bytes"


def _none(segment: Segment, data: Chunk, detail: str, reason: str, ordinal: int = 0, line: int = 1) -> Rows:
    return bad_records.only(bad_records.set_aside(data, segment, ordinal, line, detail, reason), segment, TEXT_SCHEMA)


class _TooLong(Exception):
    def __init__(self, begin: Chunk) -> None:
        super().__init__()
        self.begin = begin


def _contents(location: str, encoding: str, most: int) -> Chunk:
    """The whole file, in memory once. Of one that has more than `most` bytes only how it begins, with _TooLong."""
    if not is_streamed(location, encoding):
        with ReadFile(location) as handle:
            size = handle.seek(0, 2)
            handle.seek(0)
            if size > most:  # asked for more than the kernel gives at once, it would look shorter
                raise _TooLong(handle.read(_READ_AT_ONCE))
            return handle.read()
    held = bytearray()
    try:
        with open_text(location, encoding) as stream:
            while data := stream.read(_READ_AT_ONCE):
                held += data
                if len(held) > most:
                    raise _TooLong(held[:_READ_AT_ONCE])
    except BreaksOff as broken:
        raise BreaksOff(broken.reason, held) from broken
    return held


def _lines(data: Chunk, segment: Segment, ordinal: int, line: int, repair: bool) -> Rows:
    """One document per line, without its end. An empty line is an empty document. More than MOST_BYTES is one line."""
    end_bytes = 2 if data.endswith(b"\r\n") else int(data.endswith(b"\n"))
    if len(data) - end_bytes > chunks.MOST_BYTES:
        return _none(segment, data, _too_long(), TOO_LONG, ordinal, line + 1)
    if b"\r\n" in data:
        data = data.replace(b"\r\n", b"\n")
    ends = chunks.line_ends(data)
    ends -= np.arange(1, len(ends) + 1)  # in the text without newlines
    text = data.translate(None, b"\n")
    if not data.endswith(b"\n"):
        ends = np.append(ends, len(text))
    rows = _rows(text, np.concatenate([[0], ends]).astype("i4"), segment, ordinal)
    return sound_text(rows, repair, lambda row: chunks.line_in_file(segment, line + row + 1))


def _rows(data: Chunk, offsets: np.ndarray[tuple[int], np.dtype[np.int32]], segment: Segment, ordinal: int) -> Rows:
    count = len(offsets) - 1
    array = pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(data))
    batch = pa.RecordBatch.from_arrays([array], schema=TEXT_SCHEMA)
    return Rows(batch, segment.source, (segment.path,), np.arange(ordinal, ordinal + count))
