"""Chain: the stages of a pass over one batch after the other, every row counted. Used by work.py."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from penstock.base.errors import InputError
from penstock.prepare.passes import inner_key
from penstock.prepare.passes.folds.rejected import Rejected
from penstock.prepare.rows.rows import INNER, Rows, SetAside
from penstock.prepare.stages.interfaces import Applies, Fits
from penstock.prepare.stages.stage import Stage, applied
from penstock.shards.manifest import Step


@dataclass
class Count:
    """Rows taken by a step, the ones it set aside by reason, and what it made of the others, if something else."""

    taken: int = 0
    aside: dict[str, int] = field(default_factory=dict)
    made: int = 0
    inner: int = 0  # values of INNER in what was taken, or made
    inner_given: int = 0
    inner_aside: dict[str, int] = field(default_factory=dict)

    def add(self, taken: int, set_aside: list[SetAside]) -> None:
        self.taken += taken
        for each in set_aside:
            self.aside[each.reason] = self.aside.get(each.reason, 0) + each.count
            self.inner_aside[each.reason] = self.inner_aside.get(each.reason, 0) + each.inner

    def step(self, name: str, unit: str, unit_out: str = "") -> Step:
        aside = {reason: count for reason, count in sorted(self.aside.items()) if count}
        made = {unit_out: self.made} if unit_out else {}
        return Step(name, unit, self.taken, self.taken - sum(aside.values()), aside, made)

    def inner_step(self, name: str) -> Step:
        aside = {reason: count for reason, count in sorted(self.inner_aside.items()) if count}
        given = self.inner - sum(aside.values())
        made = {INNER: self.inner_given} if self.inner_given != given else {}  # by a stage that changes them
        return Step(name, INNER, self.inner, given, aside, made)


class Tap:
    """Feeds a reduction blocks of as many training rows as it wants, whatever batches they arrive in.

    Sums of floats depend on how they are grouped; these groups depend on the task's input alone.
    """

    def __init__(self, stage: Fits) -> None:
        self._stage, self._fit = stage, stage.fit()
        self._state = self._fit.start()
        self._waiting: list[pa.RecordBatch] = []
        self._rows = 0

    def add(self, rows: Rows) -> None:
        batch = self._stage.measured(rows)
        self._waiting.append(batch)
        self._rows += batch.num_rows
        size = self._fit.block_rows(batch.schema)
        if self._rows >= size:
            table = pa.Table.from_batches(self._waiting)
            full = self._rows // size * size
            for start in range(0, full, size):
                self._update(table.slice(start, size))
            self._waiting = table.slice(full).to_batches()
            self._rows -= full

    def add_at_once(self, batch: pa.RecordBatch) -> None:
        """Feed an exact reduction with batches of any size."""
        self._state = self._fit.update(self._state, batch)

    def _update(self, block: pa.Table) -> None:
        self._state = self._fit.update(self._state, block.combine_chunks().to_batches()[0])

    def finish(self) -> Any:
        if self._rows:
            self._update(pa.Table.from_batches(self._waiting))
            self._rows = 0
        return self._fit.pack(self._state)


@dataclass
class Chain:
    """The stages of a pass, numbered as in the job, with a count for each."""

    stages: dict[int, Stage]
    taps: dict[int, Tap]  # of the stages whose reduction this pass runs
    rejected: Rejected
    refuses: bool = False  # whether bad input stops the job

    def __post_init__(self) -> None:
        self.counts = {number: Count() for number in self.stages}

    def __call__(self, rows: Rows) -> Rows:
        """Run the batch through the stages in order, and count the rows set aside."""
        for number, stage in self.stages.items():
            taken, inner = len(rows), rows.inner
            if number in self.taps:
                self.taps[number].add(rows)
            if not (number in self.taps and isinstance(stage, Applies)):  # its artifact is what this pass is for
                rows = applied(stage, rows)
                if self.refuses:
                    _refuse_bad(rows)
            self.counts[number].inner += inner or rows.inner  # those that a stage makes are its own
            self.counts[number].inner_given += rows.inner
            rows = self.count(rows, taken, self.counts[number])
        return rows

    def steps(self, names: Mapping[int, str]) -> dict[str, Step]:
        """Counts of each stage, by its number."""
        counts = self.counts.items()
        steps = {str(number): count.step(names[number], "") for number, count in counts}
        inner = {inner_key(number): count.inner_step(names[number]) for number, count in counts if count.inner}
        return steps | inner

    def count(self, rows: Rows, taken: int, count: Count) -> Rows:
        count.add(taken, [self.rejected.take(aside) for aside in rows.set_aside])
        return replace(rows, set_aside=(), made_of=None)


def _refuse_bad(rows: Rows) -> None:
    for aside in rows.set_aside:
        if aside.advice:
            line = aside.kept[0]
            raise InputError(
                f"{aside.reason}: {line['detail']}",
                where=f"{line['file']}, row {line['position']:,}",
                next_step=f"{aside.advice}, or set `on_bad_input: set_aside` to keep such rows in rejected/",
            )
