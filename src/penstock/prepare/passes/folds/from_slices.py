"""From slices: reads the rows of a slice, and counts rows that cannot be read. The driver's half: slices.py."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pyarrow as pa

from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Lost, Report, TaskInput
from penstock.prepare.passes.folds.chain import Count
from penstock.prepare.passes.folds.source import Attempt, Source, refuse_bad_records, unreadable_rows
from penstock.prepare.rows.marks import Marks
from penstock.prepare.rows.rows import RAISED, TOO_LARGE, Rows, join
from penstock.prepare.sources import Reading, UnreadablePart, read_segment, readable, refuse_changed
from penstock.prepare.sources.slices import Slice
from penstock.shards.manifest import Step

T = TypeVar("T")
_ALWAYS_SET_ASIDE = (RAISED, TOO_LARGE)
_SMALL = 4  # a batch of less than this part of what may be read at once waits for others
_END = object()


@dataclass(frozen=True)
class FromSlices(Source):
    """Reads slices inside a worker; with `refuses`, bad input stops the job; with `marks`, rows know their origins."""

    reading: Reading
    refuses: bool
    marks: Marks | None = None

    def may_lose(self, title: str) -> bool:
        """Whether a file may be left out. Errors of a user's function never stop the job: they go to rejected/."""
        return title in _ALWAYS_SET_ASIDE or not self.refuses

    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]:
        assert isinstance(piece, Slice)
        segments = {segment.path: segment for segment in piece.segments}
        return [UnreadablePart(segments[path], 0, 0, -1, reason, title) for path, title, reason in lost]

    def files(self, piece: TaskInput) -> list[tuple[int, str]]:
        assert isinstance(piece, Slice)
        return [(segment.source, segment.path) for segment in piece.segments]

    def rejected_name(self, number: int) -> str:
        return f"rejected/{number:05d}.jsonl"

    def sized(self, batch_bytes: int, row_bytes: float) -> FromSlices:
        """The source, reading about `batch_bytes` of decoded rows at a time."""
        rows = max(1, int(batch_bytes / max(row_bytes, 1.0)))
        return replace(self, reading=replace(self.reading, rows_at_once=rows, bytes_at_once=max(batch_bytes, 1024)))

    def rows(self, attempt: Attempt) -> Iterator[Rows]:
        """The rows for the stages. Rows that cannot be read or used are counted."""
        piece = attempt.task.input
        assert isinstance(piece, Slice)
        row_bytes = _row_bytes_of(piece, attempt.settings)
        yield from self.sized(attempt.settings.batch_bytes, row_bytes)._rows(piece, attempt)

    def _rows(self, piece: Slice, attempt: Attempt) -> Iterator[Rows]:
        first, chain = attempt.read, attempt.chain
        numbers = {file: piece.first + number for number, file in enumerate(self.files(piece))} if self.marks else {}

        def give_up(part: UnreadablePart) -> None:
            attempt.lost.append(part)
            count = attempt.rows if self._takes_parts(part.segment.source) else first
            count.add(max(part.rows, 0), [chain.rejected.take(unreadable_rows(part))])
            chain.rejected.write()

        for part in attempt.unreadable:
            if not self._comes_in_place(part.segment.source):  # see _read
                give_up(part)
        items = joined(self._read(piece, attempt.unreadable, first, attempt.report), self.reading)
        for rows in ahead(items) if self._reads_ahead(piece, attempt.settings.threads) else items:
            if isinstance(rows, UnreadablePart):
                give_up(rows)
                continue
            if rows.made_of:
                taken, aside = rows.made_of
                rejected = [chain.rejected.take(each) for each in aside]
                attempt.rows.add(taken + sum(each.count for each in aside), rejected)
            taken = len(rows) + sum(aside.count for aside in rows.set_aside)
            attempt.rows.made += taken if self._takes_parts(rows.source) else 0
            if numbers:
                rows = replace(rows, pieces=tuple(numbers[rows.source, path] for path in rows.paths))
            yield chain.count(rows, taken, first)
            attempt.report(first.taken)
        refuse_changed(piece, self.reading)

    def _read(
        self, piece: Slice, unreadable: list[UnreadablePart], first: Count, report: Report
    ) -> Iterator[Rows | UnreadablePart]:
        reading = replace(self.reading, tell=lambda made: report(first.taken + made))
        for segment in piece.segments:
            known = [part for part in unreadable if part.segment == segment]
            is_file = self._takes_files(segment.source)
            if is_file and known:
                yield known[0]
                continue
            if reading.options[segment.source].function:
                report(first.taken, str(segment) if reading.options[segment.source].items else segment.path, is_file)
            parts = {part.part: part for part in known}
            for rows in read_segment(segment, reading, frozenset(parts)):
                if isinstance(rows, Rows) and self.refuses:
                    refuse_bad_records(rows, segment)
                if isinstance(rows, Rows) and self.marks:
                    rows = self.marks.on(rows)
                yield parts.get(rows.part, rows) if isinstance(rows, UnreadablePart) else rows

    def first_rows(self, slices: Sequence[Slice], threads: int) -> Iterator[Rows]:
        """All rows that can be read, for a trial."""
        segments = (segment for piece in slices for segment in piece.segments)
        found = joined((rows for segment in segments for rows in readable(segment, self.reading)), self.reading)
        for rows in ahead(found) if threads > 1 else found:
            assert isinstance(rows, Rows)
            yield rows

    def _takes_parts(self, source: int) -> bool:
        """Whether a function makes samples of the rows or items of this source."""
        return bool(self.reading.options[source].function) and not self._takes_files(source)

    def _takes_files(self, source: int) -> bool:
        return self.reading.options[source].takes_files

    def _comes_in_place(self, source: int) -> bool:
        """Whether a file or item that was given up is counted when reading comes to it."""
        return self._takes_files(source) or self.reading.options[source].items is not None

    def _reads_ahead(self, piece: Slice, threads: int) -> bool:
        """Read ahead on a thread if one is free. Not for a user's function, which must report its position."""
        options = self.reading.options
        return threads > 1 and not any(options[segment.source].function for segment in piece.segments)

    def steps(self, attempt: Attempt) -> dict[str, Step]:
        rows = {"rows": attempt.rows.step("rows", "", "samples")} if attempt.rows.taken else {}
        return {**rows, "read": attempt.read.step("read", "")}


def _row_bytes_of(piece: Slice, settings: Settings) -> float:
    """Decoded bytes of a row. Slices that store more per row than the first are taken to decode to more, too."""
    if piece.rows <= 0:
        return settings.row_bytes
    return settings.row_bytes * max(piece.bytes / piece.rows / settings.stored_row_bytes, 1.0)


def joined(items: Iterator[Rows | UnreadablePart], reading: Reading) -> Iterator[Rows | UnreadablePart]:
    """Rows of many small files in batches of several files; what is large already passes as it is. Readers give batches
    of one file, each takes its way through all stages, and a folder of a million short texts would make a million."""
    held: list[Rows] = []
    rows = size = 0
    for item in items:
        small = item if isinstance(item, Rows) and _is_small(item, reading) else None
        if held and (small is None or not _are_alike(held[-1], small)):
            yield join(held)
            held, rows, size = [], 0, 0
        if small is None:
            yield item
            continue
        held.append(small)
        rows += len(small) + sum(aside.count for aside in small.set_aside)  # of which lines are held, too
        size += small.batch.nbytes
        if rows >= reading.rows_at_once or size >= reading.bytes_at_once:
            yield join(held)
            held, rows, size = [], 0, 0
    if held:
        yield join(held)


def _is_small(rows: Rows, reading: Reading) -> bool:
    """Whether a batch is small enough to join. Samples of a user's function are not joined across files."""
    if rows.made_of or reading.options[rows.source].function:
        return False
    if any(pa.types.is_dictionary(kind) for kind in rows.batch.schema.types):  # several may be more than its codes hold
        return False
    return _SMALL * len(rows) < reading.rows_at_once and _SMALL * rows.batch.nbytes < reading.bytes_at_once


def _are_alike(one: Rows, other: Rows) -> bool:
    if one.source != other.source or one.beside.keys() != other.beside.keys():
        return False
    return bool(one.batch.schema.equals(other.batch.schema))


def ahead(items: Iterator[T]) -> Iterator[T]:
    """The items, and their error at the end. One is ready, one is made on a thread: readers leave Python's lock."""
    ready: queue.Queue[Any] = queue.Queue(1)
    stopped = threading.Event()

    def put(item: Any) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put((item, None)):
                    return
            put((_END, None))
        except BaseException as error:
            put((_END, error))

    thread = threading.Thread(target=work, daemon=True, name="ahead")
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is _END:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
