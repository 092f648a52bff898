"""Kinds: what a kind of pass offers to the cutting of a job, and the kind that all jobs have. Next: cutting.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from penstock.prepare.passes import Pass, Tries
from penstock.prepare.passes.folds.fold import Ending, Fold, Reader
from penstock.prepare.passes.folds.shards_ending import shards_ending
from penstock.prepare.passes.job import Job
from penstock.prepare.stages.interfaces import Applies, Fits, changes_values


@dataclass(frozen=True)
class SoFar:
    """State of the cutting, from one stage to the next."""

    job: Job
    ending: Ending  # of the last fold
    reader: Reader  # of the next fold
    tries: Tries  # how work that reads this is tried
    passes: tuple[Pass, ...] = ()
    first: int = 0  # stage of the next fold
    riding: tuple[int, ...] = ()  # fits that are done on the way

    def fold(self, kind: str, last: int, ending: Ending, fits: tuple[int, ...] = ()) -> SoFar:
        """With the stages since the last exchange, up to `last`, as one more pass."""
        number, reader, tries = len(self.passes), self.reader, self.tries
        return self.also(Fold(number, kind, self.job, self.first, last, fits, reader, ending, tries))

    def also(self, each: Pass) -> SoFar:
        return replace(self, passes=(*self.passes, each))


@dataclass(frozen=True)
class Kind:
    """Each kind is asked in turn: how the last fold over the input ends, what a stage needs before its final run, and
    what comes behind the last fold. It imports its passes when a job needs them: other jobs start without."""

    endings: tuple[Callable[[Job], Ending | None], ...] = ()
    before: Callable[[SoFar, int], SoFar] = lambda so_far, _: so_far
    behind: Callable[[SoFar], SoFar] = lambda so_far: so_far


def _fitted(so_far: SoFar, number: int) -> SoFar:
    """A stage that needs its own artifact ends a fold of its own, unless a pass behind the last fold applies it. One
    that only leaves an artifact rides on the fold that runs it for good."""
    stage = so_far.job.stages[number]
    if isinstance(stage, Applies) and not (so_far.ending.applies_artifacts and changes_values(stage)):
        wrote = "an artifact" if stage.leaves_artifact else f"what `{so_far.job.names[number]}` needs"
        return so_far.fold("fit", number + 1, Ending(wrote=wrote), (number,))
    return replace(so_far, riding=(*so_far.riding, number)) if isinstance(stage, Fits) else so_far


def last_fold(so_far: SoFar) -> SoFar:
    kind = "gather" if so_far.reader.exchange else "map"
    ending = so_far.ending.behind(so_far.reader) if so_far.reader.exchange else so_far.ending
    return so_far.fold(kind, len(so_far.job.stages), ending, so_far.riding)


SHARDS = Kind(endings=(shards_ending,), before=_fitted)
