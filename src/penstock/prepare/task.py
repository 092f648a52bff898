"""Task: one worker, one slice or bucket: read -> stages -> write -> commit. Next: ledger.py.

The same function runs in a worker process and inside the driver. How much it holds at a time changes its memory and
nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from penstock.base.errors import InputError, PenstockError
from penstock.base.faults import crash_point
from penstock.base.files import Folder
from penstock.base.machine import boot_id
from penstock.prepare.ahead import ahead
from penstock.prepare.exchange import Bucket, Exchange, Sorted
from penstock.prepare.exchange.gather import Gathering, gather
from penstock.prepare.fold import Count, Fold, Tap
from penstock.prepare.joining import joined
from penstock.prepare.keying import FromKeys, KeyRange, match_keys
from penstock.prepare.ledger import LedgerRow, write_row
from penstock.prepare.packing import FromTokens, Span, pack
from penstock.prepare.placing import FromParts, Part, place
from penstock.prepare.room import NOBODY_COUNTS, Room, alone_room
from penstock.prepare.rows import RAISED, TOO_LARGE, Rows, SetAside, rejected_line
from penstock.prepare.sample_sinks import SamplesInto
from penstock.prepare.sample_values import DOES_NOT_FIT, MISSING_KEY, UNEXPECTED_KEY, WRONG_SHAPE, WRONG_TYPE
from penstock.prepare.sinks import Nothing, Rejected, ShardsInto, Sink, Spill, SpillInto
from penstock.prepare.slices import Segment, Slice
from penstock.prepare.sources import Reading, UnreadablePart, read_segment, refuse_changed
from penstock.prepare.sources.bad_records import TOO_LARGE_RECORD
from penstock.prepare.sources.bad_text import REASON as NOT_UTF8
from penstock.prepare.stage import Stage
from penstock.prepare.text_sinks import KeysInto, TokensInto
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
ALWAYS_SET_ASIDE = (RAISED, TOO_LARGE)
Into = ShardsInto | SpillInto | SamplesInto | KeysInto | TokensInto


class Report(Protocol):
    """Told the rows read so far, and which file a user's function is given now, or a part of it (not `whole`)."""

    def __call__(self, rows: int, place: str = "", whole: bool = True) -> None: ...


@dataclass(frozen=True)
class Task:
    """One slice, bucket or part of one pass. Its fingerprint covers everything that decides what it writes."""

    name: str
    input: Slice | Bucket | Part | KeyRange | Span
    fingerprint: str


@dataclass(frozen=True)
class FromSlices:
    """The input of a pass that reads files."""

    reading: Reading
    on_bad_input: str

    def fails_on(self, part: UnreadablePart) -> bool:
        """Whether the part stops the job. What a user's function raises never does: it is kept, with its traceback."""
        return self.on_bad_input == "fail" and part.title not in ALWAYS_SET_ASIDE

    def takes_rows(self, source: int) -> bool:
        """Whether a function makes samples of the rows of this source."""
        return self.reading.options[source].takes_rows and bool(self.reading.options[source].function)

    def takes_files(self, source: int) -> bool:
        options = self.reading.options[source]
        return bool(options.function) and not options.takes_rows


@dataclass(frozen=True)
class FromBuckets:
    """The input of a pass that reads what an earlier one spilled."""

    stage: int  # number of the stage that reduces the rows of a key
    name: str
    reducer: Stage
    exchange: Exchange
    buckets: int
    spills: tuple[str, ...]  # in the order of their rows' positions
    on_bad_input: str


@dataclass(frozen=True)
class Recipe:
    """What every task of a pass does."""

    root: str
    source: FromSlices | FromBuckets | FromParts | FromKeys | FromTokens
    names: dict[int, str]
    stages: dict[int, Stage]  # by number, bound: those that need an artifact have it
    fits: tuple[int, ...]  # numbers of the stages whose reduction this pass runs
    sink: Into | None  # none: the pass only measures, or places
    code: tuple[tuple[str, str], ...]  # the user's own code that the plan was made with: (module:name, identity)
    batch_bytes: int = 0  # of decoded rows that are read, or sorted, at a time
    hold_bytes: int = 0  # of output that a task may keep in memory; like the batch, it changes no byte
    threads: int = 1  # that a stage may use
    room: Room = NOBODY_COUNTS
    is_for_good: bool = True  # else a later pass does the same to the same rows, and writes what is set aside

    def within(self, allowed: int) -> Recipe:
        """The recipe, with what one row may take where so much memory is allowed."""
        room = Room(alone_room(allowed), alone_room(allowed))
        if not isinstance(self.source, FromSlices):
            return replace(self, room=room)
        return replace(self, source=replace(self.source, reading=self.source.reading.within(allowed)), room=room)

    def open_stages(self, folder: Folder, number: int) -> dict[int, Stage]:
        return {each: stage.opened(folder, number, self.threads, self.room) for each, stage in self.stages.items()}

    def open_sink(self, folder: Folder, number: int, stack: ExitStack) -> Sink:
        if isinstance(self.sink, SpillInto):
            return Spill(folder, self.sink, number, stack, self.batch_bytes)
        return self.sink.open(folder, number, stack, self.hold_bytes) if self.sink else Nothing()

    def taps(self) -> dict[int, Tap]:
        stages = self.stages
        if isinstance(self.source, FromBuckets):
            stages = {self.source.stage: self.source.reducer, **stages}
        return {number: Tap(fit) for number in self.fits if (fit := stages[number].fit())}

    def steps(self, counts: dict[str, Count], fold: Fold) -> dict[str, Step]:
        """The account of a task by number of stage; what it read has none."""
        steps = {str(number): count.step(self.names[number], "") for number, count in fold.counts.items()}
        steps |= {
            token_steps(number): count.token_step(self.names[number])
            for number, count in fold.counts.items()
            if count.tokens
        }
        if isinstance(self.source, FromBuckets):
            return {str(self.source.stage): counts["read"].step(self.source.name, "", "made"), **steps}
        rows = {"rows": counts["rows"].step("rows", "", "samples")} if counts["rows"].taken else {}
        return {**rows, "read": counts["read"].step("read", ""), **steps}


def token_steps(number: int) -> str:
    """The name of a stage's count of tokens."""
    return f"{number}.tokens"


def execute(task: Task, recipe: Recipe, report: Report, lost: Sequence[tuple[str, str, str]] = ()) -> LedgerRow:
    """Do the task and enter it in the ledger.

    A part that cannot be decoded starts the task anew without that part, so that what is kept of a damaged file
    never depends on how far the reading had come. `lost` files (path, title, reason) have been given up already.
    """
    unreadable = _given_up(task, lost)
    while True:
        try:
            row = _attempt(task, recipe, unreadable, report)
            break
        except UnreadablePart as part:
            if isinstance(recipe.source, FromSlices) and recipe.source.fails_on(part):
                raise _refusal(part) from part
            unreadable.append(part)
        except PenstockError as error:
            error.add_note(f"in {task.input}")
            raise
    crash_point("task.before_ledger")
    write_row(Folder(recipe.root), row)
    crash_point("task.after_ledger")
    return row


def _given_up(task: Task, lost: Sequence[tuple[str, str, str]]) -> list[UnreadablePart]:
    segments = {segment.path: segment for segment in task.input.segments} if isinstance(task.input, Slice) else {}
    return [UnreadablePart(segments[path], 0, 0, -1, reason, title) for path, title, reason in lost]


def _attempt(task: Task, recipe: Recipe, unreadable: list[UnreadablePart], report: Report) -> LedgerRow:
    if isinstance(recipe.source, FromParts):
        return place(task, recipe, report)
    if isinstance(recipe.source, FromKeys):
        return match_keys(task, recipe, report)
    if isinstance(recipe.source, FromTokens):
        return pack(task, recipe, report)
    folder = Folder(recipe.root)
    counts = {"read": Count(), "rows": Count()}
    lost: list[UnreadablePart] = []
    with ExitStack() as stack:
        rejected = Rejected(folder, _rejected_name(task, recipe), stack, recipe.is_for_good, _files_of(task))
        refuses = isinstance(recipe.source, FromSlices | FromBuckets) and recipe.source.on_bad_input == "fail"
        fold = Fold(recipe.open_stages(folder, task.input.number), recipe.taps(), rejected, refuses)
        sink = recipe.open_sink(folder, task.input.number, stack)
        for rows in _rows(task, recipe, unreadable, fold, counts, lost, report):
            rows = fold(rows)
            rejected.write()
            sink.write(rows)
        for stage in fold.stages.values():
            stage.ended()
        produced = sink.finish()
        crash_point("task.after_shards")
    return LedgerRow(
        task=task.name,
        fingerprint=task.fingerprint,
        shards=produced.shards,
        spill=produced.spill,
        rejected=rejected.facts,
        steps=recipe.steps(counts, fold),
        states={**{str(number): tap.finish() for number, tap in fold.taps.items()}, **produced.states},
        lost_files=tuple((part.segment.path, part.title) for part in lost if part.rows < 0),
        boot=boot_id() if produced.spill or produced.outlasts_machine is False else "",
    )


def _files_of(task: Task) -> list[tuple[int, str]]:
    segments = task.input.segments if isinstance(task.input, Slice) else ()
    return [(segment.source, segment.path) for segment in segments]


def _rejected_name(task: Task, recipe: Recipe) -> str:
    """`rejected/00007.jsonl` of slice 7; `rejected/records-2-00007.jsonl` of bucket 7, behind stage 2."""
    place = f"records-{recipe.source.stage}-" if isinstance(recipe.source, FromBuckets) else ""
    return f"rejected/{place}{task.input.number:05d}.jsonl"


def _rows(
    task: Task,
    recipe: Recipe,
    unreadable: list[UnreadablePart],
    fold: Fold,
    counts: dict[str, Count],
    lost: list[UnreadablePart],
    report: Report,
) -> Iterator[Rows]:
    """The rows that the stages are given, counted; what cannot be read or used is counted too, and added to `lost`."""
    first, source = counts["read"], recipe.source
    if isinstance(task.input, Bucket):
        yield from reduced(recipe, task.input, recipe.batch_bytes, fold, first, report)
        return
    assert isinstance(source, FromSlices)
    assert isinstance(task.input, Slice)

    def give_up(part: UnreadablePart) -> None:
        lost.append(part)
        count = counts["rows"] if source.takes_rows(part.segment.source) else first
        count.add(max(part.rows, 0), [fold.rejected.take(_unreadable_rows(part))])
        fold.rejected.write()

    for part in unreadable:
        if not source.takes_files(part.segment.source):  # a file of a function comes in its place, see _read
            give_up(part)
    items = joined(_read(task.input, source, unreadable, first, report), source.reading)
    for rows in ahead(items) if _reads_ahead(task.input, recipe, source.reading) else items:
        if isinstance(rows, UnreadablePart):
            give_up(rows)
            continue
        if rows.made_of:
            taken, aside = rows.made_of
            rejected = [fold.rejected.take(each) for each in aside]
            counts["rows"].add(taken + sum(each.count for each in aside), rejected)
        taken = len(rows) + sum(aside.count for aside in rows.set_aside)
        counts["rows"].made += taken if source.takes_rows(rows.source) else 0
        yield fold.count(rows, taken, first)
        report(first.taken)
    refuse_changed(task.input, source.reading)


def reduced(
    recipe: Recipe, bucket: Bucket, sort_bytes: int, fold: Fold, first: Count, report: Report
) -> Iterator[Rows]:
    """The records that the reducer makes of a bucket."""
    source = recipe.source
    assert isinstance(source, FromBuckets)
    read = [0]

    def moved(rows: int) -> None:
        read[0] += rows
        report(read[0])

    def counted(runs: Iterator[Sorted]) -> Iterator[Sorted]:
        for run in runs:
            first.add(run.batch.num_rows, [])
            yield run

    ranges = max(sort_bytes - source.reducer.keeps_bytes(), sort_bytes // 4)  # beside what it keeps of the run before
    how = Gathering(Folder(recipe.root), source.exchange, sort_bytes, ranges, moved)
    for batch in source.reducer.reduce(counted(gather(how, source.spills, bucket.number))):
        if source.stage in fold.taps:
            fold.taps[source.stage].add_at_once(batch)
        yield Rows(batch, 0, (str(bucket),), np.arange(first.made, first.made + batch.num_rows))
        first.made += batch.num_rows


def _read(
    piece: Slice,
    source: FromSlices,
    unreadable: list[UnreadablePart],
    first: Count,
    report: Report,
) -> Iterator[Rows | UnreadablePart]:
    reading = replace(source.reading, tell=lambda made: report(first.taken + made))
    for segment in piece.segments:
        known = [part for part in unreadable if part.segment == segment]
        is_file = source.takes_files(segment.source)
        if is_file and known:
            yield known[0]
            continue
        if reading.options[segment.source].function:
            report(first.taken, segment.path, is_file)
        found = read_segment(segment, reading, frozenset(part.part for part in known))
        for rows in found:
            if isinstance(rows, Rows) and source.on_bad_input == "fail":
                _refuse_bad_records(rows, segment)
            yield rows


def _reads_ahead(piece: Slice, recipe: Recipe, reading: Reading) -> bool:
    """On a thread, if there is one to spare; not what a user's function reads, which tells where it is."""
    return recipe.threads > 1 and not any(reading.options[segment.source].function for segment in piece.segments)


def _refuse_bad_records(rows: Rows, segment: Segment) -> None:
    for aside in (*rows.set_aside, *(rows.made_of[1] if rows.made_of else ())):
        raise _bad_record(aside, segment)


def _refusal(part: UnreadablePart) -> InputError:
    rows = f" of {part.rows:,} rows" if part.rows >= 0 else ""
    return InputError(
        f"{part.title}{rows}: {part.reason}",
        where=f"{part.segment.location}, row {part.ordinal:,}" if part.rows >= 0 else part.segment.location,
        next_step="replace the file, or set `on_bad_input: set_aside` to go on without that part",
    )


def _unreadable_rows(part: UnreadablePart) -> SetAside:
    rows = part.rows if part.rows >= 0 else None
    facts: dict[str, Any] = {"row_group": part.part} if part.title.startswith("unreadable") else {}
    facts |= {"rows": rows, **({"traceback": part.trace} if part.trace else {})}
    line = rejected_line(part.segment.source, part.segment.path, part.ordinal, part.title, detail=part.reason, **facts)
    return SetAside(part.title, max(part.rows, 0), (line,))


def _printable(text: str) -> str:
    """What a terminal would obey, spelled out."""
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
