"""Counts: the rows of every slice and split, where they are known before one is read -> a place for each row."""

import numpy as np

from penstock.prepare.passes.job import Job
from penstock.prepare.rows.hashing import hash_positions
from penstock.prepare.stages.interfaces import split_of
from penstock.shards.placed import Layout, columns_of, lay_out_fixed

_POSITIONS_AT_ONCE = 1 << 20
_MOST_OPEN = 200  # files that a task writes at once, each with its checksums; 1,024 is a common limit


def counts_are_known(job: Job) -> bool:
    """Whether every slice's rows and their splits are known before one is read, so that each has its place already."""
    config, survey, split = job.config, job.survey, split_of(job.stages)
    if split and (split.by or any(kind.keeps_positions for kind in survey.kinds)):  # rows bring their own positions
        return False
    return (
        config.on_bad_input == "fail"
        and config.merge_strategy == "sequential"
        and all(piece.rows >= 0 for piece in survey.slices)
        and all(stage.keeps_rows() for stage in survey.stages)
        and not any(field.parsed.is_text or field.parsed.is_list for field in survey.output)
        and len(survey.output) * len(job.splits) <= _MOST_OPEN
    )


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
