"""Parts: the endings of folds whose samples become arrays: parts that a later pass places, or their final places."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np

from penstock.base.errors import PenstockError
from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measurement
from penstock.prepare.budget.means import Settings
from penstock.prepare.passes import Finished
from penstock.prepare.passes import Rows as LedgerRows
from penstock.prepare.passes.arrays.finishing import announce_arrays, archive_bytes, finish_arrays
from penstock.prepare.passes.arrays.placing import EDGES
from penstock.prepare.passes.folds.fold import Ending, Written
from penstock.prepare.passes.folds.sink import PARTS, Into, Produced
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.container import FORMAT, bytes_of
from penstock.prepare.rows.hashing import hash_positions
from penstock.prepare.rows.part import PartWriter
from penstock.prepare.rows.rows import Rows
from penstock.prepare.samples.groups import Groups
from penstock.prepare.samples.nulls import refuse_nulls
from penstock.prepare.stages.interfaces import Applies, split_of
from penstock.prepare.stages.stage import Stage
from penstock.shards.manifest import ShardFacts
from penstock.shards.placed import Edges, Layout, Placer, columns_of, lay_out_fixed
from penstock.shards.record import encoders
from penstock.shards.schema import Schema, schema_from_arrow

_POSITIONS_AT_ONCE = 1 << 20
_MOST_OPEN = 200  # files that a task writes at once, each with its checksums; 1,024 is a common limit


@dataclass(frozen=True)
class PartsInto(Into):
    """Writes samples into parts, which a later pass places."""

    schema: Schema
    splits: tuple[str, ...]
    task_count: int
    group_by: tuple[str, ...]

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Parts:  # noqa: ARG002
        return Parts(store, self, number, stack)


class Parts:
    """The samples of one task, with the groups of them that each split has."""

    def __init__(self, store: Store, into: PartsInto, number: int, stack: ExitStack) -> None:
        self._splits = into.splits
        self._writer = PartWriter(
            store, f"{PARTS}/{number:05d}-of-{into.task_count:05d}", into.schema, into.splits, stack
        )
        self._groups = Groups(into.splits, into.group_by)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        self._groups.add(rows)
        for number, split in enumerate(self._splits):
            batch = rows.take_split(number)
            if batch.num_rows:
                self._writer.write(split, batch)

    def finish(self) -> Produced:
        file = self._writer.finish(self._groups.encoded())
        return Produced({split: ShardFacts(split, count, (file,)) for split, count in self._writer.records.items()})


@dataclass(frozen=True)
class DirectInto(Into):
    """Writes samples straight into the files of the dataset, if their number is known in advance."""

    schema: Schema
    layout: Layout

    def open(self, store: Store, number: int, stack: ExitStack, settings: Settings) -> Direct:  # noqa: ARG002
        return Direct(store, self, number, stack)

    def for_trial(self) -> Into:
        """Places are for all rows of a slice; parts cost the same."""
        return PartsInto(self.schema, tuple(self.layout), 1, ())


class Direct:
    """The samples of one task on their way to their final places."""

    def __init__(self, store: Store, into: DirectInto, number: int, stack: ExitStack) -> None:
        self._into, self._number = into, number
        self._encoders = {split: encoders(into.schema) for split in into.layout}
        self._placers: dict[str, dict[str, Placer]] = {}
        for split, columns in into.layout.items():
            placers = {each.column: Placer(store, each, each.starts[number]) for each in columns}
            self._placers[split] = placers
            for placer in placers.values():
                stack.callback(placer.close)

    def write(self, rows: Rows) -> None:
        refuse_nulls(rows)
        for number, split in enumerate(self._into.layout):
            batch = rows.take_split(number)
            for encoder, values in zip(self._encoders[split], batch.columns, strict=True):
                for column, piece in encoder.encode(values):
                    self._placers[split][column].write(bytes_of(piece))

    def finish(self) -> Produced:
        shards: dict[str, ShardFacts] = {}
        edges: Edges = {}
        for split, columns in self._into.layout.items():
            for column in columns:
                placer, stop = self._placers[split][column.column], column.starts[self._number + 1]
                if placer.items != stop:
                    raise PenstockError(f"defect: {placer.items:,} items of {column.file} were placed, not {stop:,}")
                edges[column.file] = placer.finish()
            records = columns[0].starts[self._number + 1] - columns[0].starts[self._number]
            shards[split] = ShardFacts(split, records, tuple(column.placing for column in columns))
        return Produced(shards=shards, states={EDGES: edges}, lasting=False)


@dataclass(frozen=True)
class PartsEnding(Ending):
    """Parts, which a pass behind places; it applies what stages have learned."""


@dataclass(frozen=True)
class DirectEnding(Ending):
    job: Job | None = None
    layout: Layout = field(default_factory=dict)

    def disk(self, rows: int, written: Written, cost: Measurement) -> tuple[int, int]:  # noqa: ARG002
        assert self.job
        return written.at_once, written.in_all + archive_bytes(self.job)

    def finish(self, rows: LedgerRows, store: Store) -> Finished:
        assert self.job
        announce_arrays(store, self.layout)
        return finish_arrays(self.job, self.layout, rows, store)


def arrays_ending(job: Job) -> Ending | None:
    if job.config.format != "arrays":
        return None
    if counts_are_known(job):
        layout = direct_layout(job)
        into = DirectInto(job.survey.output, layout)
        places = ("direct", [columns[0].starts for columns in layout.values()])
        return DirectEnding("output", into=into, is_for_good=True, places=places, job=job, layout=layout)
    split = split_of(job.stages)
    parts = PartsInto(part_schema(job), job.splits, len(job.survey.slices), split.by if split else ())
    return PartsEnding(
        "parts", into=parts, is_for_good=True, for_others=True, places=("parts", FORMAT), applies_artifacts=True
    )


def counts_are_known(job: Job) -> bool:
    """Whether every slice's rows and their splits are known before one is read, so that each has its place already."""
    config, survey, split = job.config, job.survey, split_of(job.stages)
    if split and (split.by or "npz" in survey.formats):  # rows of batch files bring positions of their own
        return False
    return (
        config.on_bad_input == "fail"
        and config.merge_strategy == "sequential"
        and all(piece.rows >= 0 for piece in survey.slices)
        and all(stage.keeps_rows() for stage in survey.stages)
        and not any(field.parsed.is_text or field.parsed.is_list for field in survey.output)
        and len(survey.output) * len(job.splits) <= _MOST_OPEN
    )


def part_schema(job: Job) -> Schema:
    """Schema of the samples before normalization."""
    applied = first_applied(job.stages)
    if applied == len(job.stages):
        return job.survey.output
    return schema_from_arrow(job.survey.given[applied], "the columns before they are normalised")


def first_applied(stages: tuple[Stage, ...]) -> int:
    """The first stage that needs an artifact; in an arrays job nothing else stands behind it."""
    return next((number for number, stage in enumerate(stages) if isinstance(stage, Applies)), len(stages))


def direct_layout(job: Job) -> Layout:
    """Places of the rows of each slice, by split. They follow from the positions of the rows, which are known."""
    survey, splits, split = job.survey, job.splits, split_of(job.stages)
    counts = np.zeros((len(splits), len(survey.slices)), "i8")
    for piece in survey.slices:
        for segment in piece.segments:
            end = segment.first_ordinal + segment.rows
            for start in range(segment.first_ordinal, end, _POSITIONS_AT_ONCE):
                stop = min(start + _POSITIONS_AT_ONCE, end)
                decided = np.zeros(stop - start, "u1")
                if split:
                    decided = split.decide(hash_positions([segment.path], None, np.arange(start, stop)))
                counts[:, piece.number] += np.bincount(decided, minlength=len(splits))
    columns = columns_of(survey.output)
    return {name: lay_out_fixed(name, columns, counts[number].tolist()) for number, name in enumerate(splits)}
