"""Cutting: the stages of a job -> its passes. The registry: a new kind is one more entry of KINDS."""

from dataclasses import replace

from penstock.prepare.job.config import Config
from penstock.prepare.passes import Pass
from penstock.prepare.passes.arrays.kind import ARRAYS
from penstock.prepare.passes.exchange.kind import EXCHANGE
from penstock.prepare.passes.folds.slices import Slices
from penstock.prepare.passes.folds.trying.first_rows import try_first_rows
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.kinds import SHARDS, SoFar, last_fold
from penstock.prepare.passes.match.kind import MATCH
from penstock.prepare.passes.near.kind import NEAR
from penstock.prepare.passes.text.kind import TEXT
from penstock.prepare.survey.survey import Survey

# They are asked in this order. The first ending that answers is taken, so shards, which take any rows, are the last.
KINDS = (TEXT, ARRAYS, EXCHANGE, MATCH, NEAR, SHARDS)


def cut_passes(config: Config, survey: Survey, allowed: int) -> tuple[Job, tuple[Pass, ...]]:
    job = Job(config, survey, allowed)
    ending = next(found for kind in KINDS for make in kind.endings if (found := make(job)))
    job = replace(job, places=ending.places)
    so_far = SoFar(job, ending, Slices(job), try_first_rows)
    for number in range(len(job.stages)):
        for kind in KINDS:
            so_far = kind.before(so_far, number)
    so_far = last_fold(so_far)
    for kind in KINDS:
        so_far = kind.behind(so_far)
    return job, so_far.passes
