"""Slices: the reader of the input's slices, and what becomes of rows in them that cannot be read or used."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.base.sizes import counted
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import SLICES, Measured
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Account, Batches, Facts, Lost, Report, Task, TaskInput
from penstock.prepare.passes import Rows as LedgerRows
from penstock.prepare.passes.folds.ahead import ahead
from penstock.prepare.passes.folds.chain import Count
from penstock.prepare.passes.folds.fold import Attempt, Written, summed
from penstock.prepare.passes.folds.joining import joined
from penstock.prepare.passes.job import Described, Job
from penstock.prepare.rows.exchange import Exchange
from penstock.prepare.rows.rows import RAISED, TOO_LARGE, Rows, SetAside, rejected_line
from penstock.prepare.samples.values import DOES_NOT_FIT, MISSING_KEY, UNEXPECTED_KEY, WRONG_SHAPE, WRONG_TYPE
from penstock.prepare.sources import Reading, UnreadablePart, read_segment, refuse_changed
from penstock.prepare.sources.reading.bad_records import TOO_LARGE_RECORD
from penstock.prepare.sources.reading.bad_text import REASON as NOT_UTF8
from penstock.prepare.sources.slices import Segment, Slice
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import Step

_ADVICE = {  # what to do about a record or sample, by reason
    NOT_UTF8: "mend the record, or have it repaired: `bad_utf8: repair` beside the input's path",
    TOO_LARGE_RECORD: "allow more `memory:`",
    MISSING_KEY: "yield it in every sample, or say what stands for it: `missing: {column: -1}`",
    UNEXPECTED_KEY: "add it to `schema:`, or leave it out of the sample",
    WRONG_SHAPE: "yield one shape, or declare the right one under `schema:`",
    WRONG_TYPE: "yield what the type takes (an array has no null: -1, say), or declare another under `schema:`",
    DOES_NOT_FIT: "declare a type under `schema:` that holds it",
}
_ALWAYS_SET_ASIDE = (RAISED, TOO_LARGE)
_BATCHES = Batches(wanted=4 << 20, good=1 << 20, least=64 << 10)  # 1 to 8 MiB were equally fast: LOG.md


@dataclass(frozen=True)
class Slices:
    job: Job
    word = SLICES
    buckets = 0
    exchange: Exchange | None = None

    @property
    def task_count(self) -> int:
        return len(self.job.survey.slices)

    def inputs(self) -> Sequence[Described]:
        slices = self.job.survey.slices
        return [
            (piece, [len(slices), piece.number, [segment.describe() for segment in piece.segments]]) for piece in slices
        ]

    def batches(self, measured: Measured) -> Batches:  # noqa: ARG002
        return _BATCHES

    def written(self, measured: Measured, workers: int) -> Written:
        row_bytes = measured.slices.output_row_bytes
        tasks = sorted((self.job.survey.rows_of(piece) for piece in self.job.survey.slices), reverse=True)
        at_once = sum(int(rows * row_bytes) for rows in tasks[: max(workers, 1)])
        return Written(int(self.job.rows * row_bytes), at_once, max(tasks, default=0) * row_bytes)

    def source(self, takes_codes: bool) -> FromSlices:
        survey = self.job.survey
        reading = survey.reading(rows_at_once=1024, bytes_at_once=1 << 16).within(self.job.allowed)
        if takes_codes:
            texts = frozenset(field.name for field in survey.schema if pa.types.is_string(field.type))
            reading = replace(reading, codes=texts)
        return FromSlices(reading, self.job.config.on_bad_input == "fail")

    def order(self, tasks: list[Task], store: Store) -> list[Task]:  # noqa: ARG002
        return tasks

    def count(self, account: Account, rows: LedgerRows) -> Account:
        """Files, rows that a user's function was given, and rows read."""
        survey = self.job.survey
        lost = [each.reason for each in survey.bad_files] + [title for row in rows for _, title in row.lost_files]
        aside = {reason: lost.count(reason) for reason in sorted(set(lost))}
        files = Step("files", "files", survey.files, survey.files - len(lost), aside)
        read = summed("read", self.job.units[0], [row.steps["read"] for row in rows])
        return {**account, "files": files, **_given_to_functions(rows), "read": read}

    def facts(self) -> Facts:
        return Facts((), "slices", "", f"{counted(self.task_count, 'slice')} of the input")


def _given_to_functions(rows: LedgerRows) -> dict[str, Step]:
    """Rows of tables that a user's function made samples of."""
    steps = [row.steps["rows"] for row in rows if "rows" in row.steps]
    given = summed("rows", "rows", steps)
    made = {"samples": sum(step.made["samples"] for step in steps)}
    return {"rows": replace(given, made=made)} if given.taken else {}


@dataclass(frozen=True)
class FromSlices:
    """The worker's half."""

    reading: Reading
    refuses: bool

    @property
    def reducers(self) -> dict[int, Stage]:
        return {}

    def may_lose(self, title: str) -> bool:
        return title == TOO_LARGE or not self.refuses

    def fails_on(self, part: UnreadablePart) -> bool:
        """Whether the part stops the job. What a user's function raises never does: it is kept, with its traceback."""
        return self.refuses and part.title not in _ALWAYS_SET_ASIDE

    def given_up(self, piece: TaskInput, lost: Lost) -> list[UnreadablePart]:
        assert isinstance(piece, Slice)
        segments = {segment.path: segment for segment in piece.segments}
        return [UnreadablePart(segments[path], 0, 0, -1, reason, title) for path, title, reason in lost]

    def files(self, piece: TaskInput) -> list[tuple[int, str]]:
        assert isinstance(piece, Slice)
        return [(segment.source, segment.path) for segment in piece.segments]

    def rejected_name(self, number: int) -> str:
        return f"rejected/{number:05d}.jsonl"

    def for_trial(self) -> FromSlices:
        return replace(self, refuses=False)

    def sized(self, batch_bytes: int, row_bytes: float) -> FromSlices:
        """The source, reading about `batch_bytes` of decoded rows at a time."""
        rows = max(1, int(batch_bytes / max(row_bytes, 1.0)))
        return replace(self, reading=replace(self.reading, rows_at_once=rows, bytes_at_once=max(batch_bytes, 1024)))

    def rows(self, attempt: Attempt) -> Iterator[Rows]:
        """The rows that the stages are given. What cannot be read or used is counted, too."""
        piece = attempt.task.input
        assert isinstance(piece, Slice)
        row_bytes = _row_bytes_of(piece, attempt.settings)
        yield from self.sized(attempt.settings.batch_bytes, row_bytes)._rows(piece, attempt)

    def _rows(self, piece: Slice, attempt: Attempt) -> Iterator[Rows]:
        first, chain = attempt.read, attempt.chain

        def give_up(part: UnreadablePart) -> None:
            attempt.lost.append(part)
            count = attempt.rows if self._takes_rows(part.segment.source) else first
            count.add(max(part.rows, 0), [chain.rejected.take(_unreadable_rows(part))])
            chain.rejected.write()

        for part in attempt.unreadable:
            if not self._takes_files(part.segment.source):  # a file of a function comes in its place, see _read
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
            attempt.rows.made += taken if self._takes_rows(rows.source) else 0
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
                report(first.taken, segment.path, is_file)
            for rows in read_segment(segment, reading, frozenset(part.part for part in known)):
                if isinstance(rows, Rows) and self.refuses:
                    _refuse_bad_records(rows, segment)
                yield rows

    def _takes_rows(self, source: int) -> bool:
        """Whether a function makes samples of the rows of this source."""
        return self.reading.options[source].takes_rows and bool(self.reading.options[source].function)

    def _takes_files(self, source: int) -> bool:
        options = self.reading.options[source]
        return bool(options.function) and not options.takes_rows

    def _reads_ahead(self, piece: Slice, threads: int) -> bool:
        """On a thread, if there is one to spare; not what a user's function reads, which tells where it is."""
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


def _refuse_bad_records(rows: Rows, segment: Segment) -> None:
    for aside in (*rows.set_aside, *(rows.made_of[1] if rows.made_of else ())):
        raise _bad_record(aside, segment)


def _unreadable_rows(part: UnreadablePart) -> SetAside:
    rows = part.rows if part.rows >= 0 else None
    facts: dict[str, Any] = {"row_group": part.part} if part.title.startswith("unreadable") else {}
    facts |= {"rows": rows, **({"traceback": part.trace} if part.trace else {})}
    line = rejected_line(part.segment.source, part.segment.path, part.ordinal, part.title, detail=part.reason, **facts)
    return SetAside(part.title, max(part.rows, 0), (line,))


def _printable(text: str) -> str:
    """The text with control characters escaped, so that a terminal does not obey them."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _bad_record(aside: SetAside, segment: Segment) -> InputError:
    line = aside.kept[0]
    if "sample" in line:
        place = f"sample {line['sample']:,}, key {line['key']!r}"
    else:
        shown = line.get("raw") or (json.dumps(line["row"], ensure_ascii=False) if "row" in line else "")
        place = f"line {line['line']:,}" if "line" in line else f"row {line['position']:,}"
        place += f": {_printable(shown[:200])}" if shown else ""
    mend = _ADVICE.get(aside.reason, "mend the record")
    return InputError(
        f"{aside.reason}: {line.get('detail', '')}".rstrip(": "),
        where=f"{segment.location}, {place}",
        next_step=f"{mend}, or set `on_bad_input: set_aside` to keep it in rejected/ and go on",
    )
