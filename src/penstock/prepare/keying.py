"""Keying: the keys that tasks have put down -> which rows lose, one range of keys a task. Next: ledger.py."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.base.faults import crash_point
from penstock.base.files import Folder
from penstock.base.fingerprint import fingerprint
from penstock.base.machine import boot_id
from penstock.prepare.dedup.keys import KEY, Array
from penstock.prepare.dedup.losers import put_losers
from penstock.prepare.dedup.matching import match
from penstock.prepare.dedup.remembered import Remembered
from penstock.prepare.dedup.runs import RunsWriter, open_written
from penstock.prepare.ledger import LedgerRow
from penstock.prepare.text_sinks import KEYS
from penstock.shards.columns import FileFacts
from penstock.shards.manifest import Step

if TYPE_CHECKING:
    from penstock.prepare.task import Recipe, Report, Task


@dataclass(frozen=True)
class KeyRange:
    """One of the equal ranges into which all keys fall."""

    number: int

    def describe(self) -> int:
        return self.number

    def __str__(self) -> str:
        return f"keys, range {self.number}"


@dataclass(frozen=True)
class FromKeys:
    """The input of a pass that matches keys."""

    number: int  # of the pass
    keys: tuple[FileFacts, ...]  # of each slice, in their order
    remembered: Remembered | None
    ranges: int

    @cached_property
    def identity(self) -> str:
        return fingerprint([each.digest for each in self.keys])


def match_keys(task: Task, recipe: Recipe, report: Report) -> LedgerRow:
    """Put down which rows of each slice lose, and, where they are to be remembered, the keys that are new."""
    source = recipe.source
    assert isinstance(source, FromKeys)
    folder = Folder(recipe.root)
    files = [open_written(folder, each) for each in source.keys]
    known = source.remembered.open() if source.remembered else []
    with ExitStack() as stack:
        name = f"{KEYS}/{source.number}-{task.input.number:05d}.losers"
        writer = RunsWriter(folder, name, stack, KEY, outlasts=not boot_id())
        rows = parts = 0
        for parts, each in enumerate(match(files, known, task.input.number, source.ranges), start=1):
            put_losers(writer, parts - 1, each.slices, each.numbers, each.reasons, len(files))
            if source.remembered:
                writer.write(each.new)
            rows += len(each.slices) + len(each.new)
            report(rows)
        facts = writer.finish({"parts": parts})
        crash_point("match.before_ledger")
    return LedgerRow(
        task=task.name,
        fingerprint=task.fingerprint,
        shards={},
        spill=facts,
        rejected=None,
        steps={"match": Step("match", "", rows, rows)},
        states={"layout": source.identity},
        lost_files=(),
        boot=boot_id(),
    )


def new_keys(folder: Folder, losers: Iterable[FileFacts]) -> Iterator[Array]:
    """The keys that no earlier job has had, in ascending order."""
    for facts in losers:
        yield from open_written(folder, facts).entries()
