"""Ending: how a fold whose samples become arrays ends: in parts that a later pass places, or at their final places."""

from dataclasses import dataclass

import numpy as np

from penstock.base.stores.store import Store
from penstock.prepare.passes import Finished, LedgerRows
from penstock.prepare.passes.arrays.direct import DirectInto
from penstock.prepare.passes.arrays.finishing import archive_bytes, finish_arrays
from penstock.prepare.passes.arrays.moving import part_schema
from penstock.prepare.passes.arrays.parts import PartsInto
from penstock.prepare.passes.folds.fold import Ending, Written
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.hashing import hash_positions
from penstock.prepare.rows.part import PLACES
from penstock.prepare.stages.interfaces import split_of
from penstock.shards.placed import Layout, columns_of, lay_out_fixed

_POSITIONS_AT_ONCE = 1 << 20
_MOST_OPEN = 200  # files that a task writes at once, each with its checksums; 1,024 is a common limit


@dataclass(frozen=True, kw_only=True)
class DirectEnding(Ending):
    job: Job
    into: DirectInto

    def disk(self, left: int, written: Written) -> tuple[int, int]:  # noqa: ARG002
        return written.at_once, written.in_all + archive_bytes(self.job)

    def finish(self, rows: LedgerRows, store: Store) -> Finished:
        return finish_arrays(self.job, self.into.layout, rows, store)


def arrays_ending(job: Job) -> Ending:
    if _counts_are_known(job):
        layout = _direct_layout(job)
        places = ("direct", [columns[0].starts for columns in layout.values()])
        into = DirectInto(job.survey.output, layout)
        return DirectEnding(writes="output", into=into, is_for_good=True, places=places, job=job)
    split = split_of(job.stages)
    by, slices = split.by if split else (), len(job.survey.slices)
    parts = PartsInto(part_schema(job), job.splits, slices, by, job.survey.optional)
    return Ending("parts", into=parts, is_for_good=True, for_others=True, places=PLACES, applies_artifacts=True)


def _counts_are_known(job: Job) -> bool:
    """Whether every slice's rows and their splits are known before one is read, so that each has its place already."""
    config, survey, split = job.config, job.survey, split_of(job.stages)
    if split and not split.by_position():
        return False
    if split and any(kind.keeps_positions for kind in survey.kinds):  # rows bring their own positions
        return False
    return (
        config.on_bad_input == "fail"
        and config.merge_strategy == "sequential"
        and all(piece.rows >= 0 for piece in survey.slices)
        and all(stage.keeps_rows() for stage in survey.stages)
        and not any(field.parsed.is_text or field.parsed.is_list for field in survey.output)
        and not survey.optional
        and len(survey.output) * len(job.splits) <= _MOST_OPEN
    )


def _direct_layout(job: Job) -> Layout:
    """Places of the rows of each slice, by split. They follow from the positions of the rows, which are known."""
    survey, splits, split = job.survey, job.splits, split_of(job.stages)
    decide = split.by_position() if split else None
    counts = np.zeros((len(splits), len(survey.slices)), "i8")
    for piece in survey.slices:
        for segment in piece.segments:
            end = segment.first_ordinal + segment.rows
            for start in range(segment.first_ordinal, end, _POSITIONS_AT_ONCE):
                stop = min(start + _POSITIONS_AT_ONCE, end)
                decided = np.zeros(stop - start, "u1")
                if decide:
                    decided = decide(hash_positions([segment.path], None, np.arange(start, stop)))
                counts[:, piece.number] += np.bincount(decided, minlength=len(splits))
    columns = columns_of(survey.output)
    return {name: lay_out_fixed(name, columns, counts[number].tolist()) for number, name in enumerate(splits)}
