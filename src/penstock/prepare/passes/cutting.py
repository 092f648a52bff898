"""Cutting: the stages of a job -> its passes. The registry: a new kind is one more entry of ENDINGS, BEFORE or END."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.prepare.job.config import Config
from penstock.prepare.passes import Pass
from penstock.prepare.passes.arrays.batches import batches_ending
from penstock.prepare.passes.arrays.ending import PartsEnding, arrays_ending
from penstock.prepare.passes.arrays.place import Place
from penstock.prepare.passes.exchange.gather import Buckets
from penstock.prepare.passes.exchange.scatter import scatter_ending
from penstock.prepare.passes.folds.fold import Ending, Fold, Reader
from penstock.prepare.passes.folds.shards import shards_ending
from penstock.prepare.passes.folds.slices import Slices
from penstock.prepare.passes.job import Job
from penstock.prepare.passes.match.hash import hash_ending
from penstock.prepare.passes.match.match import Match
from penstock.prepare.passes.text.pack import Packing
from penstock.prepare.passes.text.tokens import TokensEnding, tokens_ending
from penstock.prepare.rows.exchange import bucket_count
from penstock.prepare.stages.interfaces import Applies, Compares, Exchanges, Fits
from penstock.prepare.survey.survey import Survey


@dataclass(frozen=True)
class SoFar:
    """State of the cutting, from one stage to the next."""

    job: Job
    ending: Ending  # of the last fold
    reader: Reader  # of the next fold
    passes: tuple[Pass, ...] = ()
    first: int = 0  # stage of the next fold
    riding: tuple[int, ...] = ()  # fits that are done on the way

    def fold(self, kind: str, last: int, ending: Ending, fits: tuple[int, ...] = ()) -> SoFar:
        """With the stages since the last exchange, up to `last`, as one more pass."""
        return self.also(Fold(len(self.passes), kind, self.job, self.first, last, fits, self.reader, ending))

    def also(self, each: Pass) -> SoFar:
        return replace(self, passes=(*self.passes, each))


def _exchange(so_far: SoFar, number: int) -> SoFar:
    """A stage with an exchange ends one fold in a spill; the next reads its buckets."""
    job, scatter, stage = so_far.job, len(so_far.passes), so_far.job.stages[number]
    if not isinstance(stage, Exchanges):
        return so_far
    buckets = bucket_count(job.survey.bytes, job.config.slice_bytes)
    ending = scatter_ending(job, scatter, number, stage.exchange(), buckets)
    assert ending.into
    spills = ending.into.left(so_far.reader.task_count)
    reader = Buckets(job, number, scatter, stage, buckets, spills)
    scattered = so_far.fold("scatter", number + 1, ending, so_far.riding)
    return replace(scattered, first=number + 1, reader=reader, riding=())


def _compared(so_far: SoFar, number: int) -> SoFar:
    """A stage that compares rows has their keys hashed, by a fold, and ranges of keys matched."""
    stage, hashed = so_far.job.stages[number], len(so_far.passes)
    if not isinstance(stage, Compares):
        return so_far
    so_far = so_far.fold("hash", number, hash_ending(hashed, number, stage.column))
    return so_far.also(Match(hashed + 1, so_far.job, hashed, number))


def _fitted(so_far: SoFar, number: int) -> SoFar:
    """A stage that needs its own artifact ends a fold of its own, unless a pass behind the last fold applies it. One
    that only leaves an artifact rides on the fold that runs it for good."""
    stage = so_far.job.stages[number]
    if isinstance(stage, Applies) and not so_far.ending.applies_artifacts:
        return so_far.fold("fit", number + 1, Ending(wrote="an artifact"), (number,))
    return replace(so_far, riding=(*so_far.riding, number)) if isinstance(stage, Fits) else so_far


def _last_fold(so_far: SoFar) -> SoFar:
    kind = "gather" if so_far.reader.exchange else "map"
    ending = so_far.ending.behind(so_far.reader) if so_far.reader.exchange else so_far.ending
    return so_far.fold(kind, len(so_far.job.stages), ending, so_far.riding)


def _placed(so_far: SoFar) -> SoFar:
    last = len(so_far.passes) - 1
    return so_far.also(Place(last + 1, so_far.job, last)) if isinstance(so_far.ending, PartsEnding) else so_far


def _packed(so_far: SoFar) -> SoFar:
    last = len(so_far.passes) - 1
    return so_far.also(Packing(last + 1, so_far.job, last)) if isinstance(so_far.ending, TokensEnding) else so_far


# How the last fold over the input ends: the first that answers. Only here a format and the last stage are asked for.
ENDINGS: tuple[Callable[[Job], Ending | None], ...] = (tokens_ending, batches_ending, arrays_ending, shards_ending)
BEFORE: tuple[Callable[[SoFar, int], SoFar], ...] = (_exchange, _compared, _fitted)  # for each stage
END: tuple[Callable[[SoFar], SoFar], ...] = (_last_fold, _placed, _packed)


def cut_passes(config: Config, survey: Survey, allowed: int) -> tuple[Job, tuple[Pass, ...]]:
    job = Job(config, survey, allowed)
    ending = next(found for make in ENDINGS if (found := make(job)))
    job = replace(job, places=ending.places)
    so_far = SoFar(job, ending, Slices(job))
    for number in range(len(job.stages)):
        for before in BEFORE:
            so_far = before(so_far, number)
    for end in END:
        so_far = end(so_far)
    return job, so_far.passes
