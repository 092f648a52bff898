"""ArrayRecord file: records written in parts, one per task, then merged into one file per split; and read again.

A part is each record's length (8 bytes, little-endian) and its bytes, so that any number of tasks can write at once.
The merged file is made by Google's array_record, and its bytes depend on the records and their order alone.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, cast

import numpy as np
import xxhash

from penstock.base.errors import IntegrityError, file_error
from penstock.base.faults import operation
from penstock.base.files import ReadFile
from penstock.base.stores.store import Store
from penstock.shards import arrow as pa
from penstock.shards.columns import FileFacts, check_file, damaged_file, file_digest
from penstock.shards.foreign.arrayrecord import encode_records, library
from penstock.shards.manifest import ShardFacts

SUFFIX = ".arrayrecord"
_AT_ONCE = 1 << 20  # bytes held before they are written, and read at a time
# One record per chunk, so that one is read without its neighbours. Snappy is the knee: see
# docs/decisions/0007-arrayrecord.md. One thread is today's default; more would queue records in memory.
_WRITER_OPTIONS = "group_size:1,snappy,max_parallelism:1"
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"  # for records in any order
_RECORDS_AT_ONCE, _EVENTS_AT_ONCE = 1024, 1 << 16  # to be encoded


class PartWriter:
    """Takes batches of the native format; `commit` makes `{name}.records` appear; without it, `close` forgets them."""

    def __init__(self, store: Store, name: str, key: str, order: str) -> None:
        self.name = name
        self.records = 0
        self._key = key
        self._order = order
        self._hasher = xxhash.xxh3_128()
        self._pending = bytearray()
        self._commit = store.commit(f"{name}.records")
        self._file = self._commit.__enter__()
        self._open = True

    def write(self, batch: pa.RecordBatch) -> None:
        """Encodes some records at a time: as streams they take several times what they take as columns."""
        events = np.asarray(batch.column(self._order).offsets)
        first = 0
        while first < batch.num_rows:
            fits = int(np.searchsorted(events, events[first] + _EVENTS_AT_ONCE, side="right")) - 1
            last = min(max(fits, first + 1), first + _RECORDS_AT_ONCE, batch.num_rows)
            self._write(batch.slice(first, last - first))
            first = last

    def _write(self, batch: pa.RecordBatch) -> None:
        for record in encode_records(batch, self._key, self._order):
            self._pending += len(record).to_bytes(8, "little")
            self._pending += record
            self.records += 1
            if len(self._pending) >= _AT_ONCE:
                self._write_pending()

    def commit(self) -> ShardFacts:
        self._write_pending()
        self._open = False
        self._commit.__exit__(None, None, None)
        file = FileFacts(f"{self.name}.records", self._file.size, self._hasher.hexdigest())
        return ShardFacts(self.name, self.records, (file,))

    def close(self) -> None:
        if self._open:
            self._open = False
            self._commit.__exit__(GeneratorExit, GeneratorExit(), None)

    def _write_pending(self) -> None:
        self._hasher.update(self._pending)
        self._file.write(memoryview(self._pending))
        self._pending = bytearray()


def read_part(store: Store, part: FileFacts) -> Iterator[bytes]:
    """The records of a part; a part that is not what was written raises at its end at the latest."""
    hasher = xxhash.xxh3_128()
    left = part.bytes
    if store.size(part.file) != left:
        raise _damaged_part(part)
    with io.BufferedReader(cast(io.RawIOBase, store.open(part.file)), _AT_ONCE) as file:
        while head := file.read(8):
            left -= 8 + int.from_bytes(head, "little")
            if left < 0:
                raise _damaged_part(part)
            record = file.read(int.from_bytes(head, "little"))
            hasher.update(head)
            hasher.update(record)
            yield record
    if hasher.hexdigest() != part.digest:
        raise _damaged_part(part)


def _damaged_part(part: FileFacts) -> IntegrityError:
    return IntegrityError(
        f"{part.file} is damaged: its size ({part.bytes:,} bytes) or its digest differs",
        where=part.file,
        next_step="delete that file and run the job again: its task is done again. Then check the disk",
    )


def merge_parts(store: Store, name: str, parts: Sequence[ShardFacts]) -> ShardFacts:
    """The records of all parts, in order, as one file; of no part, a file without records.

    Memory: 20 MB and 60 bytes per record, because the library keeps the index of the file until its end.
    """
    with store.commit(f"{name}{SUFFIX}") as file:  # the library opens it again, by its path
        files = (each for part in parts for each in part.files)
        records = write_records(file.path, (record for each in files for record in read_part(store, each)))
        if (found := open_reader(file.path).num_records()) != records:
            raise IntegrityError(f"{name}{SUFFIX} reads {found:,} records, {records:,} were written", where=file.path)
        digest = file_digest(ReadFile(file.path))
        facts = FileFacts(f"{name}{SUFFIX}", os.stat(file.path).st_size, digest)
    return ShardFacts(name, records, (facts,))


def write_records(path: str, records: Iterator[bytes]) -> int:
    writer = library().ArrayRecordWriter(path, _WRITER_OPTIONS)
    count = 0
    try:
        for record in records:
            _announced(path, writer.write, record)
            count += 1
        _announced(path, writer.close)
    finally:
        with suppress(RuntimeError):  # it says again what it said above
            writer.close()
    return count


def _announced(path: str, act: Any, *arguments: bytes) -> None:
    """A write of the library, for the tests' faults, and with an error that names the path."""
    try:
        operation("write", path)
        act(*arguments)
    except OSError as error:
        raise file_error(error, "write", path) from error
    except RuntimeError as error:  # the library has only the text of the system's error
        number = next((code for code in errno.errorcode if os.strerror(code) in str(error)), errno.EIO)
        raise file_error(OSError(number, os.strerror(number)), "write", path) from error


def check_record_file(store: Store, file: FileFacts, records: int) -> None:
    """Every byte is the one that was written, and the library reads as many records as were."""
    check_file(store, file)
    found = open_reader(store.local_path(file.file)).num_records()
    if found != records:
        raise damaged_file(file.file, f"holds {found:,} records, not the {records:,} it should")


def open_reader(path: str) -> Any:
    """The library's reader. It opens a file that breaks off, or is none of its own, as one without records."""
    if not os.path.isfile(path):
        raise _unreadable(path, "is missing")
    reader = library().ArrayRecordReader(path, _READER_OPTIONS)
    if not reader.ok():
        try:
            reader.close()
            reason = "its reader does not say why"
        except RuntimeError as error:
            reason = str(error)
        raise _unreadable(path, f"is cut short, or not an ArrayRecord file: {reason}")
    return reader


def read_records(reader: Any, path: str, start: int, stop: int) -> list[bytes]:
    # Never read([i]): it walks all chunks of the file, 716 us among 200K records.
    try:
        records: list[bytes] = reader.read(start, stop)
    except RuntimeError as error:
        raise _unreadable(path, f"has damage in records {start:,} to {stop:,}: {error}") from error
    return records


def _unreadable(path: str, reason: str) -> IntegrityError:
    return IntegrityError(
        f"{os.path.basename(path)} {reason}",
        where=path,
        next_step="copy it again from where it came, or delete it and run its job again. Then check the disk",
    )
