"""Ending: how a fold whose samples become arrays ends: in parts that a later pass places, or at their final places."""

from dataclasses import dataclass

from penstock.base.stores.store import Store
from penstock.prepare.budget.costs import Measurement
from penstock.prepare.passes import Finished, Rows
from penstock.prepare.passes.arrays.applied import part_schema
from penstock.prepare.passes.arrays.counts import counts_are_known, direct_layout
from penstock.prepare.passes.arrays.direct import DirectInto
from penstock.prepare.passes.arrays.finishing import archive_bytes, finish_arrays
from penstock.prepare.passes.arrays.parts import PartsInto
from penstock.prepare.passes.folds.fold import Ending, Written
from penstock.prepare.passes.job import Job
from penstock.prepare.rows.part import PLACES
from penstock.prepare.stages.interfaces import split_of


@dataclass(frozen=True)
class PartsEnding(Ending):
    """Parts, which a pass behind places; it applies what stages have learned."""


@dataclass(frozen=True, kw_only=True)
class DirectEnding(Ending):
    job: Job
    into: DirectInto

    def disk(self, rows: int, written: Written, cost: Measurement) -> tuple[int, int]:  # noqa: ARG002
        return written.at_once, written.in_all + archive_bytes(self.job)

    def finish(self, rows: Rows, store: Store) -> Finished:
        return finish_arrays(self.job, self.into.layout, rows, store)


def arrays_ending(job: Job) -> Ending | None:
    if job.config.format != "arrays":
        return None
    if counts_are_known(job):
        layout = direct_layout(job)
        places = ("direct", [columns[0].starts for columns in layout.values()])
        into = DirectInto(job.survey.output, layout)
        return DirectEnding(writes="output", into=into, is_for_good=True, places=places, job=job)
    split = split_of(job.stages)
    parts = PartsInto(part_schema(job), job.splits, len(job.survey.slices), split.by if split else ())
    return PartsEnding("parts", into=parts, is_for_good=True, for_others=True, places=PLACES, applies_artifacts=True)
