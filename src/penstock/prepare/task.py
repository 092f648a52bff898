"""Task: one worker, one slice: read -> stages -> write -> commit. Next: ledger.py.

The same function runs in a worker process and inside the driver. How much it holds at a time (`recipe.reading`)
changes its memory and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import xxhash

from penstock.base.errors import InputError, PenstockError
from penstock.base.faults import crash_point
from penstock.base.files import Folder, WriteFile
from penstock.prepare.ledger import LedgerRow, write_row
from penstock.prepare.rows import Rows, SetAside, rejected_line
from penstock.prepare.slices import Segment, Slice
from penstock.prepare.sources import Reading, UnreadablePart, read_segment, refuse_changed
from penstock.prepare.stage import Fit, Stage
from penstock.shards.columns import Container, FileFacts, Hold
from penstock.shards.manifest import ShardFacts, Step
from penstock.shards.schema import Schema
from penstock.shards.shard import ShardWriter

Report = Callable[[int], None]  # told the rows read so far
FIT_BLOCK_ROWS = 8192


@dataclass(frozen=True)
class Task:
    """One slice of one pass. Its fingerprint covers everything that decides what it writes."""

    name: str
    slice: Slice
    fingerprint: str


@dataclass(frozen=True)
class Recipe:
    """What every task of a pass does."""

    root: str
    reading: Reading
    on_bad_input: str
    names: tuple[str, ...]
    stages: tuple[Stage, ...]  # bound: those that need an artifact have it
    fits: tuple[int, ...]  # numbers of the stages whose reduction this pass runs
    writes: bool
    schema: Schema
    splits: tuple[str, ...]
    container: Container
    slice_count: int
    code: tuple[tuple[str, str], ...]  # the user's own code that the plan was made with: (module:name, identity)
    hold_bytes: int = 0  # of output that a task may keep in memory; like the batch, it changes no byte


def execute(task: Task, recipe: Recipe, report: Report) -> LedgerRow:
    """Do the task and enter it in the ledger.

    A part that cannot be decoded starts the task anew without that part, so that what is kept of a damaged file
    never depends on how far the reading had come.
    """
    unreadable: list[UnreadablePart] = []
    while True:
        try:
            row = _attempt(task, recipe, unreadable, report)
            break
        except UnreadablePart as part:
            if recipe.on_bad_input == "fail":
                raise _refusal(part) from part
            unreadable.append(part)
        except PenstockError as error:
            error.add_note(f"in {task.slice}")
            raise
    crash_point("task.before_ledger")
    write_row(Folder(recipe.root), row)
    crash_point("task.after_ledger")
    return row


def _attempt(task: Task, recipe: Recipe, unreadable: list[UnreadablePart], report: Report) -> LedgerRow:
    folder = Folder(recipe.root)
    account = [Count() for _ in range(len(recipe.stages) + 1)]
    taps = {number: Tap(fit) for number in recipe.fits if (fit := recipe.stages[number].fit())}
    with ExitStack() as stack:
        rejected = Rejected(folder, f"rejected/{task.slice.number:05d}.jsonl", stack, recipe.writes)
        shards = Shards(folder, recipe, task.slice.number, stack)
        for part in unreadable:
            account[0].add(max(part.rows, 0), [rejected.take(_unreadable_rows(part))])
        rejected.write()
        for rows in _read(task, recipe, unreadable):
            rows = run_stages(rows, recipe, account, taps, rejected)
            rejected.write()
            shards.write(rows)
            report(account[0].taken)
        refuse_changed(task.slice, recipe.reading)
        facts = shards.commit()
        crash_point("task.after_shards")
    return LedgerRow(
        task=task.name,
        fingerprint=task.fingerprint,
        shards=facts,
        rejected=rejected.facts,
        steps=tuple(count.step(name, "rows") for count, name in zip(account, ("read", *recipe.names), strict=True)),
        states={str(number): tap.finish() for number, tap in taps.items()},
        lost_files=tuple(part.segment.path for part in unreadable if part.rows < 0),
    )


def run_stages(rows: Rows, recipe: Recipe, account: list[Count], taps: dict[int, Tap], rejected: Rejected) -> Rows:
    """The fold: each stage takes what the one before gave; what is set aside on the way is counted."""
    taken = len(rows) + sum(aside.count for aside in rows.set_aside)
    rows = _count(rows, taken, account[0], rejected)
    for number, stage in enumerate(recipe.stages):
        taken = len(rows)
        if number in taps:
            taps[number].add(rows)
        if not (number in taps and stage.uses_artifact):  # its artifact is what this pass is for
            rows = stage(rows)
        rows = _count(rows, taken, account[number + 1], rejected)
    return rows


def _count(rows: Rows, taken: int, count: Count, rejected: Rejected) -> Rows:
    count.add(taken, [rejected.take(aside) for aside in rows.set_aside])
    return Rows(rows.batch, rows.source, rows.path, rows.ordinals, rows.splits)


def _read(task: Task, recipe: Recipe, unreadable: list[UnreadablePart]) -> Iterator[Rows]:
    for segment in task.slice.segments:
        excluded = frozenset(part.part for part in unreadable if part.segment == segment)
        for rows in read_segment(segment, recipe.reading, excluded):
            if rows.set_aside and recipe.on_bad_input == "fail":
                raise _bad_record(rows.set_aside[0], segment)
            yield rows


def _refusal(part: UnreadablePart) -> InputError:
    rows = f" of {part.rows:,} rows" if part.rows >= 0 else ""
    return InputError(
        f"part {part.part}{rows} cannot be read: {part.reason}",
        where=f"{part.segment.location}, row group {part.part}, row {part.ordinal:,}"
        if part.rows >= 0
        else part.segment.location,
        next_step="replace the file, or set `on_bad_input: set_aside` to go on without that part",
    )


def _unreadable_rows(part: UnreadablePart) -> SetAside:
    reason = "unreadable row group" if part.rows >= 0 else "unreadable file"
    line = rejected_line(
        part.segment.source,
        part.segment.path,
        part.ordinal,
        reason,
        detail=part.reason,
        row_group=part.part,
        rows=part.rows if part.rows >= 0 else None,
    )
    return SetAside(reason, max(part.rows, 0), (line,))


def _bad_record(aside: SetAside, segment: Segment) -> InputError:
    line = aside.kept[0]
    place = f"line {line['line']:,}" if "line" in line else f"row {line['position']:,}"
    shown = line.get("raw") or json.dumps(line.get("row"), ensure_ascii=False)
    return InputError(
        f"{aside.reason}: {line.get('detail', '')}".rstrip(": "),
        where=f"{segment.location}, {place}: {shown[:200]}",
        next_step="mend the record, or set `on_bad_input: set_aside` to keep it in rejected/ and go on",
    )


@dataclass
class Count:
    """Rows taken by a step, and the ones it set aside by reason."""

    taken: int = 0
    aside: dict[str, int] = field(default_factory=dict)

    def add(self, taken: int, set_aside: list[SetAside]) -> None:
        self.taken += taken
        for each in set_aside:
            self.aside[each.reason] = self.aside.get(each.reason, 0) + each.count

    def step(self, name: str, unit: str) -> Step:
        aside = {reason: count for reason, count in sorted(self.aside.items()) if count}
        return Step(name, unit, self.taken, self.taken - sum(aside.values()), aside)


class Tap:
    """Feeds a reduction blocks of exactly 8,192 training rows, whatever batches they arrive in.

    Sums of floats depend on how they are grouped; these groups depend on the slice alone.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit = fit
        self._state = fit.start()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        batch = rows.take_split(0).select(list(self._fit.columns))
        self._waiting.append(batch)
        self._rows += batch.num_rows
        if self._rows >= FIT_BLOCK_ROWS:
            table = pa.Table.from_batches(self._waiting).combine_chunks()
            full = self._rows // FIT_BLOCK_ROWS * FIT_BLOCK_ROWS
            for start in range(0, full, FIT_BLOCK_ROWS):
                self._update(table.slice(start, FIT_BLOCK_ROWS))
            self._waiting = table.slice(full).to_batches()
            self._rows -= full

    def _update(self, block: pa.Table) -> None:
        self._state = self._fit.update(self._state, block.combine_chunks().to_batches()[0])

    def finish(self) -> Any:
        if self._rows:
            self._update(pa.Table.from_batches(self._waiting))
            self._rows = 0
        return self._state


class Rejected:
    """Lines of rows that were set aside; the file appears with the task, if there is a line at all.

    A pass that writes no shards writes no lines either: the pass that does sees the same rows again.
    """

    def __init__(self, folder: Folder, name: str, stack: ExitStack, writes: bool) -> None:
        self._folder, self._name, self._stack, self._writes = folder, name, stack, writes
        self._file: WriteFile | None = None
        self._hasher = xxhash.xxh3_128()
        self._lines: list[dict[str, Any]] = []

    def take(self, aside: SetAside) -> SetAside:
        self._lines += aside.kept if self._writes else ()
        return aside

    def write(self) -> None:
        """Write what a batch set aside in the order of its rows: by step, it would depend on where batches end."""
        for line in sorted(self._lines, key=lambda line: int(line["position"])):
            if self._file is None:
                self._file = self._stack.enter_context(self._folder.commit(self._name))
            data = json.dumps(line, ensure_ascii=False).encode() + b"\n"
            self._hasher.update(data)
            self._file.write(data)
        self._lines = []

    @property
    def facts(self) -> FileFacts | None:
        if self._file is None:
            return None
        return FileFacts(self._name, self._file.size, str(self._hasher.hexdigest()))


class Shards:
    """The shards of one task, one a split, each opened when its first record comes."""

    def __init__(self, folder: Folder, recipe: Recipe, number: int, stack: ExitStack) -> None:
        self._folder, self._recipe, self._number = folder, recipe, number
        self._writers: dict[str, ShardWriter] = {}
        self._hold = Hold(recipe.hold_bytes)
        stack.callback(self._close)

    def write(self, rows: Rows) -> None:
        if not self._recipe.writes:
            return
        for number, split in enumerate(self._recipe.splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self._writer(split).write(batch)

    def _writer(self, split: str) -> ShardWriter:
        if split not in self._writers:
            name = f"{split}/{self._number:05d}-of-{self._recipe.slice_count:05d}"
            recipe = self._recipe
            self._writers[split] = ShardWriter(self._folder, name, recipe.schema, recipe.container, self._hold)
        return self._writers[split]

    def commit(self) -> dict[str, ShardFacts]:
        return {split: self._writers[split].commit() for split in self._recipe.splits if split in self._writers}

    def _close(self) -> None:
        for writer in self._writers.values():
            writer.close()
